"""An empirical test of a run's privacy: canaries that are in or out, and adversaries that guess which."""

"""For research: attacks, defences, benchmarks, the paper's evaluation. Nothing but its commands imports it."""

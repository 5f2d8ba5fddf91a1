"""Training on one machine: simulated clients, the two servers, and the run on disk."""

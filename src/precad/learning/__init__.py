"""Training with PyTorch: data, models, and what a client computes."""

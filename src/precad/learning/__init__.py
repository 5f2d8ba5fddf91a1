"""Training: models, per-record gradients."""

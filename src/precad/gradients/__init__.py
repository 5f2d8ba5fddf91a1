"""The gradients of single records, clipped and summed per client."""

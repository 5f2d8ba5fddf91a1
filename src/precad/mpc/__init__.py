"""Numbers on shares: the field, fixed point, the generator of masks, and sharing (PROTOCOL §3)."""

"""What malicious clients do, as pure functions."""

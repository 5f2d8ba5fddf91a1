"""Validation by Beaver triples, the paper's own: for comparison. No service runs it."""

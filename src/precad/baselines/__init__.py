"""Defences in the clear: what a server that sees every update can do. One file per paper; pure functions."""

"""What bounds and hides a person: clipping and noise (PROTOCOL §2, §6, §7)."""

"""One round of the paper, in order: submission, validation, aggregation, update (PROTOCOL §2)."""

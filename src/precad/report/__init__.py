"""What people see of a run: one page, in a file or live."""

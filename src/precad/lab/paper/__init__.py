"""The paper's evaluation: a grid of runs, its figures, and what becomes of each claim."""

"""Numba twins of what is hot. Each kernel names the plain reference that it has to equal."""

"""Numba twins of the hot paths. Each kernel names the plain Python reference that it must equal."""

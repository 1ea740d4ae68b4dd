"""Shared by the encoders of all protocols: the loop that drives a kernel, growing buffers, compression."""

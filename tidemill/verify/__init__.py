"""Compares what was delivered with the guarantees."""

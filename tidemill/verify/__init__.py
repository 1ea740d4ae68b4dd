"""Holds what was delivered against what was promised."""

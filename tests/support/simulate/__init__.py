"""Drivers of one changefeed that freeze, die and lose answers at any effect, under a scheduler that follows from a seed."""

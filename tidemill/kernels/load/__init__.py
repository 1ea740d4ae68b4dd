"""Converts the rows of a KvScan answer to columns, in compiled code."""

from tidemill.kernels.load.pairs import BadAnswer, Pairs, locate_pairs

__all__ = ["BadAnswer", "Pairs", "locate_pairs"]

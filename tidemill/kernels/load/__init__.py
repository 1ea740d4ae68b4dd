"""Converts the rows of a KvScan answer to columns, in compiled code.

In: the bytes of a KvScan answer. Out: columns of keys and values. Read `pairs.py`.
"""

from tidemill.kernels.load.pairs import BadAnswer, Pairs, locate_pairs

__all__ = ["BadAnswer", "Pairs", "locate_pairs"]

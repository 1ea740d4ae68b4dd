"""Rows of the change log → CSV lines, on the kernels of `templates`."""

from tidemill.kernels.csv.encoder import CsvRowEncoder

__all__ = ["CsvRowEncoder"]

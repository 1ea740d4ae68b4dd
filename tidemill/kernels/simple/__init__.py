"""Rows of the change log → simple protocol (JSON), on the kernels of `templates`."""

from tidemill.kernels.simple.encoder import SimpleRowEncoder

__all__ = ["SimpleRowEncoder"]

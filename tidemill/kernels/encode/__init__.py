"""Rows of the change log → messages, in compiled code driven by a program for each table version."""

from tidemill.kernels.encode.identity import KeyHash, UniqueChange
from tidemill.kernels.encode.mount import MountEncoder
from tidemill.kernels.encode.open import OpenRowEncoder
from tidemill.kernels.encode.program import TableProgram

__all__ = ["KeyHash", "MountEncoder", "OpenRowEncoder", "TableProgram", "UniqueChange"]

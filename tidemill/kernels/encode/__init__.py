"""Rows of the change log → messages, in compiled code driven by a program for each table version."""

from tidemill.kernels.open.encoder import OpenRowEncoder
from tidemill.kernels.routing.identity import KeyHash, UniqueChange
from tidemill.kernels.rows.mount import MountEncoder
from tidemill.kernels.rows.program import TableProgram

__all__ = ["KeyHash", "MountEncoder", "OpenRowEncoder", "TableProgram", "UniqueChange"]

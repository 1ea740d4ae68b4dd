"""Rows of the change log → Avro messages. The compiled code runs a program for each table version.

In: ROW records and a program for each table version. Out: MESSAGE records. Read `program.py`, then `rows.py`.
"""

from tidemill.kernels.avro.encoder import AvroRowEncoder
from tidemill.kernels.avro.program import AvroProgram

__all__ = ["AvroProgram", "AvroRowEncoder"]

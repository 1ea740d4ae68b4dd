"""Rows of the change log → Debezium's messages in Avro. The compiled code runs a program for each table version, once for each image.

In: ROW records and a program for each table version. Out: MESSAGE records with keys. Read `program.py`, then `rows.py`. Values that plain
Avro has too are written by `kernels.avro`.
"""

from tidemill.kernels.debezium_avro.encoder import DebeziumAvroRowEncoder

__all__ = ["DebeziumAvroRowEncoder"]

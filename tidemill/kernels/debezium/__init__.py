"""Rows of the change log → Debezium's JSON, on the kernels of `templates`.

In: ROW records. Out: MESSAGE records with keys. Read `program.py` first.
"""

from tidemill.kernels.debezium.encoder import DebeziumRowEncoder

__all__ = ["DebeziumRowEncoder"]

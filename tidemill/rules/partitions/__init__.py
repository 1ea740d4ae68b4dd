"""Which partition a row lies in.

In: PARTITION BY as a DDL or a table's description has it, and rows as cells or as typed Arrow columns. Out: the name of a row's partition,
or which rows lie in some partitions. Pure. Read `locator.py`, then `rows.py`.
"""

from tidemill.rules.partitions.locator import Definition, Locator, Method, Partitioning
from tidemill.rules.partitions.rows import PartitionRows

__all__ = ["Definition", "Locator", "Method", "PartitionRows", "Partitioning"]

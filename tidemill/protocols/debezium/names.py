"""Names in schema blocks: those of Avro and of Debezium's topics, with what they may not hold replaced by an underscore."""

from __future__ import annotations

import re

_NOT_IN_A_NAME = re.compile("[^A-Za-z0-9_]")
_NOT_IN_A_TOPIC = re.compile("[^A-Za-z0-9_.]")


def sanitized(name: str) -> str:
    """Return a name of letters, digits and underscores. A digit at the beginning gets an underscore before it."""
    head = "_" if name[:1].isdigit() and name[:1].isascii() else ""
    return head + _NOT_IN_A_NAME.sub("_", name)


def record_name(cluster: str, schema: str, table: str) -> str:
    """Return the common part of the names of a table's records: `cluster.schema.table`. The table's part may have points."""
    return f"{sanitized(cluster)}.{sanitized(schema)}.{_NOT_IN_A_TOPIC.sub('_', table)}"

"""Canal's protobuf: entries, and the packets that carry them. Two forms of entries, the same wire format.

`encode.py` writes TiCDC's protocol `canal` for Kafka: one row an entry, up to 2048 entries a packet. `entries.py` writes what Canal's
own server gives to its clients: transactions with several rows an entry. `packets.py` has the conversation's packets, `decode.py` reads
Kafka messages, `parse.py` single entries. See TYPES.md for the columns. Read `codes.py`, then `encode.py`.

In: rows, DDLs; or bytes. Out: entries and packets; or events.
"""

from tidemill.protocols.canal.control import control_messages
from tidemill.protocols.canal.decode import decode
from tidemill.protocols.canal.encode import CanalTable, ddl_entry, packet
from tidemill.protocols.canal.events import Column, DdlMessage, Event, OtherEntry, RowEvent, RowKind, TransactionMark

__all__ = [
    "CanalTable",
    "Column",
    "DdlMessage",
    "Event",
    "OtherEntry",
    "RowEvent",
    "RowKind",
    "TransactionMark",
    "control_messages",
    "ddl_entry",
    "decode",
    "packet",
]

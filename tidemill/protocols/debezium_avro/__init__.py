"""Debezium's messages in Avro with a schema registry, as its MySQL connector with Confluent's converter writes them. See TYPES.md.

In: rows and table descriptions; or messages. Out: keys, values and schemas; or events. Read `schema.py` first, then `encode.py`.
What a value is comes from `protocols.debezium`, its bytes from `protocols.avro`.
"""

from tidemill.protocols.debezium_avro.control import control_messages
from tidemill.protocols.debezium_avro.encode import DebeziumAvroTable
from tidemill.protocols.debezium_avro.schema import schemas_of, table_schemas

__all__ = ["DebeziumAvroTable", "control_messages", "schemas_of", "table_schemas"]

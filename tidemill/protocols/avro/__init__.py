"""Avro in Confluent's wire format: key and value records, their schemas in a registry. See TYPES.md for the columns.

In: rows and table descriptions. Out: keys, values and schemas. Read `schema.py`, then `encode.py`.
"""

from tidemill.protocols.avro.control import control_messages
from tidemill.protocols.avro.schema import AvroSchemas, Side, schemas_of, subject, table_schemas

__all__ = ["AvroSchemas", "Side", "control_messages", "schemas_of", "subject", "table_schemas"]

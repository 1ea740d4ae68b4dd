"""Avro in Confluent's wire format: key and value records, their schemas in a registry. See TYPES.md for the columns."""

from tidemill.protocols.avro.schema import AvroSchemas, Side, schemas_of, subject, table_schemas
from tidemill.protocols.avro.words import words

__all__ = ["AvroSchemas", "Side", "schemas_of", "subject", "table_schemas", "words"]

"""A batch as Arrow: the events of its entries, without a Python object for each row. Apart from the client: it loads the kernels."""

from __future__ import annotations

import pyarrow as pa

from tidemill.canal.client.batches import Batch
from tidemill.kernels.decode.canal_columns import decode_array


def to_arrow(batch: Batch, schema: pa.StructType | None = None, *, table: tuple[str, str] | None = None) -> pa.StructArray:
    """The events of a batch as an array of structs, in order. See `protocols.canal.arrow.event_type` for the members.

    Without `schema` images are maps from names to values that describe themselves, with one they are structs of its columns: give `table`
    (schema, name) then, so that rows of other tables are left out. Raises MalformedMessage naming the entry, ValueError for a schema with
    types that columns cannot have.
    """
    return decode_array(pa.array(batch.raw, pa.binary()), schema, table=table, entries=True).flatten()

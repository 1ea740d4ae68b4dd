"""The storage sink's control messages. A DDL is JSON with schema files by path. The checkpoint file replaces resolved messages."""

from __future__ import annotations

import json

from tidemill.config.uri import SinkUri
from tidemill.protocols.common.messages import KeyValue
from tidemill.sinks.storage import tables
from tidemill.sinks.storage.paths import check_names
from tidemill.tidb.schema.events import DdlEvent


class StorageControl:
    """See `protocols.common.messages.ControlMessages`."""

    ddl_on_first_partition = True

    def __init__(self, uri: SinkUri) -> None:
        assert uri.storage is not None
        self._table_ids, self._column_ids = uri.storage.use_table_id_as_path, uri.storage.output_column_id

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        """Return the schema files, or None for a schema's DDL where paths are table ids."""
        files = {}
        for definition in tables.of_ddl(event, column_ids=self._column_ids):
            path = definition.path
            if not self._table_ids:
                check_names(definition.schema, definition.table)
            else:
                if not definition.table:
                    continue
                path = f"{event.table_id}/meta/{tables.file_name(definition.version, definition.checksum)}"
            files[path] = definition.text().decode()
        return (b"", json.dumps(files).encode()) if files else None

    def resolved_message(self, ts: int) -> KeyValue | None:
        """None."""
        return None

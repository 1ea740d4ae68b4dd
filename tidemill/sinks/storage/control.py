"""The schema files of a DDL."""

from __future__ import annotations

from tidemill.config.storage import StorageOptions
from tidemill.sinks.storage import tables
from tidemill.sinks.storage.paths import check_names
from tidemill.tidb.schema.events import DdlEvent


def schema_files(event: DdlEvent, options: StorageOptions) -> dict[str, bytes]:
    """Return the schema files of a DDL by path; none for a schema's DDL where paths are table ids. Raises SinkError for a name that no
    path may have."""
    files = {}
    for definition in tables.of_ddl(event, column_ids=options.output_column_id):
        path = definition.path
        if not options.use_table_id_as_path:
            check_names(definition.schema, definition.table)
        else:
            if not definition.table:
                continue
            path = f"{event.table_id}/meta/{tables.file_name(definition.version, definition.checksum)}"
        files[path] = definition.text()
    return files

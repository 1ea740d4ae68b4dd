"""The settings that a pack of tables needs."""

from __future__ import annotations

from collections.abc import Set
from datetime import UTC

from tidemill.delivery.inputs.table_pack import Output, PackedTable
from tidemill.protocols.options import EncodingOptions
from tidemill.rules.dispatch import DispatchRule
from tidemill.tidb.schema.tracking.history import TableVersion

OUTPUT = Output(EncodingOptions(max_message_bytes=1 << 20), UTC)


def choose(version: TableVersion) -> PackedTable | None:
    return PackedTable(version, "topic", DispatchRule()) if version.info.has_usable_key and version.schema != "mysql" else None


def count(topics: Set[str]) -> dict[str, int]:
    return dict.fromkeys(topics, 3)

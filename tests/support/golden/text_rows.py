"""Golden rows through the encoders of the text protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tests.support.golden import ticdc
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.common.messages import Message


def golden_records(row_ids: Iterable[int]) -> tuple[list[TableProgram], list[RawRecord]]:
    """The raw changes of golden rows, and programs of their tables; each zone's tables are programs of their own."""
    programs: list[TableProgram] = []
    index: dict[object, int] = {}
    records = []
    for row_id in row_ids:
        row = ticdc.rows()[row_id]
        at = (row.version.info.id, row.version.version, row.zone)
        if at not in index:
            index[at] = len(programs)
            programs.append(TableProgram(row.version.schema, row.version.table, row.version.info, ticdc.zone_of(row.zone)))
        records.append(row.record._replace(table=index[at]))
    return programs, records


def encode_all(encoder: Any, records: Sequence[RawRecord]) -> list[Message]:
    """Messages of records that all have one target."""
    rows, _keep = row_array(records)
    messages: list[Message] = encoder.encode(rows, np.array([0, len(rows)], np.int32)).to_list()
    return messages


def outcome(work: Callable[[], Any], *errors: type[Exception]) -> Any:
    """What the work gives, or its error. No other error may come."""
    try:
        return work()
    except errors as error:
        return error

"""The kernel gives TiCDC's Avro messages for every row of the golden vectors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.golden import avro, ticdc
from tidemill.kernels.avro import AvroRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import row_array


@pytest.mark.parametrize("config", sorted(avro.expected()))
def test_kernel_writes_ticdcs_bytes(config: str) -> None:
    wanted = [want for want in avro.expected()[config] if want.error is None]
    programs: list[TableProgram] = []
    ids: list[tuple[int, int]] = []
    index: dict[object, int] = {}
    records = []
    for want in wanted:
        version, zone = want.row.version, want.row.zone
        at = index.setdefault((version.info.id, version.version, zone), len(programs))
        if at == len(programs):
            programs.append(TableProgram(version.schema, version.table, version.info, ticdc.zone_of(zone)))
            ids.append((want.key_id, want.value_id or 0))
        ids[at] = want.key_id, want.value_id or ids[at][1]
        records.append(want.row.record._replace(table=at))
    encoder = AvroRowEncoder(programs, avro.configs()[config], ids)
    rows, _keep = row_array(records)
    messages = encoder.encode(rows, np.array([0, len(rows)], np.int32)).to_list()
    assert not [w.row.id for w, m in zip(wanted, messages, strict=True) if (m.key, m.value) != (w.key, w.value)]
    assert [m.commit_ts for m in messages] == [w.row.record.commit_ts for w in wanted]
    assert all(m.rows == 1 for m in messages)
    assert encoder.slow_rows == 0

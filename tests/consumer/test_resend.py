"""What a consumer reads, sent again as messages: the same events, in the same or in another protocol, and again after a crash."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.consumer.streams import ddl, row
from tests.support.golden.ticdc_topics import sent
from tidemill.consumer.order.progress import PartitionProgress, Progress
from tidemill.consumer.targets import open_target
from tidemill.demo.delivered import from_jsonl
from tidemill.errors import ConfigError
from tidemill.protocols import canal_json
from tidemill.protocols.open import ResolvedMessage, decode
from tidemill.protocols.open.codes import ColumnFlag, ColumnType
from tidemill.protocols.open.events import Column, DdlMessage, Event, RowEvent

TABLES = {"ints", "floats", "decs", "strs", "enums", "bits", "jsons", "vecs", "uk_nn", "prange", "shapes", "pk_comp", "becomes_eligible"}


def resent(folder: Path, protocol: str) -> tuple[list[Event], Path]:
    """Golden messages of some tables through a target; the events that went in, and the file."""
    file = folder / "again.jsonl"
    target = open_target(f"messages://{file}?protocol={protocol}")
    messages = [m for m in sent() if m.table in TABLES]
    gone: list[Event] = []
    for (_, is_ddl), group in groupby(messages, key=lambda m: (m.ts, m.is_ddl)):
        events = [event for m in group for event in decode(m.key, m.value)]
        gone += events
        if is_ddl:
            for event in events:
                target.ddl(event)  # type: ignore[arg-type]
        else:
            target.rows(events)  # type: ignore[arg-type]
    target.commit(Progress(messages[-1].ts))
    target.close()
    return gone, file


def test_open_protocol_again(tmp_path: Path) -> None:
    gone, file = resent(tmp_path, "open-protocol&partition-num=2")
    come = [(m.partition, event) for m in from_jsonl(file) for event in decode(m.key or b"", m.value)]
    for partition in (0, 1):
        assert Counter(e for p, e in come if p == partition and isinstance(e, DdlMessage)) == Counter(
            e for e in gone if isinstance(e, DdlMessage)
        )
        resolved = [e.ts for p, e in come if p == partition and isinstance(e, ResolvedMessage)]
        assert resolved == sorted(resolved)
        assert resolved[-1] == gone[-1].ts
    rows = [e for _, e in come if not isinstance(e, DdlMessage | ResolvedMessage)]
    assert Counter(rows) == Counter(e for e in gone if not isinstance(e, DdlMessage))
    assert len(rows) > 200


def test_canal_json_out_of_open_protocol(tmp_path: Path) -> None:
    gone, file = resent(tmp_path, "canal-json&enable-tidb-extension=true")
    come = [event for m in from_jsonl(file) for event in canal_json.decode(m.value or b"")]
    assert len([e for e in come if isinstance(e, canal_json.RowEvent)]) == len([e for e in gone if not isinstance(e, DdlMessage)])
    assert [e.query for e in come if isinstance(e, canal_json.DdlMessage)] == [e.query for e in gone if isinstance(e, DdlMessage)]
    values = {(e.commit_ts, e.table, c.name): c.value for e in come if isinstance(e, canal_json.RowEvent) for c in e.after}
    assert values[next(e.ts for e in gone if e.table == "ints" and not isinstance(e, DdlMessage)), "ints", "id"] is not None


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_documents_are_printed_again_as_they_came(tmp_path: Path, protocol: str) -> None:
    """Rows of one batch, before and after the upstream was upgraded to a version that prints doubles in another way."""
    texts = ["[1, -0, 1e+21]", "[1.0, -0.0, 1e21]", '{"a": 5}', '{"\\u0008": 1e-15}', '{"\\b": 0.000000000000001}', "1e-7", "0.0000001"]
    target = open_target(f"messages://{tmp_path}/again.jsonl?protocol={protocol}&enable-tidb-extension=true")
    flags = ColumnFlag.BINARY | ColumnFlag.NULLABLE
    target.rows([
        dataclasses.replace(event, after=(*event.after, Column("j", ColumnType.JSON, flags, False, text)))
        for event, text in ((row(5 + i, i, None, i), text) for i, text in enumerate(texts))
    ])  # fmt: skip
    target.commit(Progress(100))
    target.close()
    messages = from_jsonl(tmp_path / "again.jsonl")
    if protocol == "canal-json":
        come = [e.after for m in messages for e in canal_json.decode(m.value or b"") if isinstance(e, canal_json.RowEvent)]
    else:
        come = [e.after for m in messages for e in decode(m.key or b"", m.value) if isinstance(e, RowEvent)]
    assert [next(c.value for c in columns if c.name == "j") for columns in come] == texts


def test_progress_is_in_the_state_file_and_what_was_not_kept_is_sent_again(tmp_path: Path) -> None:
    uri, state = f"messages://{tmp_path}/out.jsonl?protocol=open-protocol", tmp_path / "state"
    first = open_target(uri, state=state)
    first.rows([row(5, 1, None, 1)])
    progress = Progress(7, {("t", 0): PartitionProgress(3, 7)}, "cluster")
    first.commit(progress)
    first.rows([row(8, 1, 1, 2)])
    first.ddl(ddl(9, "ALTER"))
    first.rows([row(10, 1, 2, 3)])  # sends what stands before it; the crash comes before the commit
    first.close()
    second = open_target(uri, state=state)
    assert second.progress() == progress
    second.rows([row(8, 1, 1, 2)])
    second.ddl(ddl(9, "ALTER"))
    second.rows([row(10, 1, 2, 3)])
    second.commit(Progress(12))
    second.close()
    stamps = [e.ts for m in from_jsonl(tmp_path / "out.jsonl") for e in decode(m.key or b"", m.value)]
    assert stamps == [5, 7, 8, 9, 9, 8, 9, 9, 10, 12]
    assert json.loads(state.read_text().splitlines()[0])["flushed_ts"] == 12


def test_what_cannot_be_made_of_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="protocol"):
        open_target(f"messages://{tmp_path}/x.jsonl?protocol=avro&schema-registry=http://127.0.0.1:1")
    for protocol in ("csv", "canal-json"):
        with pytest.raises(ConfigError, match="cannot be made of events"):
            open_target(f"file://{tmp_path}/folder?protocol={protocol}")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="no such sink"):
        open_target("oracle://root@127.0.0.1/")

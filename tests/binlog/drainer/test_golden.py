"""Every recorded binlog makes the message that the real Drainer wrote, but for what is told here."""

from __future__ import annotations

import asyncio
from datetime import UTC
from typing import Any

import pytest

from tests.support.binlog.drained import drained, recorded
from tidemill.binlog.outputs import pb, slave
from tidemill.wire import pb_binlog_pb2, slave_binlog_pb2

OTHERWISE = {"dml_after_exchange"}
"""The real Drainer dies of a row whose table has the id that a partition had before EXCHANGE PARTITION."""

FORMS = {"file": (pb.encode, pb_binlog_pb2.Binlog), "kafka": (slave.encode, slave_binlog_pb2.Binlog)}


def _plain(message: Any) -> Any:
    """Without the `;` that a DDL ends with: the real Drainer adds one to TiDB's own."""
    ddl = message.ddl_data if isinstance(message, slave_binlog_pb2.Binlog) else message
    if ddl.ddl_query:
        ddl.ddl_query = ddl.ddl_query.rstrip(b"; \n")
    return message


@pytest.mark.parametrize("form", FORMS)
def test_messages_are_those_of_the_real_drainer(form: str) -> None:
    encode, kind = FORMS[form]
    cases = [case for case in recorded() if case.outputs[form] is not None]
    entries = asyncio.run(drained(cases))
    wrong: dict[str, str] = {}
    for case in cases:
        want = [_plain(kind.FromString(value)) for value in case.outputs[form] or ()]
        stamps = {binlog.commit_ts for binlog in case.binlogs}
        got = [_plain(kind.FromString(encode(entries[ts], UTC))) for ts in sorted(stamps & entries.keys())]
        if want != got:
            wrong[case.name] = next((f"{one} ... {two}" for one, two in zip(want, got, strict=False) if one != two), f"{len(got)} messages")
    assert len(cases) > 100
    assert {name: text for name, text in wrong.items() if name not in OTHERWISE} == {}
    assert set(wrong) == OTHERWISE

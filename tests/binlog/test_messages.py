"""Messages and nodes of TiDB-Binlog against recorded ones, and against bytes that are none."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.binlog.binlogs import cases, lines
from tidemill.binlog.messages import Binlog, BinlogType, fake, join, read_binlog, read_head, read_prewritten
from tidemill.binlog.nodes import Node, NodeEvent, NodeKind, NodeState, next_state, read_node
from tidemill.binlog.pump.pulling import answer_of
from tidemill.errors import MalformedMessage


def test_recorded_binlogs_are_written_as_tidb_writes_them() -> None:
    payloads = [payload for case in cases() for payload in case.writes]
    assert len(payloads) > 700
    for payload in payloads:
        binlog = read_binlog(payload)
        assert binlog.encode() == payload
        if binlog.prewrite_value:
            assert read_prewritten(binlog.prewrite_value).encode() == binlog.prewrite_value


def test_a_commit_is_joined_as_the_real_pump_does() -> None:
    for case in cases():
        prewrites = {read_head(p).start_ts: p for p in case.writes if read_head(p).tp is BinlogType.PREWRITE}
        for payload in case.writes:
            head = read_head(payload)
            if head.tp is BinlogType.COMMIT and head.start_ts in prewrites and head.commit_ts in case.pulls:
                assert answer_of(join(payload, prewrites[head.start_ts]), head) == case.pulls[head.commit_ts], case.name


def test_a_rollback_and_a_fake_binlog() -> None:
    rolled_back = Binlog(BinlogType.ROLLBACK, 1, 0, b"k")
    assert rolled_back.encode() == bytes.fromhex("08021001180022016b38004000")
    assert not rolled_back.is_fake
    assert read_binlog(fake(5).encode()).is_fake


@pytest.mark.parametrize("payload", [b"\xff\xff\xff\xff", b"\x08", b"\x10\x01", b"\x08\x03\x10\x01", b"\x08\x09\x10\x01", b"\x08\x00", b""])
def test_what_is_no_binlog_is_refused(payload: bytes) -> None:
    for read in (read_binlog, read_head):
        with pytest.raises(MalformedMessage):
            read(payload)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_binlog_or_our_error(payload: bytes) -> None:
    for read in (read_binlog, read_prewritten):
        with suppress(MalformedMessage):
            read(payload)


def test_rows_that_do_not_fit_their_sequence_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="0 inserted rows, but 1 in their sequence"):
        read_prewritten(bytes.fromhex("0801120408013800"))


def test_recorded_nodes_are_written_as_the_real_programs_write_them() -> None:
    values = [change["value"].encode() for step in lines("node_states") for change in step["first_puts"] + step["state_changes"]]
    assert len(values) > 80
    for value in values:
        node = read_node(value)
        assert node.encode() == value


def test_a_node_with_labels_and_odd_letters_comes_back() -> None:
    node = Node("a<b", "h:1", NodeState.CLOSING, labels={"zone": "é"}, max_commit_ts=3, update_ts=4)
    assert b"a\\u003cb" in node.encode()
    assert read_node(node.encode()) == node
    assert NodeKind.PUMP.key("x") == "/tidb-binlog/v1/pumps/x"


@pytest.mark.parametrize("value", [b"", b"[]", b'{"nodeId":"a"}', b'{"nodeId":"a","host":"h","state":"gone"}', b"[" * 100_000])
def test_what_is_no_node_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_node(value)


def test_states_change_only_as_the_table_says() -> None:
    assert next_state(NodeState.PAUSED, NodeEvent.JOINED) is NodeState.ONLINE
    assert next_state(NodeState.ONLINE, NodeEvent.CLOSE) is NodeState.CLOSING
    assert next_state(NodeState.CLOSING, NodeEvent.FINISHED) is NodeState.OFFLINE
    assert next_state(NodeState.PAUSING, NodeEvent.FINISHED) is NodeState.PAUSED
    assert next_state(NodeState.OFFLINE, NodeEvent.PAUSE) is None
    assert next_state(NodeState.PAUSING, NodeEvent.CLOSE) is None

"""Messages under every option decode to what their rows hold: compressed, batched, handle keys only, claim checks; and broken ones."""

from __future__ import annotations

import dataclasses
import json
import random
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.golden import ticdc
from tests.support.golden.open_options import CONFIGS, encode, golden, message
from tests.support.rows.mutation import mutated
from tidemill.budget import Budget, Limits
from tidemill.errors import MalformedMessage
from tidemill.protocols.common.compression import Compression, compressor, expand, kind_of
from tidemill.protocols.open import DdlMessage, OpenMessageError, ResolvedMessage, RowEvent, control_messages, decode
from tidemill.protocols.open.codes import ColumnFlag
from tidemill.protocols.open.encode import framed
from tidemill.protocols.options import EncodingOptions, LargeMessage, LargeMessageOption
from tidemill.sinks.claim_check import ClaimCheckStorage
from tidemill.tidb.schema.events import DdlEvent

WHOLE = {m["id"]: m for m in ticdc.lines("open") if m["kind"] == "row"}


def whole(row_id: int) -> RowEvent:
    """The row as the default config sends it."""
    (event,) = decode(*message(WHOLE[row_id]))
    assert isinstance(event, RowEvent)
    return event


def handle(event: RowEvent) -> RowEvent:
    """A row with the columns of its handle key only."""
    keys = [tuple(c for c in columns if c.flags & ColumnFlag.HANDLE_KEY) for columns in (event.after, event.before)]
    return dataclasses.replace(event, after=keys[0], before=keys[1])


@pytest.mark.parametrize("config", ["lz4", "snappy"])
def test_compressed_values_of_ticdc(config: str) -> None:
    for line in golden()[config]:
        assert decode(*message(line)) == [whole(line["id"])]
    others = [line for line in ticdc.lines("open_options") if line["config"] == config and line["kind"] in ("ddl", "checkpoint")]
    kinds = {type(decode(*message(line))[0]) for line in others}
    assert kinds == {DdlMessage, ResolvedMessage}


def test_rows_with_fewer_columns() -> None:
    for line in golden()["handle-key-only"]:
        if "error" not in line:
            (event,) = decode(*message(line))
            assert isinstance(event, RowEvent)
            want = whole(line["id"])
            assert event == (dataclasses.replace(handle(want), only_handle_key=True) if event.only_handle_key else want)
    for line in golden()["delete-only-handle"]:
        if "error" not in line:
            assert decode(*message(line)) == [handle(whole(line["id"]))]
    for line in golden()["no-old-value"]:
        (event,) = decode(*message(line))
        assert isinstance(event, RowEvent)
        assert (event.after, event.before) == (whole(line["id"]).after, ())
    for line in golden()["only-updated"]:
        (event,) = decode(*message(line))
        assert isinstance(event, RowEvent)
        before = {c.name: c for c in whole(line["id"]).before}
        assert all(before[c.name] == c for c in event.before)


@pytest.mark.parametrize("kind", list(Compression))
def test_batches_with_claim_checks(tmp_path: Path, kind: Compression) -> None:
    large = LargeMessage(LargeMessageOption.CLAIM_CHECK, kind, f"file://{tmp_path}")
    ids = [line["id"] for line in golden()["handle-key-only"] if "error" not in line][:300]
    messages, _ = encode(ids, EncodingOptions(max_message_bytes=1200 if kind is Compression.NONE else 600, large_message=large))
    assert max(m.rows for m in messages) > 1
    fetch = ClaimCheckStorage(f"file://{tmp_path}").fetch
    short = [e for m in messages for e in decode(m.key, m.value)]
    full = [e for m in messages for e in decode(m.key, m.value, fetch=fetch)]
    kept = 0
    for row_id, part, event in zip(ids, short, full, strict=True):
        assert isinstance(part, RowEvent)
        assert isinstance(event, RowEvent)
        want = whole(row_id)
        kept += part.claim_check is not None
        assert dataclasses.replace(event, claim_check=None) == want
        assert event.claim_check == part.claim_check
        assert dataclasses.replace(part, claim_check=None) == (handle(want) if part.claim_check else want)
    assert kept > 0


def test_claim_checks_that_are_gone_or_wrong(tmp_path: Path) -> None:
    large = LargeMessage(LargeMessageOption.CLAIM_CHECK, claim_check_storage_uri=f"file://{tmp_path}")
    ids = [line["id"] for line in golden()["handle-key-only"] if "error" not in line and b"ohk" in message(line)[0]][:2]
    first, second = encode(ids, EncodingOptions(max_message_bytes=600, max_batch_size=1, large_message=large))[0]
    storage = ClaimCheckStorage(f"file://{tmp_path}")
    files = {m.key: Path(decode(m.key, m.value)[0].claim_check.removeprefix("file://")) for m in (first, second)}  # type: ignore[union-attr]
    data = files[second.key].read_bytes()
    for broken in (data[:-1], b"", b"[]", b"{}", b'{"key":1,"value":2}', b'{"key":"!","value":""}', b"[" * 100_000):
        files[first.key].write_bytes(broken)
        with pytest.raises(MalformedMessage):
            decode(first.key, first.value, fetch=storage.fetch)
    files[first.key].write_bytes(data)
    with pytest.raises(OpenMessageError, match="holds another row"):
        decode(first.key, first.value, fetch=storage.fetch)
    files[first.key].unlink()
    with pytest.raises(MalformedMessage, match="there is no claim-check file"):
        decode(first.key, first.value, fetch=storage.fetch)


def test_a_location_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "checks").mkdir()
    storage = ClaimCheckStorage(f"file://{tmp_path}/checks")
    for location in ("../secret", f"file://{tmp_path}/secret", "..", "", "s3://x/..", "."):
        with pytest.raises(MalformedMessage):
            storage.fetch(location)


@pytest.mark.parametrize("kind", list(Compression))
def test_ddls_are_compressed_and_resolved_events_are_not(kind: Compression) -> None:
    said = control_messages(EncodingOptions(large_message=LargeMessage(compression=kind)))
    event = DdlEvent(5, 0, 1, 1, 0, 3, "s", "t", "", "", 1, "CREATE TABLE `t` (`id` INT)", "", True)
    key, value = said.ddl_message(event) or (b"", b"")
    assert decode(key, value) == [DdlMessage(5, "s", "t", event.query, 3)]
    assert kind_of((value or b"")[8:]) is kind
    assert said.resolved_message(7) == (framed(b'{"ts":7,"t":3}', b"")[0], bytes(8))


# ---- bytes that are not messages


def test_errors_inside_of_compressed_values_say_so() -> None:
    key = b'{"ts":1,"scm":"s","tbl":"t","t":1}'
    for kind in (Compression.LZ4, Compression.SNAPPY):
        compress = compressor(kind)
        assert compress is not None
        with pytest.raises(OpenMessageError, match=r"message value, byte 8: in the expanded text, byte 15: it is not JSON") as caught:
            decode(*framed(key, compress(b'{"u":{"a":{}}} ' + b"x")))
        assert caught.value.offset == 8


@pytest.mark.parametrize("kind", [Compression.LZ4, Compression.SNAPPY])
def test_a_small_message_cannot_take_much_memory(kind: Compression) -> None:
    compress = compressor(kind)
    assert compress is not None
    bomb = compress(b'{"u":"' + b" " * 300_000_000)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    with pytest.raises(OpenMessageError, match="limit"):
        decode(*framed(b'{"ts":1,"scm":"s","tbl":"t","t":1}', bomb), budget=Budget(Limits(bytes_out=1 << 20)))
    assert tracemalloc.get_traced_memory()[1] < 40 << 20
    assert pa.total_allocated_bytes() - before < 40 << 20
    tracemalloc.stop()


def test_a_snappy_block_that_promises_too_much() -> None:
    for size in (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x7f", b"\xff\xff\xff\x7f", b"\x80" * 20):
        with pytest.raises(ValueError, match="Snappy"):
            expand(size + b"\x00a")


def refusal(key: bytes, value: bytes) -> OpenMessageError | None:
    """The decoder's error, or None; no other one may come."""
    try:
        decode(key, value, budget=Budget(Limits(bytes_out=1 << 20)))
    except OpenMessageError as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(4))
def test_broken_messages_are_refused_or_read(seed: int) -> None:
    rng = random.Random(seed)
    lines = [line for config in CONFIGS for line in golden()[config] if "error" not in line]
    refused = 0
    for _ in range(1500):
        key, value = message(rng.choice(lines))
        if rng.random() < 0.5:
            key = mutated(rng, key)
        if rng.random() < 0.8:
            value = mutated(rng, value)
        error = refusal(key, value)
        if error is not None:
            assert error.part in ("key", "value")
            assert 0 <= error.offset <= len(key if error.part == "key" else value)
            refused += 1
    assert refused > 700


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_values_of_any_bytes(data: bytes) -> None:
    """Behind a good key and a good length: read or refused, whatever it looks like."""
    key = b'{"ts":1,"scm":"s","tbl":"t","t":1}'
    for value in (data, b"\x04\x22\x4d\x18" + data, b'{"u":' + data):
        refusal(*framed(key, value))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["u", "p", "d", "a", "t", "f", "h", "v", "q"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(json_values, json_values)
def test_json_of_any_shape(key: object, value: object) -> None:
    head = {"ts": 1, "scm": "s", "tbl": "t", "t": 1} | (key if isinstance(key, dict) else {})
    refusal(*framed(json.dumps(head).encode(), json.dumps(value).encode()))

"""Rows that are left out by name, and topics that take messages of different sizes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Set
from datetime import UTC
from pathlib import Path

import pytest

from tests.support.delivery.feeds import Delivered, World, expected
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.errors import ConfigError, MessageTooLarge, SinkError
from tidemill.protocols.open.batch import event_size
from tidemill.rules.skip import SkipRow, parse_skip_rows, with_way_out
from tidemill.sinks.messages import MessagesDriverSink


def settings(path: Path, more: str = "", toml: str = "", skip: tuple[SkipRow, ...] = ()) -> Settings:
    config = parse_config(toml)
    return Settings("test", config.sink_uri(f"messages://{path}?protocol=open-protocol{more}"), config, UTC, skip)


def test_the_form_of_a_rule() -> None:
    rules = parse_skip_rows(["a.b:7480@12", " a.b.c:d:AB@13 ", "a.b:7480@12"])
    assert rules == (SkipRow("a.b", b"\x74\x80", 12), SkipRow("a.b.c:d", b"\xab", 13))
    assert [str(rule) for rule in rules] == ["a.b:7480@12", "a.b.c:d:ab@13"]
    for wrong in ("a:7480@12", "a.b:748@12", "a.b:@12", "a.b:7480", "a.b:xyz1@12", ""):
        with pytest.raises(ConfigError, match=r"DATABASE\.TABLE:KEY@COMMIT_TS"):
            parse_skip_rows([wrong])


def test_only_errors_about_a_row_tell_a_way_out() -> None:
    assert with_way_out(SinkError("broken")).hint == ""
    told = with_way_out(MessageTooLarge("a row of a.b takes 9 bytes, limit 8: key 74ff, start_ts 1, commit_ts 2", hint="raise it"))
    assert told.hint == "raise it; --skip-row 'a.b:74ff@2' goes on without this row"


def test_a_row_that_is_too_large_is_named_and_can_be_left_out(tmp_path: Path) -> None:
    """Row by row: the error says what to add, until everything goes through; nothing else is missing then."""
    world = World.make(seed=5, transactions=40)
    log = world.log(tmp_path / "log")
    replay(log, settings(tmp_path / "all", "&max-batch-size=1"))
    messages = [json.loads(line) for line in (tmp_path / "all").read_text().splitlines()]
    framed = [(base64.b64decode(m["key"]), base64.b64decode(m["value"])) for m in messages]
    limit = sorted(event_size(key[16:], value[8:]) for key, value in framed)[-4] - 1  # some rows do not fit
    skip: tuple[SkipRow, ...] = ()
    while True:
        try:
            summary = replay(log, settings(tmp_path / "out", f"&max-batch-size=1&max-message-bytes={limit}", skip=skip))
            break
        except MessageTooLarge as error:
            found = re.search(r"--skip-row '(\S+)' goes on", str(error))
            assert found is not None
            assert len(skip) < 60
            skip = (*skip, *parse_skip_rows([found[1]]))
    assert skip
    assert summary.skipped_rows >= len(skip)
    dropped = {rule.commit_ts for rule in skip}
    want = expected(world, "default", 1)[0]
    got = Delivered.read(tmp_path / "out").events[0]
    for table, events in want.items():
        lost = [event for event in events if event not in got.get(table, [])]
        assert len(events) - len(got.get(table, [])) == len(lost)
        assert {json.loads(key)["ts"] for key, _ in lost} <= dropped
    assert sum(map(len, want.values())) - sum(map(len, got.values())) == summary.skipped_rows


def test_each_topic_has_its_own_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches of a topic with a low limit are smaller, the others' are not; a row is held against its own topic's limit."""
    toml = '[[sink.dispatchers]]\nmatcher = ["app.t1"]\ntopic = "small"\n'
    log = World.make(seed=6).log(tmp_path / "log")
    limits = {"small": 700, "tidemill": 100_000}

    def of(self: MessagesDriverSink, topics: Set[str]) -> Mapping[str, int]:
        return {topic: limits[topic] for topic in topics}

    monkeypatch.setattr(MessagesDriverSink, "message_limits", of)
    replay(log, settings(tmp_path / "out", toml=toml))
    sizes: dict[str, list[int]] = {"small": [], "tidemill": []}
    for line in (tmp_path / "out").read_text().splitlines():
        message = json.loads(line)
        sizes[message["topic"]].append(sum(len(base64.b64decode(message[part])) for part in ("key", "value")))
    assert max(sizes["small"]) <= 700 < max(sizes["tidemill"])
    want, got = expected(World.make(seed=6), "default", 1)[0], Delivered.read(tmp_path / "out").events
    assert {t: e for tables in got.values() for t, e in tables.items()} == want
    limits["small"] = 100
    with pytest.raises(MessageTooLarge, match=r"a row of app.t1 .* max-message-bytes is 100: key \w+, start_ts \d+, commit_ts \d+"):
        replay(log, settings(tmp_path / "out", toml=toml))

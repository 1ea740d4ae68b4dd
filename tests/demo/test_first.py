"""What the demo shows first: each statement with its own message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tidemill.demo.delivered import Delivered
from tidemill.demo.first import STATEMENTS, changes
from tidemill.demo.session import DemoFailed
from tidemill.protocols.open.encode import framed, resolved_message

PARTITIONS = 3


def framed_message(partition: int, head: dict[str, object], body: dict[str, object]) -> Delivered:
    return Delivered("topic", partition, *framed(json.dumps(head).encode(), json.dumps(body).encode()))


class World:
    """An upstream and its delivery: each statement's messages are there when the sink is read the second time."""

    output = "run.log"

    def __init__(self) -> None:
        self.ts = 10
        self.messages = [framed_message(0, {"ts": 5, "scm": "shop", "tbl": "users", "t": 1}, {"d": {}})]
        self.coming: list[Delivered] = []
        self.checked = self.waited = 0
        self.ended = False

    def call(self, command: str, *, text: str) -> dict[str, Any]:
        assert command == "sql"
        self.ts += 10
        head = {"ts": self.ts, "scm": "shop", "tbl": "notes"}
        if text.startswith("CREATE"):
            self.coming = [framed_message(p, {**head, "t": 2}, {"q": text, "t": 3}) for p in range(PARTITIONS)]
        else:
            column = {"t": 3, "h": True, "f": 11, "v": len(text)}
            self.coming = [framed_message(1, {**head, "t": 1}, {"u": {"id": column}})]
        self.coming.append(Delivered("topic", 1, *resolved_message(self.ts)))
        return {}

    def read(self) -> Iterator[Delivered]:
        yield from list(self.messages)
        if self.coming:
            self.messages.append(self.coming.pop(0))

    def check(self) -> None:
        self.checked += 1
        if self.ended:
            raise DemoFailed("tidemill run ended")

    def wait_until(self, ts: int) -> None:
        assert ts == self.ts
        self.waited += 1
        self.messages += self.coming
        self.coming = []


def test_each_statement_comes_with_its_message() -> None:
    world: Any = World()
    found = list(changes(world, world, world.read))
    assert [one.sql for one in found] == list(STATEMENTS)
    assert json.loads(found[0].value)["q"] == STATEMENTS[0]
    assert [json.loads(one.value)["u"]["id"]["v"] for one in found[1:]] == [len(sql) for sql in STATEMENTS[1:]]
    assert [one.partitions for one in found] == [PARTITIONS, 1, 1, 1]
    assert all(json.loads(one.key)["tbl"] == "notes" for one in found)
    assert world.waited == 1  # for the DDL, which each partition gets
    assert world.checked >= len(STATEMENTS)


def test_a_run_that_ends_is_told() -> None:
    world: Any = World()
    world.ended = True
    with pytest.raises(DemoFailed, match="run ended"):
        list(changes(world, world, world.read))

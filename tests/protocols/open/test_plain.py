"""The quick way through most messages gives what the rule gives, for TiCDC's messages, for broken ones, and where it cannot count."""

from __future__ import annotations

import importlib
import random
from typing import Any

import pytest

from tests.support.golden import ticdc
from tests.support.golden.open_options import message
from tests.support.rows.mutation import mutated
from tidemill.errors import MalformedMessage
from tidemill.protocols.open.encode import framed

module: Any = importlib.import_module("tidemill.protocols.open.decode")
HEAD = b'{"ts":5,"scm":"d","tbl":"t","t":1}'


def outcome(key: bytes | None, value: bytes | None) -> str:
    try:
        return repr(module.decode(key, value))
    except MalformedMessage as error:
        return f"{type(error).__name__}: {error}"


@pytest.fixture
def by_rule(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the rule alone makes of a message."""

    def call(key: bytes | None, value: bytes | None) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(module, "_plain_object", lambda data, text: None)
            patch.setattr(module, "_plain_column", lambda name, column: None)
            return outcome(key, value)

    return call


def test_golden_messages_and_broken_ones(by_rule: Any) -> None:
    rng = random.Random(3)
    lines = [line for line in ticdc.lines("open") if line["kind"] != "config"]
    quick = 0
    for line in lines[::2]:
        key, value = message(line)
        assert outcome(key, value) == by_rule(key, value)
        body = (value or b"")[8:]
        quick += module._plain_object(body, body.decode()) is not None if line["kind"] == "row" else 0
        for _ in range(2):
            other = (mutated(rng, key), value) if rng.random() < 0.3 else (key, mutated(rng, value or b""))
            assert outcome(*other) == by_rule(*other)
    assert quick > 0.8 * len([line for line in lines[::2] if line["kind"] == "row"])


@pytest.mark.parametrize(
    "column",
    [
        b'"a":{"t":3,"f":0,"v":1},"a":{"t":3,"f":0,"v":2}',
        b'"a":{"t":3,"f":0,"v":1},"a" :{"t":3,"f":0,"v":2}',
        b'"a":{"t":3,"f":0,"v":1,"v":2}',
        b'"a":{"t":3,"f":0,"v":1},"b":{"t" : 3,"f":0,"v":2}',
        b'"a\\\\":{"t":3,"f":0,"v":1},"a\\\\":{"t":3,"f":0,"v":2}',
        b'"a\\\\":{"t":15,"f":0,"v":"x\\":"},"b":{"t":3,"f":0,"v":2}',
        b'"a":{"t":245,"f":1,"v":"{\\"k\\": -0, \\"k\\":1}"}',
        b'"a":{"t":3,"f":0,"v":-0}',
        b'"a":{"t":5,"f":0,"v":-0}',
        b'"a":{"t":5,"f":0,"v":-0.0}',
        b'"a":{"t":77,"f":0,"v":1234567890123456789012}',
        b'"a":{"t":3,"f":0,"v":1,"x":1234567890123456789012}',
        b'"a":{"t":3,"f":0,"v":1,"x":[{"y":1,"y":2}]}',
        b'"a":{"t":3,"f":0,"v":NaN}',
        b'"a":{"t":3,"f":-1,"v":1}',
        b'"a":{"t":3,"f":4294967296,"v":1}',
        b'"a":{"t":true,"f":0,"v":1}',
        b'"a":{"t":3,"f":0,"v":true}',
        b'"a":{"t":3,"f":0,"v":18446744073709551616}',
        b'"a":{"t":15,"f":1,"v":"\\\\x00\\\\q"}',
        b'"a":{"t":15,"f":0,"v":"\\ud800"}',
        b'"a":{"t":3,"f":0}',
        b'"a":{"t":3,"f":0,"h":1,"v":1}',
        b'"a":{"t":3,"v":1}',
        b'"a":7',
    ],
)
def test_what_cannot_be_counted_or_is_wrong(by_rule: Any, column: bytes) -> None:
    key, value = framed(HEAD, b'{"u":{' + column + b"}}")
    assert outcome(key, value) == by_rule(key, value)

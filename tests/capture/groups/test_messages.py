"""What the coordinator and its groups tell each other."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.capture.groups.credentials import Credentials
from tidemill.capture.groups.messages import (
    Assignment,
    Challenge,
    Ended,
    Head,
    Hello,
    Message,
    Refused,
    Report,
    Stop,
    decode,
    encode,
    is_proof,
    proof,
)
from tidemill.capture.status import Section
from tidemill.errors import MalformedMessage

EXAMPLES: list[Message] = [
    Challenge("a"),
    Hello(1, 2, 3, "host", -1, "b", "c"),
    Assignment((1, 2), "7", {"pd": ["h:1"]}, 5, 4, "proof"),
    Refused("another attempt\nhas it"),
    Head(10, 5),
    Stop(),
    Report({"heads": {"1": 2}}),
    Ended("TM:ErrLog", "what", True),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_a_message_is_one_line_and_reads_back(message: Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\n", b"{}", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"is":"nobody"}', b'{"is":["stop"]}', b'{"is":"head","ts":1}',
        b'{"is":"head","ts":true,"last_to":1}', b'{"is":"head","ts":"1","last_to":1}',
        b'{"is":"report","section":[]}',
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(line)


def test_messages_of_another_version_are_understood() -> None:
    """During an upgrade: unknown fields are ignored, and missing fields with a default are allowed."""
    assert decode(b'{"is":"stop","more":1}') == Stop()
    assert decode(b'{"is":"head","ts":5,"last_to":4,"checksum":"x"}') == Head(5, 4)
    assert decode(b'{"is":"ended","code":"TM:ErrLog"}') == Ended("TM:ErrLog")
    told = asdict(Section({1: 5}, rows=3)) | {"heads": {"1": 5}, "of_the_future": {"a": 1}}
    del told["spilled_rows"], told["memory_bytes"]
    assert Section.from_dict(told) == Section({1: 5}, rows=3)
    assert Section.from_dict({}) == Section()


@given(st.binary())
def test_no_bytes_do_more_than_be_refused(line: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(line)


def test_a_proof_is_of_the_token_the_role_and_each_part() -> None:
    shown = proof("token", "group", "n1", "n2", 3, 4)
    assert is_proof(shown, "token", "group", "n1", "n2", 3, 4)
    others: list[tuple[Any, ...]] = [
        ("other", "group", "n1", "n2", 3, 4),
        ("token", "coordinator", "n1", "n2", 3, 4),
        ("token", "group", "n1n2", "", 3, 4),
        ("token", "group", "n1", "n2", 34, ""),
    ]
    assert not any(is_proof(shown, *other) for other in others)
    assert "token" not in repr(Hello(1, 2, 3, "h", -1, "n", "token"))
    assert "secret" not in repr(Credentials("h", 1, "s3://key:secret@b/log", "secret"))

"""Which messages are read, and what is said of those of other protocols. The messages are TiCDC's."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.consumer.foreign import foreign_protocol
from tidemill.consumer.reading import READERS, read_at, reader
from tidemill.errors import MalformedMessage
from tidemill.protocols.options import MessageFormat

GOLDEN = Path(__file__).parents[1] / "golden" / "ticdc"
Message = tuple[bytes | None, bytes | None]


def messages(name: str) -> Iterator[Message]:
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    for line in lines:
        if line["kind"] == "row" and (line.get("key") or line.get("value")):
            yield _bytes(line, "key", name), _bytes(line, "value", name)


def _bytes(line: dict[str, Any], side: str, name: str) -> bytes | None:
    found = line.get(side)
    if found is None:
        return None
    return str(found).encode() if name in ("simple", "canal_json") else base64.b64decode(found)


@pytest.mark.parametrize(("name", "protocol"), [("simple", "simple"), ("avro", "avro"), ("canal_json", None), ("open", None)])
def test_every_message_of_another_protocol_is_known_as_that(name: str, protocol: str | None) -> None:
    found = [foreign_protocol(key, value) for key, value in messages(name)]
    assert len(found) > 1000
    assert set(found) == {protocol}


@pytest.mark.parametrize(
    ("value", "protocol"),
    [
        (b"\x10\x01\x18\x07\x2a\x00", "canal"),
        (b'{"payload":{},"schema":{}}', "debezium"),
        (b'{"database":"d","table":"t","type":"insert","ts":1,"data":{}}', "maxwell"),
        (b'{"version":1,"type":"WATERMARK","commitTs":1,"buildTs":1}', "simple"),
        (b'{"a":1}', None),
        (b"{", None),
        (b"plain,text\r\n", None),
        (b"", None),
        (None, None),
    ],
)
def test_marks(value: bytes | None, protocol: str | None) -> None:
    assert foreign_protocol(None, value) == protocol


@pytest.mark.parametrize("asked", [None, *READERS])
def test_the_protocol_is_named_with_the_place(asked: MessageFormat | None) -> None:
    key, value = next(messages("simple"))
    with pytest.raises(
        MalformedMessage, match="topic t, partition 3, offset 7: it is of protocol simple, which is not read here"
    ) as caught:
        read_at(reader(asked), "t", 3, 7, key, value)
    assert "Readable are open-protocol, and canal-json" in caught.value.hint

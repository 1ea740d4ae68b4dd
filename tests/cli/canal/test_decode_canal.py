"""`tidemill decode canal`: packets, entries and recorded conversations for people and for programs; files, stdin, topics; broken bytes."""

from __future__ import annotations

import base64
import io
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.canal.golden import conversations, lines
from tests.support.rows.mutation import mutated
from tests.support.rows.random_rows import maximal_varint
from tests.support.servers.kafka import new_topic_name
from tidemill.cli.canal.decode_canal import Form, as_lines, as_object, read
from tidemill.cli.main import main
from tidemill.errors import MalformedMessage
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.protocols.canal.encode import packet
from tidemill.protocols.canal.packets import ClientAuth, Messages, frame, write_packet

BATCH = next(batch for batch in lines("flat_message") if batch["scenario"] == "tx_shapes")
ENTRIES = [base64.b64decode(entry) for entry in BATCH["entries"]]


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as end:
        main(["decode", "canal", *arguments])
    captured = capsys.readouterr()
    assert end.value.code == code, captured.err
    return captured.err if code else captured.out


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_packet_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, write_packet(Messages(7, tuple(ENTRIES[:5]))).hex())
    lines = [line.split(maxsplit=1) for line in text.splitlines()]
    assert lines[0] == ["from", "argument 1"]
    assert lines[1] == ["packet", "MESSAGES, batch 7, 5 entries"]
    assert "entry 2    ROWDATA ct.t1, INSERT, 1 row, 2026-11-21 10:06:56.000+00:00, at mysql-bin.000105:478, rowsCount=1" in text
    assert "new        id  int(11) (4)  key|updated  '1'" in text
    assert "new        ts  datetime (93)  updated  NULL" in text


def test_a_ddl_and_a_statement_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    ddl = next(batch for batch in lines("flat_message") if batch["scenario"] == "ddl_all")
    text = run(capsys, ddl["entries"][0])
    assert "entry      ROWDATA ctd, QUERY, DDL," in text
    assert "query      create database ctd character set utf8mb4 (in schema ctd)" in text


def test_json_in_both_forms(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "packet").write_bytes(packet(ENTRIES))
    (tmp_path / "entry").write_bytes(ENTRIES[1])
    found = objects(run(capsys, f"@{tmp_path}/packet", f"@{tmp_path}/entry", "--output", "json"))
    assert found[0]["from"] == f"{tmp_path}/packet"
    assert (found[0]["packet"], found[0]["batchId"], len(found[0]["entries"])) == ("Messages", 0, len(ENTRIES))
    assert [entry["entryType"] for entry in found[0]["entries"]][:2] == ["TRANSACTIONBEGIN", "ROWDATA"]
    entry = found[1]
    assert found[0]["entries"][1] == {k: v for k, v in entry.items() if k != "from"}
    assert entry["header"]["schemaName"] == "ct"
    assert entry["header"]["props"] == {"rowsCount": "1"}
    (row,) = entry["rowChange"]["rowDatas"]
    assert [(c["name"], c["value"], c["isKey"]) for c in row["afterColumns"]] == [
        ("id", "1", True), ("name", "a", False), ("amt", "1.0", False), ("ts", None, False)
    ]  # fmt: skip


def test_a_conversation_on_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    recording = next(one for one in conversations() if one["scenario"] == "auth_ok_java")
    data = b"".join(data for _, _, data in recording["events"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    found = objects(run(capsys, "-", "--json"))
    assert [one["packet"] for one in found[:4]] == ["Handshake", "ClientAuth", "Ack", "ClientRollback"]
    assert found[1]["username"] == "canal"
    assert found[1]["password"] == "40 bytes"


def test_passwords_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Clients before 1.1.4 send them as they are."""
    data = frame(write_packet(ClientAuth("u", b"geheim"))).hex()
    assert "geheim" not in run(capsys, data)
    assert b"geheim".hex() not in run(capsys, data, "--json")


def test_bytes_that_are_not_text(capsys: pytest.CaptureFixture[str]) -> None:
    data = ENTRIES[1].replace(b"B\x01a", b"B\x01\xff")
    assert r"'\xff'" in run(capsys, data.hex())
    (entry,) = objects(run(capsys, data.hex(), "--json"))
    assert entry["rowChange"]["rowDatas"][0]["afterColumns"][1]["valueBase64"] == "/w=="


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0aff"], "argument 1: Canal entry"),
        (["18072a03ffffff"], "argument 1: Canal packet: 3 bytes that cannot be read as Messages"),
        (["0000000a18"], "argument 1: Canal packet: its frame at byte 0 goes beyond the 5 bytes"),
        (["00", "--form", "packet"], "read as Packet"),
        (["1003", "--form", "entry", "--topic", "x", "--kafka", "h:1"], "give either messages, or topics"),
        ([], "give either messages, or topics"),
        (["--topic", "x"], "give either messages, or topics"),
    ],
)
def test_what_cannot_be_read(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert said in run(capsys, *arguments, code=1)


@pytest.mark.parametrize("seed", range(20))
def test_hostile_bytes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        data = bytearray(mutated(rng, rng.choice((packet(ENTRIES[:3]), rng.choice(ENTRIES), frame(packet(ENTRIES[:2]))))))
        if rng.random() < 0.5:
            at = rng.randrange(len(data) + 1)
            data[at:at] = maximal_varint(rng)
        try:
            for body in read(bytes(data), rng.choice(list(Form)), "here"):
                list(as_lines(body))
                json.dumps(as_object(body))
        except MalformedMessage:
            pass


@pytest.mark.kafka
def test_topics(kafka_broker: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = new_topic_name("decode")
    admin = AdminClient({"bootstrap.servers": kafka_broker.address})
    admin.create_topics([NewTopic(topic, 2)])[topic].result()
    producer = Producer({"bootstrap.servers": kafka_broker.address})
    for number in range(5):
        producer.produce(topic, packet(ENTRIES[: number + 1]))
        producer.flush()
    found = objects(run(capsys, "--kafka", kafka_broker.address, "--topic", topic, "--json"))
    assert sorted(len(one["entries"]) for one in found) == [1, 2, 3, 4, 5]
    assert all(one["from"].startswith(f"{topic}[") for one in found)
    assert len(objects(run(capsys, "--kafka", kafka_broker.address, "--topic", topic, "--json", "--limit", "2"))) == 2

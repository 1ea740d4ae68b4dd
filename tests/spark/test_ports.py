"""Who connects to a port of Spark's driver is asked for a secret before any Java object is read, whatever the master."""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support.spark.sessions import spark_session
from tidemill.doctor.findings import Health
from tidemill.doctor.host import spark_ports
from tidemill.spark.settings import is_authenticated, settings


@pytest.mark.parametrize(
    ("master", "user", "asks"),
    [
        (None, {}, True),
        ("local", {}, True),
        ("local[4]", {}, True),
        ("local[*,2]", {}, True),
        ("local[2]", {"spark.authenticate": "false"}, False),
        ("k8s://https://10.0.0.1:443", {}, True),
        ("yarn", {}, True),
        ("spark://host:7077", {}, False),
        ("spark://host:7077", {"spark.authenticate": "true"}, True),
        ("local-cluster[2,1,1024]", {}, False),
    ],
)
def test_ports_ask_who_connects(tmp_path: Path, master: str | None, user: dict[str, str], asks: bool) -> None:
    assert is_authenticated(master, user, tmp_path / "none") is asks
    assert (spark_ports(master, user).health is Health.GOOD) is asks


def test_a_cluster_whose_secret_spark_makes_is_encrypted(tmp_path: Path) -> None:
    assert settings("k8s://https://h:443", file=tmp_path / "none")["spark.network.crypto.enabled"] == "true"
    assert "spark.network.crypto.enabled" not in settings("local[2]", file=tmp_path / "none")


session = spark_session()


def text(word: str) -> bytes:
    return struct.pack(">H", len(word)) + word.encode()


@pytest.mark.spark
@pytest.mark.slow
def test_a_stranger_cannot_send_the_driver_a_java_object(session: Any) -> None:
    """A serialised String for an endpoint of the driver's RPC: without authentication it was read and answered."""
    conf = session.sparkContext.getConf()
    port = int(conf.get("spark.driver.port"))
    sent = b"\xac\xed\x00\x05t" + text("a stranger's object")
    body = b"\x00\x01" + text("127.0.0.1") + struct.pack(">i", port) + text("endpoint-verifier") + sent
    frame = bytes([3]) + struct.pack(">q", 7) + struct.pack(">i", len(body)) + body
    answer = b""
    with socket.create_connection((conf.get("spark.driver.host"), port), timeout=30) as client, contextlib.suppress(ConnectionError):
        client.sendall(struct.pack(">q", len(frame) + 8) + frame)
        while len(answer) < 4096 and (data := client.recv(65536)):
            answer += data
            if b"Sasl" in answer or b"stranger" in answer:
                break
    assert b"stranger" not in answer
    assert b"Sasl" in answer or answer == b""

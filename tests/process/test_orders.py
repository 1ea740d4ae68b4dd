"""What a process is started with: it is read as it was written, a process that stands by loads, and what follows is left to the program."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from tidemill.capture.config import CaptureConfig
from tidemill.capture.groups.credentials import Credentials
from tidemill.capture.groups.orders import GroupOrder, JobOrder
from tidemill.capture.initial_load import LoadOrder
from tidemill.capture.tikv.feed.base import Transport
from tidemill.changefeed.runner_options import Options
from tidemill.changelog.log_format import CaptureRules
from tidemill.cli.canal.serving import Serving
from tidemill.config.file import parse_config
from tidemill.process import orders
from tidemill.process.children import environment
from tidemill.rules.skip import SkipRow
from tidemill.server.host.messages import HostOrder
from tidemill.spark.cluster.connection import Cluster
from tidemill.spark.cluster.owner import Order
from tidemill.spark.table.keeper import Keeping

PASSWORD = "hunter2"
TOML = f"""
[filter]
rules = ['shop.*', '!shop.x']
[sink.kafka-config]
sasl-mechanism = "plain"
sasl-user = "me"
sasl-password = "{PASSWORD}"
"""
TICKET = Credentials("h", 7, "s3://log", "token")
CAPTURE = CaptureConfig(
    pd=("a:1", "b:2"),
    log="s3://k:s@bucket/log",
    split_tables=(("shop.orders", 2),),
    transport=Transport.GRPC,
    data_dir=Path("/data"),
    rules=CaptureRules(0, ("shop.*",), True),
    stuck_after=60,
)
ORDERS = [
    CAPTURE,
    GroupOrder(TICKET, 1, 2, Path("/scratch"), "debug", None),
    JobOrder(TICKET, "spark://h:7077", 3, 1 << 30, Path("/scratch"), "info", Path("/log")),
    LoadOrder(("a:1",), "/log", Path("/scratch"), ts=1 << 60, ca=Path("/ca.pem")),
    HostOrder("/log", Path("/data"), spark_conf={"spark.x": "1"}, retry_s=3.5),
    Serving("/store", start_ts="now", zookeeper_timeout=2.0),
    Keeping(Cluster(("a:1",), (Path("/ca"), None, None)), "id", 5, 3, "token", 7, "h"),
    Order(CAPTURE, Path("/folder"), 7),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_an_order_is_read_as_it_was_written(order: Any) -> None:
    plain = json.loads(json.dumps(orders.to_plain(order)))
    assert orders.from_plain(type(order), plain) == order


def test_a_changefeed_has_its_whole_configuration() -> None:
    skipped = (SkipRow("shop.orders", b"\x00\xff", 9),)
    options = Options("f", "/log", Path("/data"), f"kafka://h/t?sasl-password={PASSWORD}", parse_config(TOML), skip_rows=skipped)
    assert PASSWORD not in repr(options)
    found = orders.from_plain(Options, json.loads(json.dumps(orders.to_plain(options))))
    assert found.config.parameters() == options.config.parameters()
    assert found.config.parameters()["sasl-password"] == PASSWORD
    assert (found.config.given(), found.skip_rows) == (options.config.given(), skipped)
    assert orders.from_plain(Options, orders.to_plain(Options("f", "/log", Path(), "blackhole://", parse_config("")))).config.given() == {}


class Kind(StrEnum):
    ONE = "one"


@dataclass(frozen=True)
class Plain:
    number: int
    kind: Kind = Kind.ONE
    ratio: float | None = None
    names: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"number": "1"},
        {"number": 1, "other": 2},
        {"number": 1, "kind": "two"},
        {"number": 1, "ratio": "x"},
        {"number": 1, "names": {"a": [1, "b"]}},
        {"number": 1, "names": 3},
        [],
        None,
    ],
)
def test_what_is_no_order(found: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        orders.from_plain(Plain, found)


PROGRAM = """
import sys
from tidemill.errors import MalformedMessage
from tidemill.process import orders
from tidemill.process.lifeline import STDIN
from tidemill.server.host.messages import HostOrder
try:
    order = orders.take(HostOrder, lambda order: print("loads", order.term))
    print(order.term, len(order.log), STDIN.next())
except MalformedMessage as error:
    print(error.code)
"""


def host(term: int, length: int = 1) -> HostOrder:
    return HostOrder("x" * length, Path(), term=term)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (orders.warm(host(1)) + orders.begin(host(3)) + b"rest\n", "loads 1\n3 1 b'rest\\n'\n"),
        (orders.begin(host(3, 300_000)) + b"rest\n", "3 300000 b'rest\\n'\n"),
        (orders.begin(host(2)), "2 1 b''\n"),
        (orders.warm(host(1)), "loads 1\n"),
        (b"", ""),
        (b"{}\n", "TM:ErrMalformedMessage\n"),
        (b'{"do":"begin","order":[]}\n', "TM:ErrMalformedMessage\n"),
        (b"nonsense\n", "TM:ErrMalformedMessage\n"),
    ],
)
def test_what_a_process_is_told(given: bytes, said: str) -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], input=given, capture_output=True, env=environment(), check=True)
    assert ended.stdout.decode() == said

"""The server as a process: killed at any moment it goes on at the last acknowledgement; ctl moves and forgets its clients."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.canal.client import Closed, PlainClient
from tests.support.canal.server_runs import ServerProcess
from tests.support.canal.store import GrowingStore, Made, transaction
from tidemill.changelog.storage.open import LocalStorage
from tidemill.cli.main import build
from tidemill.errors import ConfigError
from tidemill.process.ports import free_ports
from tidemill.tso import compose

COUNT = 250
KILLS = 4
"""So often a server is killed between two acknowledgements, and another one behind them."""
BEGIN = compose(1_700_000_000_000)


def filled(folder: Path, count: int = COUNT) -> tuple[GrowingStore, list[bytes]]:
    """A store and its entries: transactions of one to five rows."""
    rng = random.Random("killed")
    store = GrowingStore(LocalStorage(folder), BEGIN)
    entries: list[Made] = []
    for ts in range(BEGIN + 1, BEGIN + 1 + count):
        texts = [b"row %d %d" % (ts, i) + b"." * rng.randrange(300) for i in range(rng.randrange(1, 6))]
        entries += transaction(ts, [Made(ts, text, name=("db", "t"), event=1, rows=1) for text in texts])
    store.add(entries, BEGIN + 1 + count)
    return store, [one.data for one in entries]


@pytest.mark.slow
def test_killed_again_and_again_nothing_is_lost(tmp_path: Path) -> None:
    _, want = filled(tmp_path / "store")
    rng, port = random.Random("kill"), free_ports(1)[0]
    got: list[bytes] = []
    """What was acknowledged, and an answer came behind it."""
    life = 0
    while len(got) < len(want):
        life += 1
        server = ServerProcess(tmp_path / "store", port)
        client, left = PlainClient(server.address), rng.randrange(2, 8) if life < KILLS else 1 << 30
        open_: list[tuple[int, list[bytes]]] = []
        sent: list[bytes] = []
        try:
            while left and len(got) < len(want):
                left -= 1
                number, entries = client.get(rng.randrange(30))
                got, sent = got + sent, []
                if entries:
                    assert number == (open_[-1][0] if open_ else number - 1) + 1
                    open_.append((number, entries))
                    assert want[len(got) :][: sum(len(b) for _, b in open_)] == [e for _, b in open_ for e in b]
                if open_ and (rng.random() < 0.7 or not entries):
                    number, entries = open_.pop(0)
                    client.ack(number)
                    sent = entries
        except Closed as error:
            raise AssertionError(server.said) from error
        if left and len(got) == len(want):
            assert client.get() == (-1, [])
            assert server.stop() == 0
            break
        server.kill()
        if sent:  # nobody knows whether the last acknowledgement arrived
            server = ServerProcess(tmp_path / "store", port)
            with PlainClient(server.address) as looking:
                _, entries = looking.get(0)
                behind = want.index(entries[0], max(0, len(got) - 1)) if entries else len(want)
                assert behind in (len(got), len(got) + len(sent))
                got = want[:behind]
            server.kill()
    assert life >= KILLS


def ctl(*arguments: str) -> str:
    result = CliRunner().invoke(build(["canal"]), ["canal", "ctl", *arguments], catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_ctl(tmp_path: Path) -> None:
    folder = str(tmp_path / "store")
    _, want = filled(tmp_path / "store", 20)
    server = ServerProcess(tmp_path / "store", free_ports(1)[0])
    with PlainClient(server.address, filter_=r"db\..*") as client:
        number, entries = client.get()
        assert entries == want
        client.ack(number)
        assert client.get() == (-1, [])
        found = json.loads(ctl("clients", "--store", folder, "-o", "json"))
        assert found["clients"] == [{"destination": "d", "client": 1001, "acknowledged_ts": BEGIN + 21, "lag_s": 0.0, "filter": r"db\..*"}]
        assert "d 1001: acknowledged" in ctl("clients", "--store", folder)
        ctl("seek", "d", "1001", str(BEGIN + 10), "--store", folder)
        number, entries = client.get()
        assert (number, entries) == (2, want[want.index(b"begin %d" % (BEGIN + 11)) :])
        with pytest.raises(ConfigError, match="outside of the store"):
            ctl("seek", "d", "1001", str(BEGIN - (1 << 30)), "--store", folder)
        with pytest.raises(ConfigError, match="should start first"):
            ctl("seek", "other", "1001", str(BEGIN + 10), "--store", folder)
        ctl("forget", "d", "1001", "--store", folder)
        assert "should subscribe first" in client.error()
        assert "no client is known" in ctl("clients", "--store", folder)
        with pytest.raises(ConfigError, match="not known"):
            ctl("forget", "d", "1001", "--store", folder)
        ctl("seek", "d", "7", str(BEGIN + 15), "--store", folder)
        with PlainClient(server.address, client=7) as new:
            assert new.get()[1] == want[want.index(b"begin %d" % (BEGIN + 16)) :]
    assert server.stop() == 0


def test_ctl_without_a_server_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "store", 2)
    monkeypatch.setattr("tidemill.cli.canal.canal_ctl.PATIENCE_S", 0.2)
    with pytest.raises(Exception, match="no server answers"):
        ctl("seek", "d", "1001", str(BEGIN), "--store", str(tmp_path / "store"))
    assert list((tmp_path / "store" / "control").iterdir()) == []

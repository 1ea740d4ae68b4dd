"""Java's canal.client 1.1.8 and 1.1.4 and canal-python 0.4 on the server: what they understand, and what they get when all is killed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.canal.clients import VERSIONS, java_client, python_client, told
from tests.support.canal.clients.stores import made
from tests.support.canal.server_runs import ServerProcess, ServerThread, one_destination
from tidemill.canal.scramble import stored
from tidemill.playground.programs.canal_client import ClientProcess, ClientRefused
from tidemill.process.ports import free_ports

pytestmark = pytest.mark.slow

ALL = r".*\..*"
CLIENTS: dict[str, Callable[[], ClientProcess]] = {version: lambda version=version: java_client(version) for version in VERSIONS}  # type: ignore[misc]
CLIENTS["canal-python"] = python_client
DESTINATIONS = {kind: f"d{number}" for number, kind in enumerate(CLIENTS)}

Said = list[dict[str, Any]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A store, and its entries: all types, transactions, DDLs."""
    folder = tmp_path_factory.mktemp("made")
    return folder / "store", made(folder)


@pytest.fixture
def store(filled: tuple[Path, list[bytes]], tmp_path: Path) -> Path:
    """One that no client has read yet."""
    shutil.copytree(filled[0], tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def want(filled: tuple[Path, list[bytes]]) -> Said:
    return [told(raw) for raw in filled[1]]


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Iterator[ClientProcess]:
    with CLIENTS[request.param]() as started:
        yield started


OLDER = pytest.mark.thorough("an older version; test_they_understand_every_entry and test_batches_that_are_open have it")


@pytest.fixture(params=["1.1.8", pytest.param("1.1.4", marks=OLDER)])
def java(request: pytest.FixtureRequest) -> Iterator[ClientProcess]:
    with java_client(request.param) as started:
        yield started


def read_all(client: ClientProcess, size: int = 20) -> Said:
    """All that comes, each batch acknowledged."""
    found: Said = []
    while True:
        number, entries = client.get(size)
        if not entries:
            return found
        found += entries
        client.ack(number)


def test_they_understand_every_entry(client: ClientProcess, store: Path, want: Said) -> None:
    with ServerThread(str(store)) as server:
        client.connect(server.address, "d", filter_=ALL)
        assert read_all(client) == want
        client.ask("disconnect")
        client.connect(server.address, "d", filter_=ALL)
        assert read_all(client) == []


def test_batches_that_are_open(client: ClientProcess, store: Path, want: Said) -> None:
    """They come again in order under new ids when they are rolled back, and when a client connects again."""
    with ServerThread(str(store)) as server:
        client.connect(server.address, "d", filter_="")
        batches = [client.get(1) for _ in range(3)]
        assert [number for number, _ in batches] == [1, 2, 3]
        client.ack(1)
        client.ask("rollback")
        at = len(batches[0][1])
        fourth = client.get(1)
        assert fourth == (4, want[at : at + len(fourth[1])])
        client.ask("rollback", 4)  # of the oldest one alone, as canal-adapter does
        fifth = client.get(1)
        assert fifth == (5, fourth[1])
        client.ack(5)
        client.get(3)
        client.ask("disconnect")
        client.connect(server.address, "d", filter_="")
        assert read_all(client) == want[at + len(fifth[1]) :]


def test_java_goes_on_with_batches_that_stayed_open(java: ClientProcess, store: Path, want: Said) -> None:
    with ServerThread(str(store)) as server:
        java.connect(server.address, "d", filter_="")
        first, second = java.get(1), java.get(1)
        java.ask("disconnect")
        host, _, port = server.address.rpartition(":")
        java.ask("open", host, port, "d", "", "")
        java.ask("rollback-on-connect", "false")
        java.ask("connect")
        java.ask("subscribe", "")
        java.ack(first[0])
        java.ack(second[0])
        assert read_all(java) == want[len(first[1]) + len(second[1]) :]


def test_java_takes_and_acknowledges_at_once(java: ClientProcess, store: Path, want: Said) -> None:
    """`get` acknowledges also the batch -1, which says that there was nothing."""
    with ServerThread(str(store)) as server:
        java.connect(server.address, "d", filter_="")
        found: Said = []
        while (batch := java.ask("get", 50))["id"] != -1:
            found += batch["entries"]
        assert found == want
        assert java.ask("get", 50)["id"] == -1
        assert java.get(1000, 50) == (-1, [])


def test_java_parses_later(java: ClientProcess, store: Path, want: Said) -> None:
    """`lazyParseEntry`: the client hands out bytes."""
    java.ask("lazy", "true")
    with ServerThread(str(store)) as server:
        java.connect(server.address, "d", filter_="")
        batch = java.ask("get-without-ack", 1000)
        assert batch["raw"] is True
        assert batch["entries"] == want
        java.ack(batch["id"])


def test_passwords_and_refusals(java: ClientProcess, store: Path, want: Said) -> None:
    with ServerThread(str(store), one_destination({"canal.user": "canal", "canal.passwd": stored("p")})) as server:
        with pytest.raises(ClientRefused, match="auth failed for user:canal"):
            java.connect(server.address, "d", "canal", "wrong")
        java.ask("disconnect")
        java.connect(server.address, "d", "canal", "p")
        with pytest.raises(ClientRefused, match="does not compile"):
            java.ask("subscribe", "(")
        java.ask("subscribe", r"nobody\..*")
        assert read_all(java) == [one for one in want if one.get("ddl") and not one["table"]]  # those of a database pass all filters
        java.ask("unsubscribe")
        with pytest.raises(ClientRefused, match="should subscribe first"):
            java.get()
        java.ask("disconnect")
        java.connect(server.address, "other", "canal", "p")
        with pytest.raises(ClientRefused, match="should start first"):
            java.ask("subscribe", "")


def test_python_sends_passwords_as_they_are(store: Path) -> None:
    """canal-python knows no tokens: it is refused unless the server takes plain passwords."""
    asked = {"canal.user": "canal", "canal.passwd": stored("p")}
    with python_client() as client:
        with ServerThread(str(store), one_destination(asked)) as server, pytest.raises(ClientRefused):
            client.connect(server.address, "d", "canal", "p")
        with ServerThread(str(store), one_destination({**asked, "canal.auth.plain": "true"})) as server:
            client.connect(server.address, "d", "canal", "p", filter_="")
            assert client.get()[1]


class Life:
    """A client that is killed, and whose server is killed. `done`: so much was acknowledged, and an answer came since."""

    def __init__(self, kind: str, address: str, want: Said) -> None:
        self.kind, self.address, self.want, self.rng = kind, address, want, random.Random(f"life {kind}")
        self.client = CLIENTS[kind]()
        self.open: list[tuple[int, int]] = []
        self.done, self.at, self.unsure = 0, 0, [0]
        self.connect()

    def connect(self) -> None:
        """A new connection. Nobody knows yet which of the last acknowledgements arrived."""
        self.open, self.at = [], -1
        self.client.connect(self.address, DESTINATIONS[self.kind], filter_="")

    def get(self) -> bool:
        """A batch, which is what has to come next. Whether there was any."""
        number, entries = self.client.get(self.rng.randrange(1, 5))
        starts = [self.at] if self.at >= 0 else [self.done + more for more in self.unsure]
        fitting = [at for at in starts if self.want[at : at + len(entries)] == entries]
        assert fitting, (starts, entries[:1])
        start = fitting[0] if entries else starts[-1]
        if self.at < 0:
            self.done = start
        else:
            self.done += self.unsure[-1]
        self.at, self.unsure = start + len(entries), [0]
        if entries:
            self.open.append((number, len(entries)))
        return bool(entries)

    def ack(self) -> None:
        if self.open:
            number, count = self.open.pop(0)
            self.client.ack(number)
            self.unsure.append(self.unsure[-1] + count)

    def reads(self) -> None:
        """Some batches, some of which it acknowledges."""
        for _ in range(self.rng.randrange(3, 8)):
            assert self.get()
            if self.rng.random() < 0.6:
                self.ack()

    def happens(self, what: str) -> None:
        match what:
            case "rollback":
                self.client.ask("rollback")
                self.done, self.open = self.done + self.unsure[-1], []
                self.at, self.unsure = self.done, [0]
            case "reconnect":
                self.client.ask("disconnect")
                self.connect()
            case "killed":
                self.client.kill()
                self.client = CLIENTS[self.kind]()
                self.connect()

    def ends(self) -> None:
        """It reads all that is left."""
        while self.get():
            self.ack()
        while self.open:
            self.ack()
        assert not self.get()
        assert (self.done, self.at) == (len(self.want), len(self.want))


def test_nothing_is_lost_whatever_is_killed(store: Path, want: Said, tmp_path: Path) -> None:
    """What is acknowledged never comes again; all else comes, in order, and whole transactions with it. Each client has a destination."""
    config, (port,) = tmp_path / "canal.toml", free_ports(1)
    config.write_text("".join(f'[canal.destinations."{name}"]\n' for name in DESTINATIONS.values()))
    server = ServerProcess(store, port, "--config", str(config))
    lives: list[Life] = []
    try:
        lives += [Life(kind, server.address, want) for kind in CLIENTS]
        for round_ in range(2):
            for life in lives:
                for what in life.rng.sample(["killed", "rollback", "reconnect"], 2):
                    life.reads()
                    life.happens(what)
                life.reads()
            server.kill()
            for life in lives:
                with pytest.raises(ClientRefused):
                    life.client.get()
                if round_:
                    life.client.kill()  # both at once
                    life.client = CLIENTS[life.kind]()
            server = ServerProcess(store, port, "--config", str(config))
            for life in lives:
                life.connect()
        for life in lives:
            life.ends()
    finally:
        server.kill()
        for life in lives:
            life.client.kill()

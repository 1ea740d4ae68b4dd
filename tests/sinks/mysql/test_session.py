"""Sessions downstream: TiDB's own settings as statements, MariaDB's on a real server; what a server may not be; TLS and timeouts."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

from tests.support.delivery.database_sinks import CREATE, LATER, change, made_of
from tests.support.servers.certificates import Authority
from tests.support.servers.mariadb import MariaDb
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import SameUpstreamDownstream, SinkError, SinkUnavailable
from tidemill.records import KIND_UPDATE
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.session import Server, settings

TIDB, MARIADB, MYSQL = Server("8.0.11-TiDB-v8.5.1"), Server("10.11.6-MariaDB"), Server("8.0.36")


def test_every_session_is_set_up_alike() -> None:
    common = [
        "SET SESSION sql_mode = CONCAT('STRICT_TRANS_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO' "
        "/*M!100400 , ',TIME_ROUND_FRACTIONAL' */)",
        "SET SESSION time_zone = '+00:00'",
        "SET SESSION foreign_key_checks = 0",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET SESSION wait_timeout = 600",
    ]
    for server in (TIDB, MARIADB, MYSQL):
        assert list(settings(server, "+00:00", optimistic=True))[:5] == [(text, True) for text in common]
    assert list(settings(MYSQL, "+00:00", optimistic=True))[5:] == [("SET SESSION restrict_fk_on_non_standard_key = OFF", False)]


@pytest.mark.parametrize("mode", ["optimistic", "pessimistic"])
def test_tidbs_settings_are_ticdcs(mode: str) -> None:
    """Its mark of the rows, explicit AUTO_RANDOM values, no placement. A TiDB that lacks a variable is as good."""
    found = list(settings(TIDB, "+00:00", optimistic=mode == "optimistic"))[5:]
    assert found == [
        (f"SET SESSION tidb_txn_mode = '{mode}'", True),
        ("SET SESSION tidb_cdc_write_source = 1", False),
        ("SET SESSION allow_auto_random_explicit_insert = 1", False),
        ("SET SESSION tidb_placement_mode = 'ignore'", False),
        ("SET SESSION tidb_enable_external_ts_read = OFF", False),
        ("SET SESSION tidb_skip_utf8_check = 1", False),
        ("SET SESSION tidb_constraint_check_in_place = 0", False),
    ]


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    mariadb.run(*CREATE, "DROP TABLE IF EXISTS mysql.tidb")
    return mariadb


@pytest.mark.slow
@pytest.mark.not_tidb("it has a table mysql.tidb of its own")
def test_the_upstream_itself_is_refused_as_downstream(db: MariaDb) -> None:
    """By the id of its cluster, which a TiDB keeps in `mysql.tidb`."""
    with made_of(db) as sinks:
        sinks().begin(1, cluster_id="77")  # has no such table: no TiDB
        db.run("CREATE TABLE mysql.tidb (VARIABLE_NAME VARCHAR(64) PRIMARY KEY, VARIABLE_VALUE VARCHAR(1024))")
        sinks().begin(2, cluster_id="77")  # an old one that does not tell
        db.run("INSERT INTO mysql.tidb VALUES ('cluster_id', '77')")
        sinks().begin(3, cluster_id="78")
        with pytest.raises(SameUpstreamDownstream, match="is the cluster 77, whose changes are delivered") as caught:
            sinks().begin(4, cluster_id="77")
    assert not caught.value.retryable


def running(db: MariaDb) -> list[tuple[int, str]]:
    """The sessions of the sink that the server is busy with, and their statements."""
    found = db.rows("SELECT id, info FROM information_schema.processlist WHERE command = 'Query' AND id <> CONNECTION_ID()")
    return [(int(number), str(info)) for number, info in found]


def await_that(condition: object) -> None:
    assert callable(condition)
    pause = threading.Event()
    for _ in range(2400):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("not in time")


@pytest.mark.slow
@pytest.mark.not_tidb("it has a table mysql.tidb of its own")
def test_an_attempt_that_is_given_up_leaves_no_statement_behind_in_the_server(db: MariaDb) -> None:
    """Without that it would wait for its lock, and keep the lane's lock from the next attempt."""
    db.run("INSERT INTO s.t VALUES (1, 1)")
    with made_of(db) as sinks, db.connect(autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("UPDATE s.t SET c2 = 5 WHERE c1 = 1")
        sink = sinks()
        sink.begin(1)
        sink.deliver(change(KIND_UPDATE, 1, 7, LATER + 1))
        flushed: list[BaseException] = []

        def flush() -> None:
            try:
                sink.task.flush()
            except SinkError as error:
                flushed.append(error)

        thread = threading.Thread(target=flush)
        thread.start()
        await_that(lambda: running(db))
        sink.task.abandon()
        thread.join(120)
        assert len(flushed) == 1
        await_that(lambda: not running(db))  # although the row is locked still
        sinks().begin(2)  # does not wait either
        other.rollback()
    assert db.rows("SELECT c2 FROM s.t") == [(1,)]


@pytest.mark.slow
@pytest.mark.not_tidb("it has a table mysql.tidb of its own")
def test_an_answer_that_does_not_come_within_read_timeout_is_given_up_here_and_in_the_server(db: MariaDb) -> None:
    db.run("INSERT INTO s.t VALUES (1, 1)")
    with made_of(db) as sinks, db.connect(autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("UPDATE s.t SET c2 = 5 WHERE c1 = 1")
        sink = sinks("read-timeout=500ms")
        sink.begin(1)
        sink.deliver(change(KIND_UPDATE, 1, 7, LATER + 1))
        thread = threading.Thread(target=sink.task.flush)
        thread.start()
        waiting: list[int] = []

        def waits() -> bool:
            waiting[:] = [number for number, info in running(db) if "ON DUPLICATE" in info]
            return bool(waiting)

        await_that(waits)
        await_that(lambda: waiting[0] not in dict(running(db)))
        other.rollback()
        thread.join(120)
        assert not thread.is_alive()
    assert db.rows("SELECT c2 FROM s.t") == [(7,)]


@dataclass(frozen=True)
class Secured:
    """A server that speaks TLS, and the files of its authority, of a client, and of a stranger."""

    db: MariaDb
    ca: Path
    client: tuple[Path, Path]
    strange: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority, stranger = Authority(), Authority("stranger")
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "strange.pem").write_bytes(stranger.pem)
    certificate, key = authority.sign("server").write(folder, "server")
    with MariaDb(f"--ssl-ca={folder}/ca.pem", f"--ssl-cert={certificate}", f"--ssl-key={key}") as db:
        db.run("CREATE USER tls IDENTIFIED BY 'p' REQUIRE SSL", "CREATE USER mutual IDENTIFIED BY 'p' REQUIRE X509")
        yield Secured(db, folder / "ca.pem", authority.sign("client").write(folder, "client"), folder / "strange.pem")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("uri", "fine"),
    [
        ("mysql://tls:p@127.0.0.1:{port}/", True),  # a server that offers it is taken at its word
        ("mysql+ssl://tls:p@127.0.0.1:{port}/?ssl-ca={ca}", True),
        ("mysql://tls:p@127.0.0.1:{port}/?ssl-ca={ca}", True),
        ("tidb+ssl://tls:cA==@127.0.0.1:{port}/?ssl-ca={ca}", True),
        ("mysql+ssl://tls:p@127.0.0.1:{port}/", False),
        ("mysql+ssl://tls:p@127.0.0.1:{port}/?ssl-ca={strange}", False),
        ("mysql+ssl://mutual:p@127.0.0.1:{port}/?ssl-ca={ca}", False),
        ("mysql+ssl://mutual:p@127.0.0.1:{port}/?ssl-ca={ca}&ssl-cert={cert}&ssl-key={key}", True),
    ],
)
def test_tls_and_certificates_of_clients(secured: Secured, uri: str, fine: bool) -> None:
    cert, key = secured.client
    options = parse_sink_uri(uri.format(port=secured.db.port, ca=secured.ca, strange=secured.strange, cert=cert, key=key)).database
    if not fine:
        with pytest.raises((ServerFault, SinkError, SinkUnavailable)):
            Connection(options)
        return
    connection = Connection(options)
    ((_, cipher),) = connection.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    connection.close()
    assert cipher


@pytest.mark.slow
def test_without_a_word_of_tls_no_certificates_are_read(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read those of the system takes some 50 ms of CPU, at each connection."""
    monkeypatch.setattr(ssl, "create_default_context", None)
    Connection(parse_sink_uri(f"mysql://tls:p@127.0.0.1:{secured.db.port}/").database).close()


@pytest.mark.slow
def test_the_password_may_come_from_a_file(secured: Secured, tmp_path: Path) -> None:
    """It is read for each connection: one that is replaced counts from the next on."""
    uri = f"mysql+ssl://tls@127.0.0.1:{secured.db.port}/?ssl-ca={secured.ca}&password-file={tmp_path}/password"
    options = parse_sink_uri(uri).database
    (tmp_path / "password").write_text("old\n")
    with pytest.raises(ServerFault, match="Access denied"):
        Connection(options)
    (tmp_path / "password").write_text("p\n")
    Connection(options).close()


@pytest.mark.slow
def test_the_clients_key_may_be_encrypted(secured: Secured, tmp_path: Path) -> None:
    certificate, plain = secured.client
    key = load_pem_private_key(plain.read_bytes(), None)
    (tmp_path / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"geheim")))
    (tmp_path / "password").write_text("geheim\n")
    uri = f"mysql+ssl://mutual:p@127.0.0.1:{secured.db.port}/?ssl-ca={secured.ca}&ssl-cert={certificate}&ssl-key={tmp_path}/key"
    Connection(parse_sink_uri(f"{uri}&ssl-key-password-file={tmp_path}/password").database).close()
    with pytest.raises(SinkError, match="ssl-key"):
        Connection(parse_sink_uri(uri).database)

"""Addresses and parameters of databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill import credentials
from tidemill.config.database import Atomicity, DatabaseTls
from tidemill.config.file import parse_config
from tidemill.config.parameters import Scheme
from tidemill.config.uri import PARAMETERS, parse_sink_uri
from tidemill.errors import ConfigError, SinkError
from tidemill.sinks.mysql.connection import decoded

TICDC = {
    "worker-count": "16",
    "max-txn-row": "256",
    "max-multi-update-row": "40",
    "max-multi-update-row-size": "1024",
    "tidb-txn-mode": "optimistic",
    "safe-mode": "false",
    "batch-dml-enable": "true",
    "multi-stmt-enable": "true",
    "timeout": "2m",
    "transaction-atomicity": "none",
}
"""TiCDC's names and defaults."""


def test_names_and_defaults_are_ticdcs() -> None:
    assert {name: PARAMETERS[name].default for name in TICDC} == TICDC
    options = parse_sink_uri("mysql://root@h:3306/").database
    assert (options.read_timeout, options.write_timeout, options.connect_timeout) == (120_000, 120_000, 120_000)
    assert (options.workers, options.atomicity, options.tls, options.multi_statements) == (16, Atomicity.NONE, None, True)


@pytest.mark.parametrize("word", ["mysql", "mysql+ssl", "tidb", "tidb+ssl"])
def test_addresses(word: str) -> None:
    uri = parse_sink_uri(f"{word}://us%40er:p%3Aw%2F@[::1]:4001/?worker-count=3")
    options = uri.database
    assert uri.scheme is Scheme.MYSQL
    assert (options.host, options.port, options.user, options.password.value, options.workers) == ("::1", 4001, "us@er", "p:w/", 3)
    assert options.tls == (DatabaseTls() if word.endswith("ssl") else None)
    assert "p:w/" not in str(uri) + repr(uri)
    assert "p%3Aw%2F" not in str(uri) + repr(uri)
    assert parse_sink_uri(f"{word}://h").database.port == 4000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mysql://root@h:99999/", "expected mysql://USER:PASSWORD@HOST:PORT/"),
        ("mysql://root@h:3306/db", "expected mysql://USER:PASSWORD@HOST:PORT/"),
        ("mysql:///", "expected mysql://USER:PASSWORD@HOST:PORT/"),
        ("mysql://h/?worker-cuont=3", "unknown parameter worker-cuont; did you mean `worker-count`?"),
        ("mysql://h/?protocol=canal-json", "a database has no protocol"),
        ("mysql://h/?transaction-atomicity=all", "expected one of none, table, global"),
        ("mysql://h/?ssl-cert=/c", "ssl-cert and ssl-key belong together"),
        ("mysql://u:p@h/?password-file=/p", "leave out password-file"),
        ("mysql://u:p@h/?password-env=P", "leave out password-env"),
        ("mysql://u@h/?password-env=P&password-file=/p", "give one"),
        ("kafka://h:1/t?protocol=canal-json&transaction-atomicity=table", "transaction-atomicity is not supported yet"),
    ],
)
def test_faults(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("?", "\\?").replace("+", "\\+")):
        parse_sink_uri(text)


def test_what_is_out_of_bounds_is_taken_as_the_bound() -> None:
    uri = parse_sink_uri("mysql://h/?worker-count=5000&max-txn-row=9999&cache-prep-stmts=true")
    assert (uri.database.workers, uri.database.max_txn_rows) == (1024, 2048)
    assert len(uri.warnings) == 3


def test_the_file_sets_them_too() -> None:
    config = parse_config(
        "[sink]\nsafe-mode = true\ntransaction-atomicity = 'table'\n"
        "[sink.mysql-config]\nworker-count = 4\nenable-batch-dml = false\nenable-multi-statement = false\nread-timeout = '7s'\n"
    )
    options = config.sink_uri("mysql://h/?worker-count=5").database
    assert (options.workers, options.batch_dml, options.multi_statements) == (5, False, False)
    assert (options.safe_mode, options.atomicity, options.read_timeout) == (True, Atomicity.TABLE, 7000)
    with pytest.raises(ConfigError, match="transaction-atomicity is not supported for kafka://"):
        config.sink_uri("kafka://h:1/t?protocol=canal-json")
    with pytest.raises(ConfigError, match='progress = "table" is not for mysql'):
        parse_config("progress = 'table'").sink_uri("mysql://h/")


def test_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    assert credentials.read(parse_sink_uri(f"mysql://u@h/?password-file={file}").database.password) == "secret"
    password = parse_sink_uri("mysql://u@h/?password-env=THE_PASSWORD").database.password
    with pytest.raises(SinkError, match="the environment has no THE_PASSWORD"):
        credentials.read(password)
    monkeypatch.setenv("THE_PASSWORD", "secret")
    assert credentials.read(password) == "secret"
    assert decoded("c2VjcmV0") == "secret"
    assert decoded("no base64!") is None

"""The settings of a Drainer: the real one's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.binlog.drainer.kafka import producer_options
from tidemill.binlog.drainer.picking.rules import Rule
from tidemill.binlog.drainer.settings import Checkpoint, DrainerSettings, read_file
from tidemill.binlog.filters import TableName
from tidemill.errors import ConfigError
from tidemill.secret import Secret

ENCRYPTED = "AAECAwQFBgcICQoLDA0OD0BrtHvUMh2HKoOn"
KEY = "000102030405060708090a0b0c0d0e0f"


def settings(folder: Path, text: str) -> DrainerSettings:
    path = folder / "drainer.toml"
    path.write_text(text)
    return DrainerSettings(**read_file(path)).checked()


def test_the_real_drainers_file_is_read(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        'detect-interval = 10\ndata-dir = "d"\n[syncer]\ndb-type = "kafka"\nworker-count = 16\nignore-txn-commit-ts = [5, 6]\n'
        'replicate-do-db = ["~^a"]\n[[syncer.ignore-table]]\ndb-name = "d"\ntbl-name = "t"\n'
        '[syncer.to]\nkafka-addrs = "h:1"\ntopic-name = "x"\n[syncer.relay]\nlog-dir = "r"\n',
    )
    assert (found.detect_interval, found.db_type, found.ignore_txn_commit_ts, found.relay_dir) == (10, "kafka", (5, 6), "r")
    assert (found.to.kafka_addrs, found.to.topic_name, found.ignore_tables) == ("h:1", "x", (TableName("d", "t"),))
    assert (found.worker_count, found.txn_batch, found.enable_dispatch, found.to.merge) == (16, 0, True, False)


def test_a_file_without_them_keeps_transactions_whole_and_delivers_ddls(tmp_path: Path) -> None:
    found = settings(tmp_path, "")
    assert (found.worker_count, found.txn_batch, found.sync_ddl, found.loopback_control, found.rules) == (1, 0, True, False, ())
    assert found.to.checkpoint == Checkpoint("", "tidb_binlog", "checkpoint", "")


def test_what_a_database_is_written_with_is_read(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        "[syncer]\ntxn-batch = 5\nworker-count = 4\ndisable-dispatch = true\nloopback-control = true\nchannel-id = 9\nsync-ddl = false\n"
        "[syncer.to]\nmerge = true\nsync-mode = 2\n"
        '[syncer.to.params]\ntime_zone = "\'+08:00\'"\ntidb_distsql_scan_concurrency = "15"\nsql_log_bin = false\ninit = "it\'s"\n'
        '[syncer.to.checkpoint]\ntype = "mysql"\nschema = "s"\ntable = "p"\nhost = "h"\nport = 3307\nuser = "u"\npassword = "secret"\n',
    )
    assert (found.worker_count, found.txn_batch, found.enable_dispatch, found.to.merge, found.to.sync_mode) == (4, 5, False, True, 2)
    assert (found.loopback_control, found.channel_id, found.sync_ddl) == (True, 9, False)
    assert found.to.params == (("tidb_distsql_scan_concurrency", "15"), ("sql_log_bin", "0"), ("init", "'it''s'"))
    assert found.to.zone == "'+08:00'"
    assert found.to.checkpoint == Checkpoint("mysql", "s", "p", "h", 3307, "u", Secret("password", "secret"))
    assert "secret" not in repr(found)


def test_event_rules_are_read_with_the_tables_that_they_are_of(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        '[syncer.binlog-filter-rule.r1]\nignore-event = ["update", "drop table"]\nignore-sql = ["^ALTER TABLE .* SHARD"]\n'
        '[[syncer.table-migrate-rule]]\nbinlog-filter-rule = ["r1"]\nsource = { schema = "gold7", table = "*" }\n',
    )
    assert found.rules == (Rule("gold7", "*", frozenset({"update", "drop table"}), ("^ALTER TABLE .* SHARD",)),)


def test_tls_and_a_login_at_kafka_are_read_and_not_shown(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        '[syncer.to]\nkafka-addrs = "a:1,b:2"\nenable-tls = true\nca = "ca.pem"\ncert = "c.pem"\nkey = "k.pem"\n'
        'sasl-mechanism = "SCRAM-SHA-512"\nsasl-user = "zq7ann"\nsasl-password = "zq7secret"\n',
    )
    options = producer_options(found.to)
    assert {name: value for name, value in options.items() if name.startswith(("s", "bootstrap"))} == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "c.pem",
        "ssl.key.location": "k.pem",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "zq7ann",
        "sasl.password": "zq7secret",
    }
    assert "zq7" not in repr(found)
    assert producer_options(settings(tmp_path, '[syncer.to]\nkafka-addrs = "a:1"\n').to)["security.protocol"] == "plaintext"


@pytest.mark.parametrize("place", ["syncer.to", "syncer.to.checkpoint"])
def test_an_encrypted_password_is_decrypted_by_the_environments_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("BINLOG_SECRET_KEY", KEY)
    found = settings(tmp_path, f'[{place}]\npassword = "other"\nencrypted_password = "{ENCRYPTED}"\n')
    assert (found.to.password if place == "syncer.to" else found.to.checkpoint.password).value == "a password"
    for key, text in ((KEY, "AAAA"), (KEY, "no base64"), ("12", ENCRYPTED), ("xy", ENCRYPTED)):
        monkeypatch.setenv("BINLOG_SECRET_KEY", key)
        with pytest.raises(ConfigError) as refused:
            settings(tmp_path, f'[{place}]\nencrypted_password = "{text}"\n')
        assert text not in refused.value.message + refused.value.hint


RULE = '[[syncer.table-migrate-rule]]\nbinlog-filter-rule = ["r"]\n'


@pytest.mark.parametrize(
    "text",
    [
        "nonsense = 1",
        "[syncer]\ndb-type = 5",
        "[syncer]\nreplicate-do-db = 5",
        "[syncer.to]\nx = 1",
        '[syncer.to.checkpoint]\nx = "1"',
        '[syncer.to]\ncompressor = "gzip"',
        '[syncer.to.security]\nssl-ca = "x"',
        '[syncer.to.params]\n"a b" = 1',
        "[syncer.to.params]\na = [1]",
        f'{RULE}source = {{ schema = "d" }}',
        f'{RULE}source = {{ schema = "d" }}\n[syncer.binlog-filter-rule.r]\nignore-event = ["explode"]',
        f'{RULE}source = {{ schema = "d" }}\n[syncer.binlog-filter-rule.r]\nignore-sql = ["("]',
        f'{RULE}source = {{ schema = "d" }}\n[syncer.binlog-filter-rule.r]\nignore-events = ["all"]',
        f'{RULE}source = {{ table = "t" }}\n[syncer.binlog-filter-rule.r]',
        f'{RULE}source = {{ schema = "d" }}\ntarget = {{ schema = "e" }}\n[syncer.binlog-filter-rule.r]',
    ],
)
def test_keys_that_cannot_be_followed_stop_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"drainer\.toml"):
        settings(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[syncer]\nworker-count = 0", "worker-count"),
        ("[syncer.to]\nsync-mode = 3", "sync-mode"),
        ('[syncer.to]\nsasl-mechanism = "gssapi"', "gssapi"),
        ('[syncer.to]\nsasl-user = "zq7ann"', "belong together"),
        ('[syncer.to]\nca = "ca.pem"', "enable-tls"),
        ('[syncer.to.checkpoint]\ntype = "oracle"', "oracle"),
        ('[syncer]\ndb-type = "file"\n[syncer.to.checkpoint]\ntype = "mysql"', "needs a host"),
    ],
)
def test_values_that_make_no_sense_stop_the_start(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        settings(tmp_path, text)

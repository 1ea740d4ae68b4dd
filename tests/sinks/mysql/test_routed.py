"""Table routing into a MariaDB: rows and DDLs under other names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.database_runs import delivered, hurried
from tests.support.servers.mariadb import MariaDb

TOML = """
[[sink.dispatchers]]
matcher = ["shop.*"]
target-schema = "mirror"
target-table = "{schema}_{table}"
"""
UPSTREAM = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.a (id INT PRIMARY KEY, v VARCHAR(20), UNIQUE KEY u (v))",
    "CREATE TABLE shop.b (id INT PRIMARY KEY, a INT)",
    "INSERT INTO shop.a VALUES (1, 'x'), (2, 'y')",
    "INSERT INTO shop.b VALUES (1, 1), (2, 2)",
    "ALTER TABLE shop.a ADD COLUMN n INT DEFAULT 7",
    "UPDATE shop.a SET v = 'z', n = 8 WHERE id = 2",
    "RENAME TABLE shop.b TO shop.c",
    "DELETE FROM shop.c WHERE id = 1",
    "CREATE TABLE shop.gone (id INT PRIMARY KEY)",
    "INSERT INTO shop.gone VALUES (1)",
    "DROP TABLE shop.gone",
    "CREATE TABLE shop.empty (id INT PRIMARY KEY)",
    "INSERT INTO shop.empty VALUES (1)",
    "TRUNCATE TABLE shop.empty",
    "CREATE TABLE shop.like_a LIKE shop.a",
)


@pytest.mark.slow
def test_everything_is_under_the_names_of_the_targets(mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hurried(monkeypatch)
    mariadb.clear()
    sql = SqlLog()
    sql.run(*UPSTREAM)
    delivered(sql.write(tmp_path / "log"), mariadb.uri, TOML)
    assert "shop" not in {name for (name,) in mariadb.rows("SHOW DATABASES")}
    assert {name for (name,) in mariadb.rows("SHOW TABLES IN mirror")} == {"shop_a", "shop_c", "shop_empty", "shop_like_a"}
    assert mariadb.rows("SELECT * FROM mirror.shop_a ORDER BY id") == [(1, "x", 7), (2, "z", 8)]
    assert mariadb.rows("SELECT * FROM mirror.shop_c") == [(2, 2)]
    assert mariadb.rows("SELECT * FROM mirror.shop_empty") == []

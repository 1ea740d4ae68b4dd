"""The text of a DDL binlog for a database."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.support.schema.tables import table_version
from tidemill.binlog.ddls import database_text
from tidemill.tidb.schema.model import DBInfo
from tidemill.tidb.schema.tracking.versions import TableVersion


@dataclass
class Catalogue:
    """The databases and tables before a DDL."""

    databases: dict[int, DBInfo] = field(default_factory=lambda: {1: DBInfo(1, "Shop", "", "", 5), 2: DBInfo(2, "d", "", "", 5)})
    tables: dict[int, TableVersion] = field(
        default_factory=lambda: {100: table_version("Shop", "T1"), 101: table_version("d", "u", table_id=101)}
    )


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ALTER TABLE `T1` ADD COLUMN `a` INT", None),
        ("ALTER TABLE `t1` ADD COLUMN `a` INT", "ALTER TABLE `Shop`.`T1` ADD COLUMN `a` INT"),
        ("drop database SHOP", "DROP DATABASE `Shop`"),
        ("CREATE TABLE `n` LIKE `t1`", "CREATE TABLE `Shop`.`n` LIKE `Shop`.`T1`"),
        ("RENAME TABLE `D`.`U` TO `shop`.`x`", "RENAME TABLE `d`.`u` TO `Shop`.`x`"),
        (r"ALTER TABLE `T1` COMMENT = 'a\b'", r"ALTER TABLE `Shop`.`T1` COMMENT = 'a\\b'"),
        ("ALTER TABLE t1 NEWLY", None),
    ],
)
def test_names_are_the_catalogues(query: str, text: str | None) -> None:
    assert database_text(query, "Shop", Catalogue()) == (query if text is None else text)

"""Statements of TiDB up to April 2026, as its parser prints them. The vectors of test_vectors are of 2024."""

from __future__ import annotations

import pytest

from tidemill.tidb.ddltext import DdlSyntaxError, canonical_ddl


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        # partial indexes
        ("create index i on t (a) where b is not null", "CREATE INDEX `i` ON `t` (`a`) WHERE `b` IS NOT NULL"),
        (
            "alter table t add unique u (a) comment 'c' where b > 1 and c = 'x'",
            "ALTER TABLE `t` ADD UNIQUE `u`(`a`) COMMENT 'c' WHERE `b`>1 AND `c`=_UTF8MB4'x'",
        ),
        ("create table t (a int, key k (a) where a < 9)", "CREATE TABLE `t` (`a` INT,INDEX `k`(`a`) WHERE `a`<9)"),
        # columnar and vector indexes
        ("alter table t add columnar index c (a) using inverted", "ALTER TABLE `t` ADD COLUMNAR INDEX `c`(`a`) USING INVERTED"),
        (
            "create vector index v on t ((vec_l2_distance(a))) add_columnar_replica_on_demand using hnsw",
            "CREATE VECTOR INDEX `v` ON `t` ((VEC_L2_DISTANCE(`a`))) ADD_COLUMNAR_REPLICA_ON_DEMAND USING HNSW",
        ),
        # defaults in parentheses
        (
            "create table t (a int default (7), b int default (-7), c char(3) default ('x'), d int default (a))",
            "CREATE TABLE `t` (`a` INT DEFAULT 7,`b` INT DEFAULT -7,`c` CHAR(3) DEFAULT _UTF8MB4'x',`d` INT DEFAULT (`a`))",
        ),
        # options
        ("create table t (a int) affinity 'table'", "CREATE TABLE `t` (`a` INT) /*T![affinity] AFFINITY = 'table' */"),
        ("alter table t affinity = ''", "ALTER TABLE `t` /*T![affinity] AFFINITY = '' */"),
        (
            "create table t (a int secondary_engine_attribute '{}', index i (a) secondary_engine_attribute = '{}') "
            "secondary_engine_attribute '{}'",
            "CREATE TABLE `t` (`a` INT SECONDARY_ENGINE_ATTRIBUTE = '{}',INDEX `i`(`a`) SECONDARY_ENGINE_ATTRIBUTE = '{}') "
            "SECONDARY_ENGINE_ATTRIBUTE = '{}'",
        ),
        (
            "create table t (a int) autoextend_size 4M page_checksum 1 page_compressed=0 page_compression_level 3 "
            "transactional 1 ietf_quotes yes",
            "CREATE TABLE `t` (`a` INT) AUTOEXTEND_SIZE = 4M PAGE_CHECKSUM = 1 PAGE_COMPRESSED = 0 PAGE_COMPRESSION_LEVEL = 3 "
            "TRANSACTIONAL = 1 IETF_QUOTES = yes",
        ),
        ("create table t (a char charset gb18030)", "CREATE TABLE `t` (`a` CHAR CHARACTER SET GB18030)"),
        # regions
        (
            "create table t (a int, key i (a)) split between (0) and (9) regions 2 split index i by (1),(2)",
            "CREATE TABLE `t` (`a` INT,INDEX `i`(`a`)) SPLIT BETWEEN (0) AND (9) REGIONS 2 SPLIT INDEX `i` BY (1),(2)",
        ),
        (
            "alter table t split primary key between (0) and (9) regions 2",
            "ALTER TABLE `t` SPLIT PRIMARY KEY BETWEEN (0) AND (9) REGIONS 2",
        ),
        # masking policies
        (
            "create masking policy p on t (c) as if(current_user() = 'a', c, 'x') restrict on (ctas, update_select) disable",
            "CREATE MASKING POLICY `p` ON `t` (`c`) AS IF(CURRENT_USER()=_UTF8MB4'a', `c`, _UTF8MB4'x') "
            "RESTRICT ON (UPDATE_SELECT, CTAS) DISABLE",
        ),
        ("alter table t add masking policy p on (c) as c restrict on none", "ALTER TABLE `t` ADD MASKING POLICY `p` ON (`c`) AS `c`"),
        ("alter table t modify masking policy p set expression = c", "ALTER TABLE `t` MODIFY MASKING POLICY `p` SET EXPRESSION = `c`"),
        ("alter table t modify masking policy p set restrict on none", "ALTER TABLE `t` MODIFY MASKING POLICY `p` SET RESTRICT ON NONE"),
        ("alter table t enable masking policy p", "ALTER TABLE `t` ENABLE MASKING POLICY `p`"),
        ("alter table t drop masking policy p", "ALTER TABLE `t` DROP MASKING POLICY `p`"),
        # queries
        (
            "create view v as select * from t, lateral (select t.a) x",
            "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW `v` AS SELECT * FROM (`t`) JOIN LATERAL "
            "(SELECT `t`.`a`) AS `x`",
        ),
    ],
)
def test_newer_statements(sql: str, text: str) -> None:
    assert canonical_ddl(sql) == text
    assert canonical_ddl(text, printed=True) == text


@pytest.mark.parametrize(
    "sql",
    [
        "create table t (a int) auto_increment {}",
        "create table t (a int, key (a)) split between (0) and (1) regions {}",
        "create table t (a decimal({}))",
        "create table t (a int default {})",
        "create table t (a int, check (a < {}))",
        "create view v as select 1 limit {}",
        "recover table by job {}",
        "alter table t add partition partitions {}",
    ],
)
def test_numbers_of_any_length_are_no_fault_of_ours(sql: str) -> None:
    with pytest.raises(DdlSyntaxError):
        canonical_ddl(sql.format("9" * 5000))
    canonical_ddl(sql.format("0" * 30 + "7"))

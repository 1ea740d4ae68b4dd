"""Histories of rows and DDLs for simulated drivers."""

from __future__ import annotations

BEFORE = (
    "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
    "INSERT INTO t VALUES (1, 1), (2, 2)",
)

STEPS = (
    ("INSERT INTO t VALUES (3, 3), (4, 4)", "INSERT INTO u VALUES (1, 1)"),
    ("UPDATE t SET v = 30 WHERE id = 3",),
    (),
    ("ALTER TABLE t ADD COLUMN w INT", "INSERT INTO t VALUES (5, 5, 5)"),
    ("RENAME TABLE u TO s", "INSERT INTO s VALUES (2, 2)"),
    ("TRUNCATE TABLE t", "INSERT INTO t VALUES (6, 6, 6)"),
    ("DROP TABLE s", "CREATE TABLE s (id INT PRIMARY KEY, x VARCHAR(10))", "INSERT INTO s VALUES (1, 'a')"),
    ("DELETE FROM t WHERE id = 6", "INSERT INTO s VALUES (2, 'b')"),
)
"""Rows and DDLs of many kinds, also at the end of batches."""

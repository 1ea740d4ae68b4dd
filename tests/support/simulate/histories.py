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

DATABASE_BEFORE = (
    "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE k (a INT, b INT)",
    "CREATE TABLE p (id INT PRIMARY KEY, v INT) "
    "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
    "CREATE TABLE n (id INT PRIMARY KEY, v INT)",
    "INSERT INTO t VALUES (1, 1), (2, 2)",
)

DATABASE_STEPS = (
    ("BEGIN", "INSERT INTO t VALUES (3, 3)", "INSERT INTO u VALUES (1, 1)", "COMMIT", "UPDATE t SET v = 30 WHERE id = 3"),
    ("INSERT INTO t VALUES (4, 4)", "RENAME TABLE t TO x, u TO t, x TO u", "INSERT INTO t VALUES (5, 5)"),
    ("INSERT INTO p VALUES (1, 1), (11, 11)", "INSERT INTO n VALUES (2, 2), (3, 3)", "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE n"),
    ("INSERT INTO k VALUES (1, 2), (1, 2)", "ALTER TABLE k CHANGE a c INT, CHANGE b a INT", "INSERT INTO k (a, c) VALUES (3, 4)"),
    ("INSERT INTO n VALUES (8, 8)", "ALTER TABLE n CHANGE v c INT, ADD COLUMN b INT DEFAULT 5", "INSERT INTO n VALUES (9, 9, 9)"),
    (),
    ("ALTER TABLE u ADD COLUMN w INT DEFAULT 7", "INSERT INTO u VALUES (7, 7, 8)", "DELETE FROM u WHERE id = 1"),
    ("TRUNCATE TABLE p", "INSERT INTO p VALUES (4, 4)", "DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (9)"),
)
"""DDLs of which nothing but a comparison of states tells whether they ran, between rows of tables with and without a key."""

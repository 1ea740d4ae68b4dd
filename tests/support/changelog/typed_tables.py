"""Statements that make tables with columns of every type, and rows for them."""

from __future__ import annotations

TYPES = (
    "CREATE TABLE app.types (id BIGINT PRIMARY KEY, i INT UNSIGNED ZEROFILL, y YEAR, b BIT(12), f FLOAT, d DOUBLE, n DECIMAL(30,6),"
    " e ENUM('a','b''c') NOT NULL, s SET('x','y','z'), dt DATETIME(3), ts TIMESTAMP(6) NULL, t TIME(2), da DATE, j JSON,"
    " c CHAR(9), v VARCHAR(200), x VARBINARY(40), bi BINARY(4), g LONGTEXT, l BLOB)",
    "CREATE TABLE app.strings (a VARCHAR(20), b INT, v TEXT, PRIMARY KEY (a, b))",
    "CREATE TABLE app.keyless (a INT, b VARCHAR(20))",
    "CREATE TABLE app.wide (a INT, `b``=7` BIGINT UNSIGNED, c INT, PRIMARY KEY (`b``=7`, a))",
)
ROWS = (
    "INSERT INTO app.types VALUES (1, 7, 2024, 5, 0.1, 1e20, '123456789.5', 'a', 'x,z', '2024-01-02 03:04:05.678',"
    " '2024-01-02 03:04:05.123456', '-12:13:14.5', '2024-02-29', '{\"b\": [1, 2.5, \"x\\\\u0000\"], \"a\": null}', 'char',"
    " 'it''s \\\\ a\\nline\\r', 'bin', 'ab', 'ünïcode 你好 😀', 'blob')",
    "INSERT INTO app.types (id, e) VALUES (-3, 'b''c'), (9223372036854775807, 'a')",
    "INSERT INTO app.types (id, e, f, d, t) VALUES (2, 'a', -3.4028235e38, 0.1, '838:59:59'), (4, 'a', 1e-30, 123456789.125, '00:00:00')",
    "INSERT INTO app.strings VALUES ('A', 1, 'x'), ('a', 2, 'y'), ('ß', -1, NULL), ('quote''s', 0, ''), ('back\\\\slash', 5, 'z')",
    "INSERT INTO app.keyless VALUES (1, 'one'), (1, 'one'), (NULL, NULL), (2, 'two')",
    "INSERT INTO app.wide VALUES (1, 18446744073709551615, 3), (2, 0, 4), (3, 5, NULL)",
)

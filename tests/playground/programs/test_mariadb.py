"""MariaDB servers of one machine that run beside each other."""

from __future__ import annotations

import contextlib

from tests.support.servers.mariadb import MariaDb


def test_a_server_that_starts_leaves_the_temporary_tables_of_another() -> None:
    with MariaDb() as first, contextlib.closing(first.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE test.kept (v INT) ENGINE=MyISAM")
        cursor.execute("INSERT INTO test.kept VALUES (1)")
        with MariaDb() as second:
            assert second.rows("SELECT 1") == [(1,)]
        cursor.execute("FLUSH TABLES")
        cursor.execute("SELECT v FROM test.kept")
        assert cursor.fetchall() == ((1,),)
        cursor.execute("DROP TEMPORARY TABLE test.kept")

"""What the tests of the MySQL sink share. Those that take a server run with a real TiDB or MySQL too, see `databases`."""

from tests.support.servers.databases import mariadb

__all__ = ["mariadb"]

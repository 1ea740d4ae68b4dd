"""What the tests of the MySQL sink share."""

from tests.support.servers.mariadb import mariadb

__all__ = ["mariadb"]

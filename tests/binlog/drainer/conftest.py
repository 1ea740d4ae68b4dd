"""What the tests of the Drainer share."""

from tests.support.servers.mariadb import mariadb

__all__ = ["mariadb"]

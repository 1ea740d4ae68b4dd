"""What the tests of Reparo share."""

from tests.support.servers.mariadb import mariadb

__all__ = ["mariadb"]

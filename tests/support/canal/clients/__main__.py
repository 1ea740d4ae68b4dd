"""`python -m tests.support.canal.clients`: fetch the clients that tests run, so that tests need no network."""

from tests.support.canal.clients import fetch

fetch()

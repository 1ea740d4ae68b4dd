"""Fixtures for pytest: `from tidemill.testing.fixtures import tidemill_upstream` in a conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidemill.testing.upstream import Upstream


@pytest.fixture
def tidemill_upstream() -> Iterator[Upstream]:
    """A TiDB of the test's own, whose changes are captured."""
    with Upstream() as upstream:
        yield upstream

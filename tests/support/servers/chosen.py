"""Which servers stand in the place of the session's MariaDB: `TIDEMILL_DATABASES="tidb mysql"` names them (`make realdb`)."""

from __future__ import annotations

import os

import pytest

NAMES = os.environ.get("TIDEMILL_DATABASES", "").split()


def only_databases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With other servers only what takes one runs, and of that what is not about another server's ways."""
    if not NAMES:
        return
    kept = [item for item in items if isinstance(item, pytest.Function) and "mariadb" in item.fixturenames]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
    for item in kept:
        if (mark := item.get_closest_marker("mariadb")) is not None:
            item.add_marker(pytest.mark.skip(f"MariaDB alone: {mark.args[0]}"))
        elif (mark := item.get_closest_marker("not_tidb")) is not None and item.callspec.params["mariadb"] == "tidb":
            item.add_marker(pytest.mark.skip(f"not in TiDB: {mark.args[0]}"))

"""Flags of `tidemill diff` reach the comparison."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.capture.config import DEFAULT_SCANS
from tidemill.cli.downstream import diff
from tidemill.cli.main import main
from tidemill.diff import session
from tidemill.diff.job import OnSpark
from tidemill.errors import ConfigError


@pytest.mark.parametrize(("flags", "scans"), [((), DEFAULT_SCANS), (("--tikv-scans", "3"), 3)])
def test_scans_at_once(monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], scans: int) -> None:
    """… and each job of it has no more tasks than may scan at once, where Spark could run more."""
    asked: list[session.Options] = []

    class Noting:
        def __init__(self, upstream: Any, place: Any, wish: Any, options: session.Options, show: Any) -> None:
            asked.append(options)

        def run(self) -> Any:
            raise ConfigError("seen")

    monkeypatch.setattr(session, "Comparison", Noting)
    monkeypatch.setattr(diff, "_downstream", lambda *_: (None, None))
    monkeypatch.setattr(diff, "_upstream", lambda *_: None)
    with pytest.raises(SystemExit):
        main(["diff", "--pd", "h:1", "--sink-uri", "mysql://h:1/", *flags])
    (options,) = asked
    assert options.scans == scans
    context = Context()
    OnSpark(context, options.scans)._made([None] * 1000)  # type: ignore[list-item]
    assert context.tasks == scans


class Context:
    """A Spark of many cores."""

    defaultParallelism = 1000
    tasks = 0

    def parallelize(self, work: list[Any], tasks: int) -> None:
        self.tasks = tasks

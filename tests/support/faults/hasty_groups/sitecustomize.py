"""Python imports this by itself when it starts with this folder on its PYTHONPATH: a coordinator of that process gives up a group that is
silent after a third of the time. It does so in the same way.
"""

from typing import Any

from tidemill.capture.groups.scheduler import Scheduler

SILENT_AFTER_S = 10.0

_made = Scheduler.__init__


def _hasty(self: Scheduler, *arguments: Any, **named: Any) -> None:
    _made(self, *arguments, **{**named, "silent_after": SILENT_AFTER_S})


Scheduler.__init__ = _hasty  # type: ignore[method-assign]

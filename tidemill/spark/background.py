"""A Spark context that starts in the background, so that what does not need it does not wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from tidemill.delivery.machine.failures import JobLost, Stopped
from tidemill.errors import SparkUnavailable, TidemillError

log = logging.getLogger(__name__)

POLL_S = 0.2


class BackgroundSpark:
    """The context."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        """`begin` starts and returns it, as `session.start_context`."""
        self._begin_context = begin
        self._begun, self._ended = False, threading.Event()
        self._context: Any = None
        self._error: TidemillError | None = None

    def start(self) -> None:
        """Start it in a thread. Nothing happens if it has been started."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._start, name="spark", daemon=True).start()

    def _start(self) -> None:
        try:
            self._context = self._begin_context()
            log.info("Spark %s is up at %s", self._context.version, self._context.master)
        except TidemillError as error:
            self._error = error
        finally:
            if self._context is None and self._error is None:  # Python prints what its thread raised
                self._error = SparkUnavailable("Spark did not start")
            self._ended.set()

    @property
    def is_up(self) -> bool:
        """Whether it has started."""
        return self._context is not None

    def check_start(self) -> None:
        """Raises why it did not start."""
        if self._error is not None:
            raise self._error

    def check(self) -> None:
        """Raises why it did not start, or JobLost if its Java process was there and is gone."""
        self.check_start()
        process = getattr(getattr(self._context, "_gateway", None), "proc", None)
        if process is not None and process.poll() is not None:
            raise JobLost("Spark's Java process is gone")

    def stop(self) -> None:
        """Stop it, if it is there."""
        if self._context is not None:
            from tidemill.spark.session import stop_spark

            stop_spark(self._context)

    def context(self, stop: threading.Event) -> Any:
        """Return it, once it is there. Raises Stopped, also if it did not start: no attempt of this process can help, and `check_start`
        tells why."""
        while not self._ended.wait(POLL_S):
            if stop.is_set():
                raise Stopped("stopped while Spark was starting")
        if self._error is not None:
            raise Stopped("Spark did not start") from self._error
        return self._context

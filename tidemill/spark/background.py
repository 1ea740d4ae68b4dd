"""A Spark session that starts in the background, so that what does not need it does not wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from tidemill.delivery.machine.failures import JobLost, Stopped
from tidemill.errors import TidemillError

log = logging.getLogger(__name__)

POLL_S = 0.2


class BackgroundSpark:
    """The session."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        """`begin` starts and returns it, as `session.start_session`."""
        self._begin_session = begin
        self._begun, self._ended = False, threading.Event()
        self._session: Any = None
        self._error: TidemillError | None = None

    def start(self) -> None:
        """Start it in a thread. Nothing happens if it has been started."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._start, name="spark", daemon=True).start()

    def _start(self) -> None:
        try:
            self._session = self._begin_session()
            log.info("Spark %s is up at %s", self._session.version, self._session.sparkContext.master)
        except TidemillError as error:
            self._error = error
        self._ended.set()

    @property
    def is_up(self) -> bool:
        """Whether it has started."""
        return self._session is not None

    def check(self) -> None:
        """Raises why it did not start, or JobLost if its Java process was there and is gone."""
        if self._error is not None:
            raise self._error
        process = getattr(getattr(self._session and self._session.sparkContext, "_gateway", None), "proc", None)
        if process is not None and process.poll() is not None:
            raise JobLost("Spark's Java process is gone")

    def stop(self) -> None:
        """Stop the session, if there is one."""
        if self._session is not None:
            from tidemill.spark.session import stop_session

            stop_session(self._session)

    def context(self, stop: threading.Event) -> Any:
        """Return Spark's context, once it is there. Raises Stopped, SparkUnavailable and what else a start refuses."""
        while not self._ended.wait(POLL_S):
            if stop.is_set():
                raise Stopped("stopped while Spark was starting")
        if self._error is not None:
            raise self._error
        return self._session.sparkContext

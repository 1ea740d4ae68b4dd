"""The delivery host, a process: `python -m tidemill.server.host.process`, with a `HostOrder`. `tidemill server` starts and supervises it.

It starts and stops changefeeds as the server says (`messages.py`), and ends with 0 after SIGTERM or SIGINT, each changefeed at the end of
its batch. If Spark's Java process dies, or the log is broken, it ends with an error and is started again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidemill import logs
from tidemill.changefeed.feed_folder import FeedLocked, below
from tidemill.changefeed.feed_status import described
from tidemill.changefeed.runner_options import Options
from tidemill.changelog.log_format import SERVER
from tidemill.errors import MalformedMessage, TidemillError
from tidemill.extras import ExtraMissing
from tidemill.process import lifeline, orders
from tidemill.process.ending import reported
from tidemill.protocols.all import PROTOCOLS
from tidemill.protocols.spec import load
from tidemill.rules.skip import parse_skip_rows
from tidemill.server.host.feed import HostedFeed, Shared
from tidemill.server.host.messages import HostOrder, parse, progress, report
from tidemill.server.host.shared_log import SharedLog
from tidemill.server.host.shared_spark import SharedSpark
from tidemill.server.settings import FeedSettings
from tidemill.traces import process as traces

log = logging.getLogger("tidemill.server.host.process")  # as a program its __name__ is another

PROGRESS_EVERY_S = 1.0
LOCK_POLL_S = 0.2
END_WITHIN_S = 20.0
"""How long changefeeds may take to end their batches, when the host ends."""


class Host:
    """Runs changefeeds until it is to end."""

    def __init__(self, order: HostOrder, spark: SharedSpark) -> None:
        self._order, self._spark = order, spark
        self.over = threading.Event()
        self._error: TidemillError | None = None
        self._log: SharedLog | None = None
        self._opening = threading.Lock()
        self._saying = threading.Lock()
        self._feeds: dict[str, HostedFeed] = {}
        self._shared = Shared(self._shared_log, spark, self._say)

    def run(self) -> None:
        """Run until `over` is set. Raises what ended it."""
        self._say(report("up"))
        while not self.over.wait(PROGRESS_EVERY_S):
            moved = {feed.feed: figures for feed in [*self._feeds.values()] if (figures := feed.figures()) is not None}
            if moved:
                self._say(progress(moved))
            try:
                self._spark.check()
            except TidemillError as error:
                self._error = self._error or error
            if self._error is not None:
                break
        self.over.set()
        self._end()
        if self._error is not None:
            raise self._error

    def heard(self, line: bytes) -> None:
        """Carry out a command; called in the thread that reads stdin."""
        try:
            found = parse(line)
            match found.get("do"):
                case "start":
                    settings = orders.from_plain(FeedSettings, found["settings"])
                    self._start(settings, int(found["run"]), retries=bool(found.get("retries")))
                case "stop":
                    self._stop(str(found["feed"]))
                case "log":
                    logs.set_level(str(found["level"]))
                case other:
                    raise MalformedMessage(f"no such command: {other!r}")
        except (TidemillError, KeyError, ValueError, TypeError, AttributeError, OSError) as error:
            log.error("a command of the server cannot be carried out: %s", error)

    def _start(self, settings: FeedSettings, run: int, *, retries: bool) -> None:
        feed = settings.changefeed
        old = self._feeds.get(feed)
        if old is not None and not old.join(0):  # one that was removed while its sink did not answer
            text = f"the batch of an earlier changefeed {feed} has not ended yet"
            self._say(report("ended", feed=feed, run=run, how="failed", code=FeedLocked.code, message=text, retryable=True))
            return
        try:
            options = self._options(settings, retries)
        except TidemillError as error:
            self._say(report("ended", feed=feed, run=run, how="failed", **described(error), retryable=False))
            return
        hosted = self._feeds[feed] = HostedFeed(options, run, self._shared)
        self._spark.start()
        hosted.start()

    def _options(self, settings: FeedSettings, retries: bool) -> Options:
        order = self._order
        return Options(
            changefeed=settings.changefeed,
            log=order.log,
            data_dir=order.data_dir,
            sink_uri=settings.sink_text(order.data_dir),
            config=settings.checked(),
            tz=settings.tz,
            start_ts=settings.start_ts,
            target_ts=settings.target_ts or None,
            trigger_ms=order.trigger_ms,
            retry_s=min(order.retry_s, settings.checked().stuck_s),
            supervised=True,
            retries=retries,
            shared=below(order.log, SERVER),
            term=order.term,
            created_at=settings.created_at,
            skip_rows=parse_skip_rows(settings.skip_rows),
        )

    def _stop(self, feed: str) -> None:
        hosted = self._feeds.get(feed)
        if hosted is not None:
            hosted.stop()

    def _shared_log(self) -> SharedLog:
        """The log, opened once. Raises as LogReader."""
        with self._opening:
            if self._log is None:
                self._log = SharedLog(self._order.log)
                threading.Thread(target=self._log.watch, args=(self.over, self._on_broken_log), name="log", daemon=True).start()
            return self._log

    def _on_broken_log(self, error: TidemillError) -> None:
        self._error = error
        self.over.set()

    def _end(self) -> None:
        feeds = [*self._feeds.values()]
        for feed in feeds:
            feed.stop()
        deadline = time.monotonic() + END_WITHIN_S
        left = [feed.feed for feed in feeds if not feed.join(max(0.0, deadline - time.monotonic()))]
        if left:
            log.warning("the batch did not end of %s; it is delivered again after the next start", ", ".join(left))
        if not self._spark.is_here:  # Java on this machine ends with this process, and another server waits to lead meanwhile
            self._spark.stop()

    def _say(self, line: bytes) -> None:
        with self._saying:
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except (OSError, ValueError):
                self.over.set()  # the server is gone


@contextmanager
def _alone(data_dir: Path, over: threading.Event) -> Iterator[None]:
    """Wait until a host of a server that was killed has ended: it may be in the middle of its batches."""
    with open(data_dir / "host.lock", "a+b") as file:
        told = False
        while not over.is_set():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    told = True
                    log.info("waiting for the delivery host of the server before this one to end")
                over.wait(LOCK_POLL_S)
        yield


class Beginning:
    """The host before it has begun: what it loads while another server leads."""

    def __init__(self) -> None:
        self._spark: SharedSpark | None = None

    def spark(self, order: HostOrder) -> SharedSpark:
        """Return the Spark of the host; one that is loaded stays."""
        if self._spark is None:
            self._spark = SharedSpark(order.data_dir / "spark.log", order.master, order.spark_conf)
        return self._spark

    def load(self, order: HostOrder) -> None:
        """Load what batches use. Spark on a cluster would hold the cluster's cores, so it is left for later."""
        _begin(order)
        for protocol in PROTOCOLS.values():
            with suppress(ExtraMissing):
                load(protocol.encoder)
        spark = self.spark(order)
        if spark.is_here:
            spark.warm()

    def check(self) -> None:
        """Raises what ended Spark."""
        if self._spark is not None:
            self._spark.check()


def _begin(order: HostOrder) -> None:
    logs.setup(order.log_level, order.log_file, part="delivery")
    traces.begin("delivery")


def main() -> None:
    """Entry point."""
    beginning = Beginning()
    with reported():
        order = orders.take(HostOrder, beginning.load, beginning.check)
        _begin(order)
        host = Host(order, beginning.spark(order))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: host.over.set())
        lifeline.hold(heard=host.heard)
        with _alone(order.data_dir, host.over):
            host.run()
    traces.end()
    logging.shutdown()
    os._exit(0)  # threads whose sink does not answer must not hold the end up


if __name__ == "__main__":
    main()

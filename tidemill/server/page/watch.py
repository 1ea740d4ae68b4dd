"""Keeps what the page shows: an overview of the service that is at most a second old, the history of the last hour, the last log lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from tidemill.metrics.rate import Rate
from tidemill.server import service as s
from tidemill.server.page import overview as o
from tidemill.server.page.history import STEP_S, History, Point
from tidemill.server.page.log_lines import FileEnd, Ring
from tidemill.server.page.tables import tables

FRESH_S = 1.0
"""An overview is made again when it is so old, however many look at it."""
TAIL_S = 1.0
"""How often a log file is looked at while somebody waits for lines."""


class Watch:
    """Of one service. All methods are for its event loop."""

    def __init__(
        self,
        service: s.ChangefeedService,
        *,
        ring: Ring | None = None,
        file: FileEnd | None = None,
        address: str = "",
        tokens: bool = False,
    ) -> None:
        """`file`: the --log-file, whose lines go into the ring while somebody reads. `tokens`: who changes something needs one."""
        self._service, self._address, self._tokens = service, address, tokens
        self._ring, self._file = ring or Ring(), file
        self._reading = asyncio.Lock()
        self.history = History()
        self._rates: dict[str, Rate] = {}
        self._made: dict[str, Any] = {}
        self._made_at = 0.0
        self._making = asyncio.Lock()

    async def run(self) -> None:
        """Note the history until it is cancelled."""
        while True:
            self._note(await self._service.changefeeds(state="all"))
            await asyncio.sleep(STEP_S)

    def close(self) -> None:
        """Let nobody wait for log lines any more."""
        self._ring.close()

    def _note(self, infos: Sequence[s.ChangefeedInfo]) -> None:
        now, clock = time.time(), time.monotonic()
        figures = self._service.figures()
        self._rates = {info.id: self._rates.get(info.id) or Rate() for info in infos}
        points = {}
        for info in infos:
            if (f := figures.get(info.id)) is not None:
                self._rates[info.id].note(f.rows, clock)
            lags = [o.lag_s(ts, now) or 0.0 for ts in (info.checkpoint_ts, info.resolved_ts)]
            points[info.id] = Point(lags[0], lags[1], self._rates[info.id].per_second)
        self.history.note(now, points)

    async def overview(self) -> dict[str, Any]:
        """Return everything: see `overview`."""
        async with self._making:
            if time.monotonic() - self._made_at > FRESH_S:
                self._made = await self._overview()
                self._made_at = time.monotonic()
            return self._made

    async def _overview(self) -> dict[str, Any]:
        infos = await self._service.changefeeds(state="all")
        status, captures = await self._service.status(), await self._service.captures()
        figures, now = self._service.figures(), time.time()
        return {
            "now": now,
            "server": o.server(status, self._address, read_only=False, needs_token=self._tokens),
            "captures": [{"id": one.id, "address": one.address, "is_owner": one.is_owner} for one in captures],
            "processes": [o.process(one) for one in self._service.processes()],
            "capture": o.capture(self._service.capture_status(), now),
            "changefeeds": [o.changefeed(info, figures.get(info.id), now, self.history.rows_per_s(info.id)) for info in infos],
        }

    async def tables(self, changefeed_id: str) -> dict[str, Any]:
        """Return the tables of a changefeed: see `tables`. Raises ChangefeedNotExists."""
        info = await self._service.changefeed(changefeed_id)
        lists = await self._service.table_lists(info.given_config)
        return tables(lists, self._service.capture_status(), time.time())

    async def log_lines(self, after: int, wait_s: float) -> dict[str, Any]:
        """Return the lines of the log behind a number, and the number of the last one: `{"last": …, "lines": […]}`. Waits for some
        seconds if there are none."""
        until = time.monotonic() + wait_s
        if self._file is None:
            await self._ring.wait(after, wait_s)
        else:
            await self._read_file()
            while self._ring.after(after)[0] == after and (left := until - time.monotonic()) > 0:
                await self._ring.wait(after, min(left, TAIL_S))
                await self._read_file()
        last, lines = self._ring.after(after)
        return {"last": last, "lines": lines}

    async def _read_file(self) -> None:
        assert self._file is not None
        async with self._reading:
            text = await asyncio.to_thread(self._file.read)
            if text:
                self._ring.add(text)

"""What `tidemill canal ctl` asks of a running server, by files in the store: control/WORD.json, answered by control/WORD.done.json.

So it works wherever the store can be reached, and needs neither a port nor a password of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from tidemill import statefile
from tidemill.canal.conversation.faults import Refused
from tidemill.canal.conversation.subscriber import Key
from tidemill.canal.server.connection import Office
from tidemill.changelog.storage.base import Storage
from tidemill.errors import TidemillError
from tidemill.tso import MAX_TS, describe

CONTROL = "control"
DONE = ".done.json"
EVERY_S, EVERY_REMOTE_S = 0.25, 2.0
"""So often the server looks whether something is asked: in a folder, in other storage."""

_log = logging.getLogger(__name__)


class Control:
    """Does what is asked, for one server."""

    def __init__(self, office: Office, storage: Storage) -> None:
        self._office, self._storage = office, storage

    async def run(self) -> None:
        """Until cancelled."""
        every = EVERY_S if self._storage.local else EVERY_REMOTE_S
        while True:
            try:
                for name, data in await asyncio.to_thread(self._asked):
                    answer = await self._do(data)
                    await asyncio.to_thread(self._answer, name, answer)
            except TidemillError as error:
                _log.debug("what is asked by ctl cannot be read now: %s", error)
            await asyncio.sleep(every)

    def _asked(self) -> list[tuple[str, bytes]]:
        found = []
        for name in self._storage.names(CONTROL):
            if name.endswith(".json") and not name.endswith(DONE) and not name.startswith("."):
                data = self._storage.read(f"{CONTROL}/{name}")
                if data is not None:
                    found.append((name, data))
        return found

    def _answer(self, name: str, answer: dict[str, Any]) -> None:
        self._storage.replace(f"{CONTROL}/{name.removesuffix('.json')}{DONE}", json.dumps(answer).encode(), durable=False)
        self._storage.delete(f"{CONTROL}/{name}")

    async def _do(self, data: bytes) -> dict[str, Any]:
        try:
            asked = statefile.read(data, "not a request")
            key, what = Key(asked.text("destination"), asked.integer("client", -MAX_TS)), asked.text("do")
            if what == "seek":
                await self._seek(key, asked.integer("ts"))
            elif what == "forget":
                await self._forget(key)
            else:
                return {"error": f"{what!r} is not known to this server"}
        except TidemillError as error:
            return {"error": error.message}
        return {}

    async def _seek(self, key: Key, ts: int) -> None:
        await self._office.reading.look()
        check_seek(ts, self._office.reading.begins, self._office.reading.head)
        client = self._office.desk.seek(key, ts)
        self._office.saving.save(client)
        self._office.reading.wake()
        await self._office.saving.safe(key)
        _log.info("%s was moved to %s by ctl", key, describe(ts))

    async def _forget(self, key: Key) -> None:
        if not self._office.desk.forget(key):
            raise unknown_client(key)
        self._office.reading.wake()
        await self._office.saving.forget(key)
        _log.info("%s was forgotten by ctl", key)


def check_seek(ts: int, begins: int, head: int) -> None:
    """Raises Refused for a place that is not in the store."""
    if not begins <= ts <= head or ts > MAX_TS:
        raise Refused(0, f"{describe(ts)} lies outside of the store, which holds {describe(begins)} to {describe(head)}")


def unknown_client(key: Key) -> Refused:
    """Nobody has subscribed so."""
    return Refused(0, f"{key} is not known")

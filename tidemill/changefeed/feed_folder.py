"""The durable state of a changefeed: STATE/changefeeds/ID, where STATE is a path or a URL, by default the data folder DIR.

feed.json        the settings it was created with, and its state, with the error if it failed. A later start with other settings is refused.
                 A changefeed of a server has both in LOG/server/state.json instead
checkpoint.json  everything at or below checkpoint_ts is delivered and acknowledged. If `partitions` is there, it says how far each log
                 partition is. Synced; only the newest driver can write it

The files of one machine: DIR/changefeeds/ID.

canal.json       how the server of a canal:// sink is doing; may be lost
delivery.json    how the delivery is doing, after each batch; may be lost. `tidemill run` makes status.json from it
schemas.jsonl    schema ids from the schema registry; may be lost
lock             held by the process that delivers; run.lock by the supervisor
packs/, spark.log; capture/: the capture's own
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO, Any

from tidemill.changefeed.feed_status import Status, usable_status
from tidemill.changefeed.states import State
from tidemill.changelog.storage import durable, outcomes
from tidemill.changelog.storage.open import Storage, open_storage
from tidemill.changelog.storage.status_file import StatusFile
from tidemill.config.file import given_in
from tidemill.delivery.guarded import EPOCH, GuardedFile, parsed
from tidemill.delivery.position import Position, SavedPosition
from tidemill.errors import DiskLow, FeedMismatch, TidemillError, redact
from tidemill.statefile import FEED_FILE, Fields
from tidemill.tso import SavedTs, physical_ms

_log = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.json"
PARTS = "partitions"
"""The field of checkpoint.json that says how far each log partition is, if they are not equally far."""


class FeedLocked(TidemillError):
    """Another process delivers this changefeed."""

    code = "TM:ErrFeedLocked"


@dataclass(frozen=True, slots=True)
class FeedIdentity:
    """feed.json: what a changefeed was created with. `sink` has no secrets: those may change."""

    changefeed: str
    cluster_id: str
    log: str
    sink: str
    config: Mapping[str, Any]
    tz: str
    start_ts: int


_SHOWN = {
    "changefeed": "its name",
    "cluster_id": "the cluster",
    "log": "--log",
    "sink": "--sink-uri",
    "tz": "--tz",
    "start_ts": "--start-ts",
}


class FeedFolder:
    """The folder of one changefeed on this machine, and its state, which may be stored elsewhere."""

    def __init__(self, data_dir: Path, changefeed: str, state: str | None = None, *, shared: str | None = None, term: int = 0) -> None:
        """`state`: where all its durable state is; None: here. `shared`: where its checkpoint is, for all servers of a log; None: with the
        state. `term`: of the server that leads."""
        self.path = data_dir.absolute() / "changefeeds" / changefeed
        self.changefeed = changefeed
        self._state = open_storage(below(state, f"changefeeds/{changefeed}") if state is not None else self.path)
        self._shared = open_storage(below(shared, f"changefeeds/{changefeed}")) if shared is not None else self._state
        self._term = term
        self._guarded: GuardedFile | None = None
        self._epoch = 0
        self._locks: dict[str, IO[str]] = {}
        self._status_file = StatusFile(self.delivery, f"changefeed {changefeed}")

    @property
    def old_epoch(self) -> int:
        """The epoch in the fence file of an earlier version of Tidemill, which was stored here; 0 without one."""
        try:
            return int((self.path / "epoch").read_bytes())
        except (FileNotFoundError, ValueError):
            return 0

    def last_epoch(self) -> int:
        """Return the newest epoch that the folder knows of. The fence begins above it, also where the fence's own file is lost.

        Raises FeedBroken, LogUnavailable."""
        return max(self.old_epoch, self._claimed_epoch())

    def _claimed_epoch(self) -> int:
        content = self._read(CHECKPOINT)
        return int(content[EPOCH]) if content is not None else 0

    @property
    def packs(self) -> Path:
        return self.path / "packs"

    @property
    def spark_log(self) -> Path:
        return self.path / "spark.log"

    @property
    def schemas(self) -> Path:
        return self.path / "schemas.jsonl"

    @property
    def delivery(self) -> Path:
        return self.path / "delivery.json"

    @property
    def server(self) -> Path:
        """The status of the server for Canal's clients."""
        return self.path / "canal.json"

    @property
    def capture(self) -> Path:
        return self.path / "capture"

    def lock(self, name: str = "lock") -> None:
        """Lock the folder until this process ends: only one process delivers a changefeed (`run.lock`: supervises it).

        Raises FeedLocked with the other's pid.
        """
        with outcomes.storage_errors(str(self.path), writing=True):
            durable.make_folder(self.path)  # checkpoint.json may be in it
            file = open(self.path / name, "a+", encoding="ascii", errors="replace")  # noqa: SIM115 — held as long as the process lives
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise FeedLocked(
                f"changefeed {self.changefeed} in {self.path} is delivered by process {owner or 'unknown'}",
                hint="End that process, or choose another --changefeed-id or --data-dir.",
            ) from None
        except OSError as error:
            file.close()
            raise outcomes.error_of(outcomes.outcome_of(error), str(self.path / name), error.strerror or error) from error
        try:
            with outcomes.storage_errors(str(self.path / name), writing=True):
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
        except DiskLow:  # the lock is held all the same: only its holder's number is missing
            _log.debug("%s does not say who holds it: the disk is full", self.path / name)
        self._locks[name] = file

    def unlock(self) -> None:
        """Release the locks, so that another process may deliver."""
        while self._locks:
            self._locks.popitem()[1].close()

    def identity(self) -> FeedIdentity | None:
        """feed.json; None for a changefeed that was never started. Raises FeedBroken."""
        content = self._read("feed.json")
        if content is None:
            return None
        found = self._fields("feed.json", content)
        texts = {name: found.text(name) for name in ("changefeed", "cluster_id", "log", "sink", "tz")}
        return FeedIdentity(**texts, config=found.plain("config"), start_ts=found.integer("start_ts"))

    def settle(self, wanted: FeedIdentity, *, start_given: bool) -> FeedIdentity:
        """Create the changefeed, or make sure that it has the wanted settings. Without a given start-ts it keeps the one it has.

        A changefeed that failed before it delivered anything may be started with other settings, because those it had did not work.

        Raises FeedMismatch naming what differs, FeedBroken.
        """
        known = self.identity()
        if known is not None and self._stillborn():
            wanted = wanted if start_given else replace(wanted, start_ts=known.start_ts)
        elif known is not None:
            return self.check(known, wanted, start_given=start_given)
        self._write("feed.json", asdict(wanted))
        return wanted

    def _stillborn(self) -> bool:
        return self.checkpoint() is None and (self.status() or {}).get("state") == State.FAILED

    def check(self, known: FeedIdentity, wanted: FeedIdentity, *, start_given: bool) -> FeedIdentity:
        """The changefeed as it was created. Raises FeedMismatch naming the settings that differ from the wanted ones."""
        for name in ("cluster_id", "log", "sink", "tz", *(["start_ts"] if start_given else [])):
            old, new = getattr(known, name), getattr(wanted, name)
            if old != new:
                raise self._mismatch(_SHOWN[name], old, new)
        old_config, new_config = given_in(known.config), given_in(wanted.config)
        if old_config != new_config:
            raise self._config_mismatch(old_config, new_config)
        return known

    def _mismatch(self, what: str, old: object, new: object) -> FeedMismatch:
        return FeedMismatch(
            f"changefeed {self.changefeed} was created with another value of {what}: {old}, now {new}",
            hint="Start it as before, or choose another --changefeed-id.",
        )

    def _config_mismatch(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> FeedMismatch:
        names = sorted(k for k in {*old, *new} if old.get(k) != new.get(k))
        return self._mismatch(f"--config ({', '.join(names)})", {k: old.get(k) for k in names}, {k: new.get(k) for k in names})

    def state(self) -> tuple[str, dict[str, Any] | None]:
        """The state in feed.json, with the error if it failed; normal for a changefeed that never failed. Raises FeedBroken."""
        content = self._read("feed.json")
        if content is None:
            return State.NORMAL, None
        found = self._fields("feed.json", content)
        error = found.plain("error") if "error" in found else None
        usable = error is not None and {"code", "message"} <= error.keys()
        return found.text("state", default=State.NORMAL), error if usable else None

    def save_state(self, state: State, error: Mapping[str, Any] | None = None) -> None:
        """Write the state into feed.json. Does nothing for a changefeed that was never created. Raises FeedBroken."""
        content = self._read("feed.json")
        noted = {"state": str(state), "error": dict(error) if error is not None else None}
        if content is not None and {name: content.get(name) for name in noted} != noted:
            self._write("feed.json", {**content, **noted})

    def begin(self, identity: FeedIdentity) -> SavedPosition:
        """Where a delivery begins: the checkpoint, or before the first batch the start in feed.json. Raises FeedBroken."""
        return self.position() or SavedPosition(identity.start_ts)

    def position(self) -> SavedPosition | None:
        """The checkpoint, with how far each log partition is; None before the first batch. Raises FeedBroken."""
        content = self._read(CHECKPOINT)
        ts = self._checkpoint_in(content)
        if content is None or ts is None:
            return None
        parts = self._fields(CHECKPOINT, content).integers(PARTS, optional=True)
        return _saved(Position.of(parts) if parts else Position(ts))

    def checkpoint(self) -> SavedTs | None:
        """The checkpoint ts: everything at or below it is delivered. None before the first batch. Raises FeedBroken."""
        return self._checkpoint_in(self._read(CHECKPOINT))

    def _checkpoint_in(self, content: Mapping[str, Any] | None) -> SavedTs | None:
        if content is None:
            return None
        found = self._fields(CHECKPOINT, content)
        if "checkpoint_ts" not in found and content[EPOCH]:  # a driver has claimed the file, and delivered nothing yet
            return None
        return SavedTs(found.integer("checkpoint_ts"))

    def claim(self, driver: str, epoch: int, *, forget: bool = False) -> SavedTs | None:
        """Become the only driver that can move the checkpoint, with the epoch in which this driver took the fence.

        `forget`: what it says is of an earlier changefeed of that name.

        Returns the checkpoint. Raises Fenced if another driver has come since, FeedBroken, LogUnavailable.
        """
        self._guarded, self._epoch = GuardedFile(self._shared, CHECKPOINT, driver, term=self._term), epoch
        kept = () if forget else ("checkpoint_ts", PARTS)
        self._guarded.change(lambda found: {name: found[name] for name in kept if found and name in found}, epoch)
        return self.checkpoint()

    def save_checkpoint(self, ts: int, parts: Sequence[int] = ()) -> SavedPosition:
        """Return the position, which is durable then. Raises Fenced if another driver has claimed it, LogUnavailable."""
        if self._guarded is None:
            self.claim(f"pid {os.getpid()}", 1 + self._claimed_epoch())
        assert self._guarded is not None
        apart = {PARTS: list(parts)} if parts else {}
        self._guarded.write({"checkpoint_ts": ts, **apart}, self._epoch)
        return _saved(Position.of(parts) if parts else Position(ts))

    def save_status(self, status: Status) -> None:
        """Write delivery.json, with the lag and the time as of now. Nothing depends on it: if it cannot be written, that is warned of."""
        now = time.time()
        status.updated_at = now
        status.checkpoint_lag_s = round(max(0.0, now - physical_ms(status.checkpoint_ts) / 1000), 3)
        self._status_file.write({f.name: getattr(status, f.name) for f in fields(status)})

    def status(self) -> dict[str, Any] | None:
        """delivery.json as it was last written; None if it is lost. What of it cannot be used counts as lost, too."""
        found = self._status_file.read()
        return usable_status(found) if found else None

    def _read(self, name: str) -> dict[str, Any] | None:
        storage = self._place_of(name)
        return parsed(storage.read(name), storage.path(name))

    def _place_of(self, name: str) -> Storage:
        return self._shared if name == CHECKPOINT else self._state

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        self._state.replace(name, (json.dumps(content, indent=1) + "\n").encode())

    def _fields(self, name: str, content: Mapping[str, Any]) -> Fields:
        return Fields(content, redact(self._place_of(name).path(name)), FEED_FILE)


def _saved(position: Position) -> SavedPosition:
    return SavedPosition(position.ts, position.parts)


def below(state: str, folder: str) -> str:
    """A folder below a path or a URL; the options of a URL stay at its end."""
    bare, mark, query = state.partition("?")
    return f"{bare.rstrip('/')}/{folder}{mark}{query}"

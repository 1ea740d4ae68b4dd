"""The changefeeds of a server as its process knows them: what they were created with, their life, how far they are; and their files."""

from __future__ import annotations

import json
import logging
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from tidemill import tso
from tidemill.changefeed.feed_folder import FeedFolder, below
from tidemill.changefeed.states import KEPT, State
from tidemill.changelog import feeds
from tidemill.changelog.log_format import SERVER, fence_name
from tidemill.changelog.storage.open import Storage, open_storage
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.config.file import ChangefeedConfig
from tidemill.config.replica_config import with_defaults
from tidemill.delivery.epoch_fence import Fence
from tidemill.errors import FeedBroken, TidemillError, redact
from tidemill.redaction import HIDDEN
from tidemill.server.host.messages import Figures
from tidemill.server.life import RESTS, Life, Trouble
from tidemill.server.service import DEFAULT_NAMESPACE, SORT_ENGINE, ChangefeedInfo, RunningError, TaskStatus
from tidemill.server.settings import FeedSettings
from tidemill.server.shared.records import Record, Records
from tidemill.statefile import FEED_FILE, read

log = logging.getLogger(__name__)

CREATING = "creating"
"""Marks a record whose changefeed is not whole yet: the next server that leads undoes it."""
AT_ONCE = 16
"""Changefeeds that are taken over at once."""
_ADMIN_JOBS = {State.STOPPED: 1, State.FAILED: 1, State.FINISHED: 4, State.REMOVED: 3}


@dataclass
class Feed:
    """A changefeed."""

    settings: FeedSettings
    folder: FeedFolder
    life: Life
    figures: Figures
    config: ChangefeedConfig = field(repr=False)
    released: bool = False
    """The log keeps nothing for it: --gc-ttl is over."""
    warned: tuple[str, ...] = ()
    """What was doubtful when it was created, for as long as this server leads."""

    @property
    def id(self) -> str:
        return self.settings.changefeed

    @property
    def checkpoint_ts(self) -> int:
        return self.figures.checkpoint_ts

    def info(self, *, address: str, resolved_ts: int, gc_ttl: float, tables: tuple[TaskStatus, ...] = ()) -> ChangefeedInfo:
        """Return what the API shows."""
        settings, life = self.settings, self.life
        trouble = life.trouble
        checkpoint_s = tso.physical_ms(self.checkpoint_ts) / 1000
        rests = life.state in (State.STOPPED, State.FAILED) and not life.has_expired
        return ChangefeedInfo(
            upstream_id=int(settings.cluster_id),
            namespace=DEFAULT_NAMESPACE,
            id=self.id,
            sink_uri=redact(settings.sink_uri),
            create_time=time_of(settings.created_at),
            start_ts=settings.start_ts,
            target_ts=settings.target_ts,
            admin_job_type=_ADMIN_JOBS.get(life.state, 0),
            sort_engine=SORT_ENGINE,
            config=with_defaults(redacted(settings.config), redacted(self.config.model_dump(mode="json", by_alias=True))),
            state=life.state,
            error=running_error(trouble, address),
            error_history=(),
            creator_version=settings.creator_version,
            resolved_ts=max(resolved_ts, self.figures.resolved_ts),
            checkpoint_ts=self.checkpoint_ts,
            checkpoint_time=time_of(checkpoint_s),
            task_status=tables,
            given_config=redacted(settings.config),
            retry_at=time_of(life.retry_at) if life.retry_at is not None else None,
            holds_log_until=time_of(checkpoint_s + gc_ttl) if rests else None,
            warnings=(*self.config.warnings, *self.warned),
        )


def time_of(seconds: float) -> datetime:
    """Return a moment in Unix seconds as an aware datetime."""
    return datetime.fromtimestamp(seconds, UTC)


def running_error(trouble: Trouble | None, address: str) -> RunningError | None:
    """Return an error as the API shows it."""
    if trouble is None:
        return None
    message, _, hint = trouble.message.partition("\n")
    return RunningError(time_of(trouble.since), address, trouble.code, message, hint.strip())


def redacted(found: Any) -> Any:
    """Return settings without secrets."""
    if isinstance(found, Mapping):
        return {name: _hidden(name, value) for name, value in found.items()}
    return [redacted(one) for one in found] if isinstance(found, list) else redact(found) if isinstance(found, str) else found


_SECRET = ("password", "secret", "token", "access-key")


def _hidden(name: str, value: Any) -> Any:
    if isinstance(value, str) and value and any(word in name for word in _SECRET):
        return HIDDEN
    return redacted(value)


def due(feed: Feed, gc_ttl: float, now: float) -> bool:
    """Whether --gc-ttl is over for what it needs of the log: its checkpoint stands still, and lies that far back."""
    life = feed.life
    return life.state in RESTS and not life.has_expired and now - tso.physical_ms(feed.checkpoint_ts) / 1000 > gc_ttl


def _is_of_server(folder: Path) -> bool:
    """Whether a changefeed's folder is a server's: one with feed.json is that of `tidemill run`. (One with settings.json is of an earlier
    build of Tidemill, whose server wrote both.)"""
    return (folder / "settings.json").exists() or not (folder / "feed.json").exists()


class FeedFiles:
    """The changefeeds as the server that leads keeps them, in the log's storage for all servers (`shared.records`, checkpoints). In
    DATA_DIR/changefeeds its host has what may be lost. All methods do IO: call them in a thread."""

    def __init__(self, data_dir: Path, log: str) -> None:
        self._data_dir, self._log = data_dir, log
        self._term = 0

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self._log)

    @cached_property
    def _records(self) -> Records:
        return Records(self._storage)

    def check(self) -> None:
        """Raises NewerState if a newer version of Tidemill has written what servers share, LogCorrupt, LogUnavailable."""
        self._records.read()

    def take(self, least: int, server: str) -> tuple[int, list[Feed]]:
        """Become the server that changes them: when this returns, no other one can move a checkpoint or deliver. Return the term and all
        changefeeds. Raises NewerState, FeedBroken, LogUnavailable."""
        self._term, found = self._records.take(least, server)
        found = found or {}
        for name in [name for name, record in found.items() if record.others.get(CREATING)]:
            log.warning("the creation of changefeed %s did not come to its end: it is undone", name)
            del found[name]
            self._erase(name)
        self._sweep(set(found))
        self.reconcile()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return self._term, [*pool.map(self._taken, sorted(found.items()))]

    def _taken(self, one: tuple[str, Record]) -> Feed:
        name, record = one
        settings = FeedSettings.of(read(json.dumps(record.settings), f"{self._records.place}: {name}", FEED_FILE))
        if settings.changefeed != name:
            raise FeedBroken(
                f"{redact(self._records.place)}: {name} is of changefeed {settings.changefeed}", hint="Restore it from a copy."
            )
        self._fence(name)
        self._prepare(settings)
        error = record.error if record.error is not None and {"code", "message"} <= record.error.keys() else None
        at = error.get("at", 0.0) if error is not None else 0.0
        trouble = Trouble(error["code"], error["message"], at, error.get("since", at)) if error is not None else None
        return self.made(settings, State(record.state) if record.state in KEPT else State.NORMAL, trouble)

    def _fence(self, feed: str, *, forget: bool = False) -> None:
        """End what drivers of earlier terms do: they deliver nothing more, and move no checkpoint."""
        fence = self._fence_of(feed)
        self.folder(feed).claim(fence.driver, fence.take(), forget=forget)

    def _fence_of(self, feed: str) -> Fence:
        floor = max(self.folder(feed).last_epoch(), feeds.epoch_of(self._storage, feed))
        return Fence(self._storage, fence_name(feed), floor=floor, term=self._term)

    def epoch(self, feed: Feed) -> int:
        """Return its epoch. Raises Fenced if another server leads, FeedBroken, LogUnavailable."""
        return self._fence_of(feed.id).look()

    def folder(self, feed: str) -> FeedFolder:
        return FeedFolder(self._data_dir, feed, shared=below(self._log, SERVER), term=self._term)

    def made(self, settings: FeedSettings, state: State = State.NORMAL, trouble: Trouble | None = None) -> Feed:
        """Return a changefeed with these settings, at its checkpoint. Raises ConfigError, FeedBroken."""
        folder = self.folder(settings.changefeed)
        config = settings.checked()
        at = folder.checkpoint()
        counted = folder.status() or {}
        names = ("batches", "rows", "messages", "bytes", "ddls", "skipped_rows")
        checkpoint = settings.start_ts if at is None else at
        figures = Figures(0, checkpoint, checkpoint, **{name: counted.get(name, 0) for name in names})
        life = Life(state, trouble, config.stuck_s)
        return Feed(settings, folder, life, figures, config, released=life.has_expired)

    def saved(self, feed: Feed) -> tso.SavedTs:
        """Return its checkpoint as it is stored; before the first batch its start, which is stored with its settings."""
        return self.folder(feed.id).checkpoint() or tso.SavedTs(feed.settings.start_ts)

    def create(self, settings: FeedSettings) -> Feed:
        """Create a changefeed that needs nothing else. Raises as `begin`."""
        feed = self.begin(settings)
        self.confirm(feed)
        return feed

    def begin(self, settings: FeedSettings) -> Feed:
        """Begin a changefeed. It is durable when this returns, but undone by the next server that leads, unless `confirm` follows. Raises
        NotOwner, LogUnavailable, DiskLow: then nothing of it is left."""
        name = settings.changefeed
        self._fence(name, forget=True)  # a host that was cut off may have left a checkpoint
        self._records.put(name, Record(asdict(settings), State.NORMAL, others={CREATING: True}))
        try:
            self._prepare(settings)
            return self.made(settings)
        except TidemillError:
            self._undo(name)
            raise

    def _undo(self, name: str) -> None:
        try:
            self._erase(name)
        except TidemillError as error:  # the next write of the list, or the next server that leads, does it
            log.warning("what was begun of changefeed %s cannot be removed now: %s", name, error.message)

    def confirm(self, feed: Feed) -> None:
        """All that a new changefeed needs is there: it stays. Raises NotOwner, LogUnavailable."""
        record = self._record(feed, feed.settings)
        self._records.put(feed.id, replace(record, others={name: one for name, one in record.others.items() if name != CREATING}))

    def save(self, feed: Feed, settings: FeedSettings) -> None:
        """Change its settings. Durable when this returns. Raises NotOwner, LogUnavailable."""
        self._records.put(feed.id, self._record(feed, settings))

    def _prepare(self, settings: FeedSettings) -> None:
        """Remove what an earlier changefeed of that name left on this machine."""
        folder = self.folder(settings.changefeed)
        if _is_of_server(folder.path) and (folder.status() or {}).get("created_at") != settings.created_at:
            self._clear(folder.path)

    def save_state(self, feed: Feed) -> None:
        """Write the state down. Raises NotOwner, LogUnavailable."""
        self._records.put(feed.id, self._record(feed, feed.settings))

    def _record(self, feed: Feed, settings: FeedSettings) -> Record:
        """A changefeed as it is stored, with what a later version of Tidemill wrote of it."""
        life, known = feed.life, self._records.known(feed.id) or Record({}, "")
        error = {**asdict(life.trouble), "message": redact(life.trouble.message)} if life.trouble else None
        state = str(State.NORMAL if life.wanted else life.state)
        return Record({**known.settings, **asdict(settings)}, state, error, known.others)

    def flush(self) -> None:
        """Write what could not be written when storage was away. Raises as `save_state`."""
        self._records.flush()

    def overwrite(self, feed: Feed, ts: int) -> None:
        """Move the checkpoint. This server's host must not run the changefeed meanwhile. Raises Fenced if another server leads."""
        self.folder(feed.id).save_checkpoint(ts)
        feed.figures = replace(feed.figures, checkpoint_ts=ts, resolved_ts=ts, moved_at=time.time())

    def fence_off(self, feed: Feed) -> None:
        """End the epoch of a batch that does not end: its tasks and its driver write nothing more once they look."""
        self._fence(feed.id)

    def remove(self, feed: Feed) -> None:
        """Remove all that there is of it: first from the list, so that a crash leaves nothing that counts. Raises NotOwner."""
        self._erase(feed.id)

    def _erase(self, name: str) -> None:
        self._records.drop(name)
        self._storage.delete_folder(f"{SERVER}/changefeeds/{name}")
        feeds.remove(self._storage, name)
        self._clear(self.folder(name).path)

    def _clear(self, folder: Path) -> None:
        """Remove a changefeed's folder of this machine. What a thread of its host still writes goes nowhere."""
        aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.removed")
        with suppress(FileNotFoundError), storage_errors(str(folder)):
            folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def reconcile(self, released: Callable[[], Collection[str]] = frozenset) -> None:
        """Let the log go on where a server registered what no server needs: one that died between the list and the registration, or a host
        of an earlier term that woke. `released`: changefeeds for which the log keeps nothing. Raises LogUnavailable, LogCorrupt."""
        for name in feeds.remove_of_servers(self._storage, lambda: (self._records.read() or {}).keys() - released()):
            log.warning("the log does not wait any more for %s: there is no such changefeed, or its --gc-ttl is over", name)

    def _sweep(self, known: set[str]) -> None:
        """Remove what was left of changefeeds that are not there any more, on this machine and in the log."""
        for path in self._data_dir.glob("changefeeds/*"):
            if path.name not in known and _is_of_server(path):
                shutil.rmtree(path, ignore_errors=True)
        for name in self._storage.subfolders(f"{SERVER}/changefeeds"):
            if name not in known:
                self._storage.delete_folder(f"{SERVER}/changefeeds/{name}")

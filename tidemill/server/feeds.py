"""The changefeeds of a server as its process knows them: what they were created with, their life, how far they are; and their files."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidemill import tso
from tidemill.changefeed.feed_folder import FeedFolder, FeedIdentity
from tidemill.changefeed.states import KEPT, State
from tidemill.changelog.log_format import FENCES, feed_name
from tidemill.changelog.storage.open import open_storage
from tidemill.config.file import ChangefeedConfig
from tidemill.delivery.epoch_fence import Fence
from tidemill.errors import FeedBroken, redact
from tidemill.redaction import HIDDEN
from tidemill.server.host.messages import Figures
from tidemill.server.life import RESTS, Life, Trouble
from tidemill.server.service import DEFAULT_NAMESPACE, SORT_ENGINE, ChangefeedInfo, RunningError, TaskStatus
from tidemill.server.settings import NAME, FeedSettings

_ADMIN_JOBS = {State.STOPPED: 1, State.FAILED: 1, State.FINISHED: 4, State.REMOVED: 3}


@dataclass
class Feed:
    """A changefeed."""

    settings: FeedSettings
    folder: FeedFolder
    life: Life
    figures: Figures
    config: ChangefeedConfig = field(repr=False)

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
            config=redacted(self.config.model_dump(mode="json", by_alias=True)),
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
            warnings=self.config.warnings,
        )


def time_of(seconds: float) -> datetime:
    """Return a moment in Unix seconds as an aware datetime."""
    return datetime.fromtimestamp(seconds, UTC)


def running_error(trouble: Trouble | None, address: str) -> RunningError | None:
    """Return an error as the API shows it."""
    if trouble is None:
        return None
    message, _, hint = trouble.message.partition("\n")
    return RunningError(time_of(trouble.at), address, trouble.code, message, hint.strip())


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


class FeedFiles:
    """DATA_DIR/changefeeds. All methods do IO: call them in a thread."""

    def __init__(self, data_dir: Path, log: str) -> None:
        self._data_dir, self._log = data_dir, log

    def folder(self, feed: str) -> FeedFolder:
        return FeedFolder(self._data_dir, feed)

    def load(self) -> list[Feed]:
        """Return all changefeeds. Raises FeedBroken."""
        paths = sorted(self._data_dir.glob(f"changefeeds/*/{NAME}"))
        return [self._load(path.parent.name) for path in paths if not path.parent.name.startswith(".")]

    def _load(self, feed: str) -> Feed:
        folder = self.folder(feed)
        settings = FeedSettings.load(folder.path)
        if settings.changefeed != feed:
            raise FeedBroken(f"{folder.path / NAME} is of changefeed {settings.changefeed}", hint="Restore the file from a copy.")
        state, error = folder.state()
        trouble = Trouble(error["code"], error["message"], error.get("at", 0.0)) if error is not None else None
        return self.made(settings, State(state) if state in KEPT else State.NORMAL, trouble)

    def made(self, settings: FeedSettings, state: State = State.NORMAL, trouble: Trouble | None = None) -> Feed:
        """Return a changefeed with these settings, at its checkpoint. Raises ConfigError, FeedBroken."""
        folder = self.folder(settings.changefeed)
        config = settings.checked()
        at = folder.checkpoint()
        counted = folder.status() or {}
        names = ("batches", "rows", "messages", "bytes", "ddls", "skipped_rows")
        checkpoint = settings.start_ts if at is None else at
        figures = Figures(0, checkpoint, checkpoint, **{name: counted.get(name, 0) for name in names})
        return Feed(settings, folder, Life(state, trouble, config.stuck_s), figures, config)

    def save(self, settings: FeedSettings, location: str) -> None:
        """Write settings.json, and feed.json, which the runner holds its settings against. Durable when this returns."""
        folder = self.folder(settings.changefeed)
        config = settings.checked()
        identity = FeedIdentity(
            changefeed=settings.changefeed,
            cluster_id=settings.cluster_id,
            log=redact(location),
            sink=config.sink_uri(settings.sink_text(self._data_dir)).identity,
            config=config.given(),
            tz=settings.tz,
            start_ts=settings.start_ts,
        )
        settings.save(folder.path)
        folder.save_identity(identity)

    def save_state(self, feed: Feed) -> None:
        """Write the state down."""
        life = feed.life
        error = {"code": life.trouble.code, "message": redact(life.trouble.message), "at": life.trouble.at} if life.trouble else None
        feed.folder.save_state(State.NORMAL if life.wanted else life.state, error)

    def overwrite(self, feed: Feed, ts: int) -> None:
        """Move the checkpoint. Nobody else may deliver the changefeed meanwhile."""
        FeedFolder(self._data_dir, feed.id).save_checkpoint(ts)
        feed.figures = replace(feed.figures, checkpoint_ts=ts, resolved_ts=ts, moved_at=time.time())

    def fence_off(self, feed: Feed) -> None:
        """End the epoch of a batch that does not end: its tasks and its driver write nothing more once they look."""
        Fence(open_storage(self._log), f"{FENCES}/{feed_name(feed.id)}", floor=feed.folder.last_epoch()).take()

    def remove(self, feed: Feed) -> None:
        """Remove the folder: first under another name, so that a crash leaves nothing that counts."""
        aside = feed.folder.path.with_name(f".{feed.id}.{uuid.uuid4().hex[:8]}.removed")
        feed.folder.path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what a crash left of removed changefeeds."""
        for path in self._data_dir.glob("changefeeds/.*.removed"):
            shutil.rmtree(path, ignore_errors=True)

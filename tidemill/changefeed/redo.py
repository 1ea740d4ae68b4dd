"""`tidemill redo`: the change log as TiCDC's redo log. A database whose changefeed is gone is brought to the log's resolved ts.

Nothing but the log and the database is needed: how far the changefeed had written stands in the database's books, else in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from tidemill.changefeed.replay import Resumed
from tidemill.changelog.feeds import is_passing
from tidemill.changelog.files.bounds import first_ts
from tidemill.changelog.log_format import fence_name
from tidemill.changelog.reader import LogReader
from tidemill.config.uri import SinkUri
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.guarded import TERM, parsed
from tidemill.errors import ConfigError, DiskLow, LogRefused, LogUnavailable, StartTsOutOfLog, redact
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.known import FeedState, feeds
from tidemill.tso import describe

log = logging.getLogger(__name__)

_LOCAL = ("file://", "local://", "nfs://")


def location_of(storage: str) -> str:
    """Return a log's location, also where it is spelled as TiCDC spells a redo log's storage."""
    for scheme in _LOCAL:
        if storage.startswith(scheme + "/"):
            return storage.removeprefix(scheme).partition("?")[0]
    return _s3_location(storage) if storage.startswith("s3://") else storage


def _s3_location(url: str) -> str:
    """Return a URL whose parameters are pyarrow's instead of TiCDC's: endpoint, access-key, secret-access-key, force-path-style."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    endpoint = given.pop("endpoint", "")
    user, password = given.pop("access-key", ""), given.pop("secret-access-key", "")
    given.pop("force-path-style", None)  # it is always so with an endpoint
    given.pop("provider", None)
    if endpoint:
        scheme, mark, host = endpoint.partition("://")
        given |= {"endpoint_override": host if mark else endpoint, "scheme": scheme if mark else "https"}
        given.setdefault("region", "us-east-1")  # else pyarrow asks AWS
    netloc = f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}" if user else parts.netloc
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(given)))


@dataclass(frozen=True, slots=True)
class Meta:
    """What the log says: `checkpoint_ts` of its changefeed (or changefeeds: the least), else the log's start."""

    checkpoint_ts: int
    resolved_ts: int
    feeds: Mapping[str, int]


def meta_of(location: str, feed: str | None = None) -> Meta:
    """Return the ts of a log. Raises LogError, ConfigError for a changefeed that it does not know."""
    reader = LogReader(location)
    known = {name: ts for name, ts in reader.feeds().items() if not is_passing(name)}
    if feed is not None and feed not in known:
        raise ConfigError(f"{redact(location)} knows no changefeed {feed}", hint=f"It knows: {', '.join(sorted(known)) or 'none'}.")
    found = {feed: known[feed]} if feed is not None else known
    return Meta(min(found.values(), default=first_ts(reader)), reader.resolved_ts(), known)


@dataclass(frozen=True, slots=True)
class Start:
    """Where to go on, and whose delivery it is."""

    feed: str
    ts: int
    resumed: Resumed


def start_of(location: str, sink: SinkUri, feed: str | None, start_ts: int | None) -> Start:
    """Return where the delivery into a database goes on. Raises ConfigError, SinkError, SinkUnavailable, StartTsOutOfLog."""
    meta = meta_of(location)
    options = sink.database
    try:
        with closing(Connection(options)) as connection:
            written = feeds(connection)
    except ServerFault as fault:
        raise fault.error(f"{options.host}:{options.port}") from fault
    name = feed or _only(written, meta)
    state = written.get(name)
    begun = Resumed(state.epoch, state.interval[1] if state.interval else None) if state is not None else Resumed(0)
    if start_ts is not None:
        return Start(name, start_ts, Resumed(begun.epoch))
    if state is not None:
        ts = state.interval[0] if state.interval else state.checkpoint_ts
    elif name in meta.feeds:
        ts = meta.feeds[name]
    else:
        raise ConfigError(
            f"neither the database nor the log knows how far changefeed {name} had written",
            hint="Say it by --start-ts: a ts at which the database has all that is below.",
        )
    if ts > meta.resolved_ts:
        raise StartTsOutOfLog(
            f"the database is at {describe(ts)} already, the log {redact(location)} ends at {describe(meta.resolved_ts)}",
            hint="Is this the log of that changefeed?",
        )
    return Start(name, ts, begun)


def take_over(location: str, sink: SinkUri, feed: str | None, start_ts: int | None) -> tuple[Start, Fence | None]:
    """Become the driver of the changefeed, then look where its delivery goes on: one that has begun before, the changefeed's own or that of
    another `redo`, changes nothing from here on. The fence is the changefeed's; None where the log cannot be written.

    Raises as `start_of`, Fenced.
    """
    known = start_of(location, sink, feed, start_ts)
    storage = LogReader(location).storage
    name = fence_name(known.feed)
    try:
        found = parsed(storage.read(name), storage.path(name)) or {}
        fence = Fence(storage, name, floor=known.resumed.epoch, term=found.get(TERM, 0))
        fence.take()
    except (DiskLow, LogRefused, LogUnavailable) as error:
        log.warning(
            "%s cannot be written: no other driver of changefeed %s may run meanwhile: %s", redact(location), known.feed, error.message
        )
        return known, None
    return start_of(location, sink, known.feed, start_ts), fence


def _only(written: Mapping[str, FeedState], meta: Meta) -> str:
    names = sorted(written) or sorted(meta.feeds)
    if len(names) != 1:
        raise ConfigError(
            f"there are {len(names)} changefeeds{': ' + ', '.join(names) if names else ''}", hint="Say which one by --changefeed-id."
        )
    return names[0]

"""`SinkSpec`: all that the rest of Tidemill knows of a sink, and the table of those that are built in.

What a spec names as `module:name` is imported on first use, so a worker loads the libraries of one sink only, and a spec may name what is
in a layer above. Sinks of other packages are entry points of the group `tidemill.sinks`.
"""

from __future__ import annotations

import enum
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult

from tidemill import plugins
from tidemill.config.database import Atomicity
from tidemill.config.lake import DELTA_ON_S3
from tidemill.config.parameters import Parameter, Scheme
from tidemill.errors import ConfigError, redact
from tidemill.protocols.all import spec_of
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.protocols.spec import ProtocolSpec


class Ddls(enum.Enum):
    """What becomes of DDLs."""

    MESSAGES = "messages"  # in TiCDC's text; a RENAME TABLE of several tables is a message a pair
    TABLES = "tables"  # the sink changes its tables
    STATEMENTS = "statements"  # a database runs them: with all names, and for tables that have no key yet


class Place(enum.Enum):
    """What the authority and the path of the sink URI are."""

    HOSTS = "hosts"  # machines that are called, and what is found there
    BUCKET = "bucket"  # or a folder
    FOLDER = "folder"
    SERVED = "served"  # hosts and a name, or without hosts a folder


def _no(uri: Any) -> bool:
    return False


def _yes(uri: Any) -> bool:
    return True


def _never(uri: Any) -> int:
    return 0


def _none(uri: Any) -> str:
    return ""


def _local(uri: Any) -> str:
    """The path of a sink URI that names a folder of this machine."""
    return "" if uri.storage is not None and uri.storage.s3 is not None else str(uri.path)


@dataclass(frozen=True, slots=True)
class Reading:
    """A sink URI that is being read: `given` are the parameters that it or the TOML file has, `values` all, defaults included."""

    text: str
    parts: SplitResult
    scheme: str
    given: Mapping[str, Any]
    values: Mapping[str, Any]
    protocol: ProtocolSpec | None
    encoding: EncodingOptions


_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/@,]+):([0-9]{1,5})")


def hosts_of(parts: SplitResult, text: str) -> tuple[str, ...]:
    """Return each HOST:PORT of a sink URI. Raises ConfigError."""
    if "@" in parts.netloc:
        raise ConfigError(f"sink URI {redact(text)}: user and password go into the parameters sasl-user and sasl-password")
    hosts = tuple(parts.netloc.split(","))
    for host in hosts:
        match = _HOST.fullmatch(host)
        if not match or not 1 <= int(match[2]) <= 65_535:
            raise ConfigError(f"sink URI {redact(text)}: {host!r} is not HOST:PORT")
    return hosts


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """One sink. `task` and `driver` are classes (`module:class`) of the sink URI, see `tidemill.sinks.base`. Functions that are given as
    such take a `SinkUri`."""

    name: str
    schemes: frozenset[str]
    task: str
    driver: str
    wants: Callable[[Any], bool] = _yes
    """Of several sinks with one scheme the first that wants the URI takes it."""
    read: str = ""
    """A function of `Reading` that returns fields of the `SinkUri`: path, options of the sink, an encoding that it changes."""
    place: Place = Place.FOLDER
    topic_in_path: bool = False
    ddls: Ddls = Ddls.MESSAGES
    has_protocol: bool = True
    """Whether rows are messages of a protocol."""
    needs_protocol: bool = True
    """Whether the sink URI has to name one."""
    only_protocol: str = ""
    """The one that it writes, which the sink URI need not name."""
    encoder: str = ""
    """Without a protocol: what encodes rows, a function of (table programs, `EncodingOptions`)."""
    parameters: tuple[Parameter, ...] = ()
    """Parameters of the sink URI that only this sink has; their values are in `SinkUri.own`. For sinks of other packages."""
    keeps_parts: bool = True
    """Its output stays in place, so a delivery can replace the output of an earlier one: the driver's class takes `fresh`."""
    by_commit_ts: bool = False
    """It keeps one order over all tables: each task has a range of commit ts of all tables, and there is one target."""
    one_task: Callable[[Any], bool] = _no
    """Whether one task has all rows, in the order of their commits."""
    shares_tables: Callable[[Any], bool] = _no
    """Of statements: whether tasks may share the rows of a table, by its unique key; else one task has all of them."""
    ends_every_ms: Callable[[Any], int] = _never
    """Batches end at the multiples of so many milliseconds of the upstream's clock. 0: they need not."""
    flush_ms: Callable[[Any], int] = _never
    """Milliseconds for which rows may wait before their file is finished. 0: it has no such files."""
    only_delivered_columns: bool = False
    """Its tables do not have the columns that column selectors leave out."""
    whole_updates: bool = False
    """`ignore-update-only-columns` has no meaning: updates of all columns come, as in TiCDC."""
    server_zone: bool = True
    """Messages that describe tables name the changefeed's zone, as TiCDC's servers do."""
    together: str = ""
    """What it publishes by intervals of time of all tables together; empty: tables may get ahead of each other."""
    folder: Callable[[Any], str] = _none
    """The folder of this machine that it writes to, which is made before a changefeed starts. Empty: there is none."""
    reach: str = ""
    """A function that checks that the downstream answers, before a changefeed starts. Empty: the sink's topic is made."""
    doctor: str = ""
    """A function that yields `Finding`s for `tidemill doctor`."""

    package: str = ""
    """The package that brings it; empty: it is built in."""

    def load(self, place: str) -> Any:
        """Return what `module:name` names. Raises ConfigError if the package that brings it does not have that."""
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            if not self.package:
                raise
            what = f"package {self.package}: the sink {self.name} cannot be used: {place}"
            raise ConfigError(f"{what}: {error}", hint="Mend or remove the package.") from error


_S, _C = "tidemill.sinks.", "tidemill.config."

SINKS = (
    SinkSpec(
        "kafka",
        frozenset({Scheme.KAFKA}),
        _S + "kafka.task:KafkaTaskSink",
        _S + "kafka.driver:KafkaDriverSink",
        read=_C + "kafka:read",
        place=Place.HOSTS,
        topic_in_path=True,
        keeps_parts=False,
        doctor="tidemill.doctor.downstream:kafka",
    ),
    SinkSpec(
        "storage",
        frozenset({Scheme.FILE, Scheme.S3}),
        _S + "storage.task:StorageTaskSink",
        _S + "storage.driver:StorageDriverSink",
        read=_C + "storage:read",
        place=Place.BUCKET,
        folder=_local,
        wants=lambda uri: uri.protocol is not None and bool(spec_of(uri.protocol).file_extension),
        ddls=Ddls.TABLES,
        flush_ms=lambda uri: int(uri.storage.flush_interval_ms),
        whole_updates=True,
        together="files",
        doctor="tidemill.doctor.downstream:folder_or_bucket",
    ),
    SinkSpec(
        "files",
        frozenset({Scheme.FILE, Scheme.S3}),
        _S + "files:FilesTaskSink",
        _S + "files:FilesDriverSink",
        folder=_local,
        read=_C + "storage:read",
        place=Place.BUCKET,
        whole_updates=True,
        together="files",
        doctor="tidemill.doctor.downstream:folder_or_bucket",
    ),
    SinkSpec(
        "canal",
        frozenset({Scheme.CANAL}),
        _S + "canal.task:CanalTaskSink",
        _S + "canal.driver:CanalDriverSink",
        read=_C + "canal:read",
        only_protocol=MessageFormat.CANAL,
        place=Place.SERVED,
        by_commit_ts=True,
        together="entries",
    ),
    SinkSpec(
        "messages",
        frozenset({Scheme.MESSAGES}),
        _S + "messages:MessagesTaskSink",
        _S + "messages:MessagesDriverSink",
        read=_C + "storage:read_messages",
        folder=lambda uri: str(Path(uri.path).parent),
        server_zone=False,
        doctor="tidemill.doctor.downstream:folder_or_bucket",
    ),
    SinkSpec(
        "mysql",
        frozenset({Scheme.MYSQL}),
        _S + "mysql.task:MysqlTaskSink",
        _S + "mysql.driver:MysqlDriverSink",
        read=_C + "sink_fields:read_database",
        place=Place.HOSTS,
        ddls=Ddls.STATEMENTS,
        has_protocol=False,
        encoder="tidemill.kernels.sql:SqlRowEncoder",
        one_task=lambda uri: uri.database.atomicity is Atomicity.GLOBAL,
        shares_tables=lambda uri: uri.database.atomicity is Atomicity.NONE,
        ends_every_ms=lambda uri: int(uri.database.sync_point_every),
        reach=_S + "mysql.connection:check_reachable",
        doctor="tidemill.doctor.downstream:database",
    ),
    SinkSpec(
        "lake",
        frozenset({Scheme.DELTA, Scheme.ICEBERG}),
        _S + "lake.task:LakeTaskSink",
        _S + "lake.driver:LakeDriverSink",
        read=_C + "sink_fields:read_lake",
        place=Place.BUCKET,
        ddls=Ddls.TABLES,
        has_protocol=False,
        encoder=_S + "lake.rows:typed_rows",
        flush_ms=lambda uri: int(uri.storage.flush_interval_ms),
        only_delivered_columns=True,
        folder=lambda uri: _local(uri) if uri.scheme is Scheme.DELTA else "",
        together="tables",
        doctor="tidemill.doctor.downstream:lake",
    ),
    SinkSpec(
        "blackhole",
        frozenset({Scheme.BLACKHOLE}),
        _S + "blackhole:BlackholeTaskSink",
        _S + "blackhole:BlackholeDriverSink",
        needs_protocol=False,
        keeps_parts=False,
    ),
)
"""The sinks that are built in."""


WORDS: Mapping[str, Scheme] = {
    **{scheme.value: scheme for scheme in Scheme},
    "kafka+ssl": Scheme.KAFKA,
    **dict.fromkeys(("mysql+ssl", "tidb", "tidb+ssl"), Scheme.MYSQL),
    DELTA_ON_S3: Scheme.DELTA,
}
"""What sink URIs of the built-in sinks begin with."""
LATER = frozenset({"pulsar", "pulsar+ssl", "pulsar+http", "pulsar+https", "gcs", "gs", "azblob", "azure", "noop"})
"""Schemes of TiCDC that are not supported yet."""
RESERVED = frozenset({*WORDS, *LATER})
"""Schemes that no other package can take."""


def brought(scheme: str) -> SinkSpec | None:
    """Return the sink of another package with this scheme. Raises ConfigError for one that cannot be used."""
    point = plugins.offered(plugins.SINKS, RESERVED).get(scheme)
    if point is None:
        return None
    spec: SinkSpec = plugins.load(point, SinkSpec)
    return replace(spec, schemes=frozenset({scheme}), package=plugins.package_of(point))


def of_scheme(scheme: str) -> Iterator[SinkSpec]:
    """Yield the sinks that take URIs of a scheme. Raises ConfigError if there is none."""
    found: list[SinkSpec | None] = [spec for spec in SINKS if scheme in spec.schemes]
    found = found or [brought(scheme)]
    for spec in found:
        if spec is None:
            raise ConfigError(f"no sink is called {scheme}://")
        yield spec

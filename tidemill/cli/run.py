"""`tidemill run`: capture and delivery of one changefeed, each a supervised process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tidemill import logs, tso
from tidemill.changefeed.supervisor import Half, Supervisor
from tidemill.errors import ConfigError, StartTsOutOfLog

CHANGEFEED_ID = re.compile(r"[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*")
LONGEST_ID = 128


@dataclass(frozen=True)
class Plan:
    """What the halves are started with. Timestamps are resolved: numbers, or None where the durable state decides."""

    pd: str
    log: str
    sink_uri: str
    changefeed_id: str
    data_dir: Path
    capture_start_ts: int | None
    feed_start_ts: int | None
    target_ts: int | None
    config: Path | None
    tz: str | None
    log_level: str
    log_file: Path | None
    capture_options: tuple[str, ...] = ()
    feed_options: tuple[str, ...] = ()

    @property
    def feed_folder(self) -> Path:
        return self.data_dir / "changefeeds" / self.changefeed_id

    def halves(self) -> list[Half]:
        """The capture, and the delivery that ends the run. The sink's address goes by the environment: it may hold a password."""
        common = ["--log-level", self.log_level, *(["--log-file", str(self.log_file)] if self.log_file else [])]
        capture = ["capture", "--pd", self.pd, "--log", self.log, "--data-dir", str(self.data_dir / "capture"), *self.capture_options]
        if self.capture_start_ts is not None:
            capture += ["--start-ts", str(self.capture_start_ts)]
        feed = ["--changefeed-id", self.changefeed_id, "--log", self.log, "--data-dir", str(self.data_dir), *self.feed_options]
        for flag, value in (
            ("--start-ts", self.feed_start_ts),
            ("--target-ts", self.target_ts),
            ("--config", self.config),
            ("--tz", self.tz),
        ):
            if value is not None:
                feed += [flag, str(value)]
        python = [sys.executable, "-m"]
        return [
            Half("capture", [*python, "tidemill.cli.main", *capture, *common]),
            Half("changefeed", [*python, "tidemill.changefeed.runner", *feed, *common]),
        ]


def check_id(changefeed_id: str) -> str:
    """Raises ConfigError for a name that TiCDC would refuse too."""
    if not CHANGEFEED_ID.fullmatch(changefeed_id) or len(changefeed_id) > LONGEST_ID:
        raise ConfigError(
            f"changefeed id {changefeed_id!r} is not valid", hint=f"Use letters, digits and single dashes, at most {LONGEST_ID} characters."
        )
    return changefeed_id


async def resolve_times(
    pd: str, log: str, feed_folder: Path, start: str | None, target: str | None
) -> tuple[int | None, int | None, int | None]:
    """(start of the capture, start of the feed, target): what the cluster's clock and the log say about the times asked for.

    A new log starts at --start-ts or now; a new feed on an old log starts at --start-ts or the log's resolved ts; a feed that
    exists goes on, and its own state refuses another start. Raises ConfigError, StartTsOutOfLog and what PD answers.
    """
    from tidemill.capture.tikv.pd import PdClient
    from tidemill.changelog.reader import LogReader, log_exists

    client = await PdClient.connect(pd)
    try:
        now = await client.tso()
    finally:
        await client.close()
    start_ts = tso.parse(start, now) if start is not None else None
    target_ts = tso.parse(target, now) if target is not None else None
    if start_ts is not None and start_ts > now:
        raise ConfigError(f"--start-ts {tso.describe(start_ts)} lies in the future; the cluster's clock says {tso.describe(now)}")
    if start_ts is not None and target_ts is not None and target_ts <= start_ts:
        raise ConfigError(f"--target-ts {tso.describe(target_ts)} is not after --start-ts {tso.describe(start_ts)}")
    exists = (feed_folder / "feed.json").exists()
    if not log_exists(log):
        begin = now if start_ts is None else start_ts
        return begin, begin if not exists else start_ts, target_ts
    if exists:
        return None, start_ts, target_ts
    reader = LogReader(log)
    resolved = reader.resolved_ts()
    begin = resolved if start_ts is None else start_ts
    if not reader.start_ts <= begin <= resolved:
        raise StartTsOutOfLog(
            f"--start-ts {tso.describe(begin)} lies outside the log {log}, which holds {tso.describe(reader.start_ts)} to {tso.describe(resolved)}",
            hint="Choose a ts inside, or start on a new log with --start-ts.",
        )
    return None, begin, target_ts


async def supervise(plan: Plan) -> None:
    """Run both halves until the target is reached or a signal comes. Raises HalfFailed."""
    boss = Supervisor(plan.halves(), until="changefeed")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, boss.stop)
    await boss.run()


def command(
    pd: Annotated[str, typer.Option("--pd", help="PD's address, HOST:PORT; several with commas.")],
    sink_uri: Annotated[str, typer.Option("--sink-uri", help="Where to deliver: kafka://, file://, messages://, blackhole://.")],
    log: Annotated[str, typer.Option("--log", help="Folder or URL of the change log; made when it is not there.")],
    changefeed_id: Annotated[str, typer.Option("--changefeed-id", "-c", help="Name of the changefeed.")] = "default",
    data_dir: Annotated[Path, typer.Option("--data-dir", help="Where state is kept.")] = Path("tidemill-data"),
    start_ts: Annotated[
        str | None, typer.Option("--start-ts", help="TSO, RFC 3339, now or -2h. Default: now, or where the log is.")
    ] = None,
    target_ts: Annotated[str | None, typer.Option("--target-ts", help="Deliver up to this ts, then end.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="Changefeed TOML, TiCDC's keys.")] = None,
    tz: Annotated[str | None, typer.Option("--tz", help="Zone of TIMESTAMP text: IANA name or ±HH:MM. Default: the system's.")] = None,
    log_partitions: Annotated[int | None, typer.Option("--log-partitions", help="Partitions of a new log (4).")] = None,
    log_compression: Annotated[str | None, typer.Option("--log-compression", help="none, lz4 or zstd.")] = None,
    log_retention: Annotated[str | None, typer.Option("--log-retention", help="How long the log is kept at least (24h).")] = None,
    gc_ttl: Annotated[
        int | None, typer.Option("--gc-ttl", help="Seconds that PD keeps history for a capture that is down (86400).")
    ] = None,
    transport: Annotated[str | None, typer.Option("--transport", help="Of the change feed: h2 or grpc.")] = None,
    master: Annotated[str | None, typer.Option("--master", help="Spark master (local[N], N the number of cores).")] = None,
    status_addr: Annotated[str | None, typer.Option("--status-addr", help="Serve /status and /metrics here, HOST:PORT.")] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warn or error.")] = "info",
    log_file: Annotated[Path | None, typer.Option("--log-file", help="Default: stderr.")] = None,
) -> None:
    """Capture a TiDB cluster and deliver its changes to a sink, until stopped.

    Two processes do the work, and each is started again when it dies. SIGTERM ends at the end of a batch.
    """
    from tidemill.changefeed.config import load_config
    from tidemill.changefeed.uri import parse_sink_uri

    logs.setup(log_level, log_file, part="run")
    check_id(changefeed_id)
    parse_sink_uri(sink_uri)
    load_config(config)
    folder = data_dir / "changefeeds" / changefeed_id
    capture_start, feed_start, target = asyncio.run(resolve_times(pd, log, folder, start_ts, target_ts))
    capture_options = _given(
        ("--log-partitions", log_partitions),
        ("--log-compression", log_compression),
        ("--log-retention", log_retention),
        ("--gc-ttl", gc_ttl),
        ("--transport", transport),
        ("--status-addr", status_addr),
    )
    os.environ["TIDEMILL_SINK_URI"] = sink_uri
    plan = Plan(
        pd=pd,
        log=log,
        sink_uri=sink_uri,
        changefeed_id=changefeed_id,
        data_dir=data_dir,
        capture_start_ts=capture_start,
        feed_start_ts=feed_start,
        target_ts=target,
        config=config,
        tz=tz,
        log_level=log_level,
        log_file=log_file,
        capture_options=capture_options,
        feed_options=_given(("--master", master)),
    )
    asyncio.run(supervise(plan))


def _given(*options: tuple[str, object]) -> tuple[str, ...]:
    return tuple(text for flag, value in options if value is not None for text in (flag, str(value)))

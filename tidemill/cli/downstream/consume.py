"""`tidemill consume`: topics of a changefeed into tables, or into any other sink."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill import logs, tso
from tidemill.cli.shared.options import LogLevelOption
from tidemill.cli.shared.terminal import echo
from tidemill.cli.shared.topics import ClaimCheckOption, KafkaOption, PartitionNumOption, ProtocolOption, TopicOption, UpstreamOption
from tidemill.errors import ConfigError

log = logging.getLogger(__name__)

SHOW_S = 0.5
LOG_S = 10.0
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def command(
    sink_uri: Annotated[
        str,
        typer.Option(
            "--sink-uri", "--downstream-uri", help="sqlite:///FILE, mysql://, tidb://, kafka://, file://, messages:// or blackhole://."
        ),
    ],
    topic: TopicOption = None,
    kafka: KafkaOption = None,
    upstream_uri: UpstreamOption = None,
    protocol: ProtocolOption = "auto",
    partition_num: PartitionNumOption = None,
    claim_check: ClaimCheckOption = None,
    target_ts: Annotated[str | None, typer.Option("--target-ts", help="TSO or RFC 3339: end when everything up to it is written.")] = None,
    stop_at_end: Annotated[
        bool, typer.Option("--stop-at-end", help="End when what the topics hold now, as far as it is complete, is written.")
    ] = False,
    skip_ddl: Annotated[
        list[int] | None, typer.Option("--skip-ddl", help="Skip the DDL at this ts, after it was applied by hand. May be repeated.")
    ] = None,
    ended_topic: Annotated[
        list[str] | None,
        typer.Option("--ended-topic", help="A topic that the changefeed no longer writes to: it is read to its end, and not waited for."),
    ] = None,
    group: Annotated[
        str, typer.Option("--consumer-group-id", "--group", help="Commit offsets to Kafka under this group, for tools that watch lag.")
    ] = "",
    state: Annotated[
        Path | None, typer.Option("--state", help="File for the progress of sinks without transactions. Default: named after the sink.")
    ] = None,
    flush_interval: Annotated[str, typer.Option("--flush-interval", help="Rows are written at least this often.")] = "500ms",
    memory_quota: Annotated[str, typer.Option("--memory-quota", help="Pending rows in memory; more go to disk (K, M, G).")] = "256M",
    retry: Annotated[str, typer.Option("--sink-retry", "--retry", help="How long a broker or sink may be away.")] = "10m",
    tz: Annotated[str | None, typer.Option("--tz", help="The changefeed's time zone. Default: the system's.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="Changefeed TOML for a sink of messages: dispatchers.")] = None,
    status_addr: Annotated[str | None, typer.Option("--status-addr", help="Serve /status and /metrics here, HOST:PORT.")] = None,
    log_level: LogLevelOption = "info",
    log_file: Annotated[Path | None, typer.Option("--log-file", help="Default: stderr.")] = None,
) -> None:
    """Read topics that Tidemill or TiCDC wrote, and write them into tables or another sink.

    Repeated rows are dropped, transactions are whole and in order of commit_ts, each DDL is applied once. Progress is stored with the data,
    so it may be killed at any time and continues where it stopped. Ctrl-C or SIGTERM ends it after all complete transactions are written.
    """
    from tidemill.cli.downstream.consume_metrics import samples
    from tidemill.cli.shared.served import served
    from tidemill.config.values import parse_duration
    from tidemill.consumer.kafka import KafkaTopics
    from tidemill.consumer.reading import reader
    from tidemill.consumer.run import Consumer, Options
    from tidemill.consumer.targets import check_loop, open_target
    from tidemill.delivery.zone import parse_zone
    from tidemill.metrics.pages import json_page
    from tidemill.metrics.samples import metrics_page

    logs.setup(log_level, log_file, part="consume")
    upstream = upstream_of(upstream_uri, kafka, topic or [], protocol, partition_num, claim_check)
    for warning in upstream.warnings:
        log.warning("%s", warning)
    options = Options(
        flush_s=_seconds(parse_duration, flush_interval, "--flush-interval"),
        quota=_bytes(memory_quota),
        target_ts=tso.parse(target_ts) if target_ts is not None else None,
        stop_at_end=stop_at_end,
        skipped_ddls=frozenset(skip_ddl or ()),
        ended_topics=frozenset(ended_topic or ()),
        retry_s=_seconds(parse_duration, retry, "--sink-retry"),
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    check_loop(upstream, sink_uri)
    with ExitStack() as stack:
        topics = KafkaTopics(upstream, group)
        stack.callback(topics.close)
        if stop_at_end:
            topics.require()  # before a file is made for it
        target = open_target(sink_uri, zone=parse_zone(tz), state=state, config=config, consumer=group or upstream.names)
        stack.callback(target.close)
        consumer = Consumer(topics, target, reader(upstream.protocol, fetch_of(upstream.claim_check_uri)), options)
        log.info(
            "reading %s, from %s on", upstream, tso.describe(consumer.ordering.flushed_ts) if consumer.ordering.flushed_ts else "the start"
        )
        if status_addr:
            metrics = metrics_page(lambda: samples(consumer.status()))
            stack.enter_context(served(status_addr, {"/status": json_page(consumer.status), "/metrics": metrics}))
        stack.enter_context(_shown(consumer))
        consumer.run(stop)
    status = consumer.status()
    echo(
        f"{status['rows']} rows in {status['transactions']} transactions and {status['ddls']} DDLs, {status['repeated_rows']} repeated rows"
        f" dropped, up to {tso.describe(status['flushed_ts'])}"
    )


def upstream_of(
    uri: str | None,
    kafka: str | None,
    topics: list[str],
    protocol: str,
    partition_num: int | None,
    claim_check: str | None,
    *,
    to_show: bool = False,
) -> Any:
    """What is read, by the flags of `consume`, `verify` and `show`. Raises ConfigError."""
    from dataclasses import replace

    from tidemill.consumer.reading import parse_protocol
    from tidemill.consumer.upstream import upstream

    if (uri is None) == (kafka is None):
        raise ConfigError("give either --kafka or --upstream-uri")
    found = upstream(uri if uri is not None else f"kafka://{kafka}/", topics, to_show=to_show)
    asked = parse_protocol(protocol, to_show=to_show)
    return replace(
        found,
        protocol=found.protocol if asked is None else asked,
        partition_num=partition_num or found.partition_num,
        claim_check_uri=claim_check or found.claim_check_uri,
    )


def fetch_of(uri: str) -> Callable[[str], bytes] | None:
    """How the files of claim checks are read; None where there are none."""
    if not uri:
        return None
    from tidemill.sinks.claim_check import ClaimCheckStorage

    return ClaimCheckStorage(uri).fetch


def _seconds(parse: Callable[[str], int], text: str, name: str) -> float:
    try:
        return 0.0 if text in ("0", "0s") else parse(text) / 1000
    except ValueError as error:
        raise ConfigError(f"{name} = {text!r}: {error}") from None


def _bytes(text: str) -> int:
    number, unit = text.rstrip("bBkKmMgGiI"), text.lstrip("0123456789").lower().rstrip("b").rstrip("i")
    if not number.isdecimal() or unit not in _UNITS or not int(number):
        raise ConfigError(f"--memory-quota = {text!r}: expected a number of bytes such as 64M or 1G")
    return int(number) * _UNITS[unit]


@contextmanager
def _shown(consumer: Any) -> Iterator[None]:
    """A line of progress for a person, or one in the log now and then."""
    end = threading.Event()
    is_person = sys.stderr.isatty()

    def line() -> str:
        s = consumer.status()
        lag = f"{s['lag_s']:.1f} s behind" if s["lag_s"] is not None else "nothing complete yet"
        held = f", held by {', '.join(s['held_by'][:3])}" if s["pending_rows"] else ""
        return f"{s['rows']:,} rows, {s['ddls']} DDLs, {s['pending_rows']:,} pending ({s['spilled_rows']:,} went to disk), {lag}{held}"

    def show() -> None:
        if not is_person:
            while not end.wait(LOG_S):
                log.info("%s", line())
            return
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            while not end.wait(SHOW_S):
                status.update(line())

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()

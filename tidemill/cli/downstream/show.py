"""`tidemill show`: the changes in a topic or in files, readable."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

import typer

from tidemill.cli.shared.console import as_text
from tidemill.cli.shared.terminal import console
from tidemill.cli.shared.topics import ClaimCheckOption, PartitionNumOption, ProtocolOption
from tidemill.errors import ConfigError

_AT_ONCE = 1000
_WAIT_S = 0.5
_NO_TIME = f"{'(no time)':23}"


class _Message(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def command(
    where: Annotated[
        str,
        typer.Argument(
            help="kafka://BROKER:9092/TOPIC, the FILE of a messages:// sink, the FOLDER of a file:// sink, or the URI of a sink that "
            "writes files of tables.",
            show_default=False,
        ),
    ],
    protocol: ProtocolOption = "auto",
    table: Annotated[list[str] | None, typer.Option("--table", help="Only this table: database.table. May be repeated.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after N changes.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Of a topic: go on until Ctrl-C.")] = False,
    resolved: Annotated[bool, typer.Option("--resolved", help="Show resolved events too.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Do not shorten long values.")] = False,
    partition_num: PartitionNumOption = None,
    claim_check: ClaimCheckOption = None,
) -> None:
    """Show the changes in a topic or in files, one a line: time (UTC), table, what happened, columns.

    Of an update only the key and the columns that changed are shown.
    """
    from tidemill.consumer.reading import read_at, reader
    from tidemill.consumer.shown import LONGEST, shown
    from tidemill.protocols.open.events import DdlMessage, ResolvedMessage, RowEvent

    timed = True
    tables_of = _files_of_tables(where)
    if tables_of is not None:
        if follow:
            raise ConfigError("--follow is for a topic", hint="Give kafka://BROKER:9092/TOPIC.")
        events, timed = _stored(tables_of)
    else:
        messages, chosen, fetch = _source(where, protocol, partition_num, claim_check, follow)
        read = reader(chosen, fetch, to_show=True)
        events = (event for m in messages for event in read_at(read, *m) if resolved or not isinstance(event, ResolvedMessage))
    if table:
        events = (e for e in events if isinstance(e, ResolvedMessage) or f"{e.schema}.{e.table}" in table)
    terminal = console()
    count = 0
    try:
        for event in itertools.islice(events, limit):
            line = shown(event, None if full else LONGEST)
            terminal.print(as_text(line if timed or not isinstance(event, RowEvent) else replace(line, at=_NO_TIME)))
            count += not isinstance(event, DdlMessage | ResolvedMessage)
    except KeyboardInterrupt:
        pass
    print(f"{count} row change{'' if count == 1 else 's'}", file=sys.stderr)
    if not timed:
        print("These CSV files do not say when a row was committed: the changefeed's include-commit-ts does.", file=sys.stderr)


def _files_of_tables(where: str) -> str | None:
    """The URI of a sink that writes files of tables (`protocol=csv` or `canal-json`); None for another place."""
    from tidemill.sinks.storage.paths import METADATA

    if where.startswith(("s3://", "file://")) and parse_qs(urlsplit(where).query).get("protocol", [""])[0] in ("csv", "canal-json"):
        return where
    path = Path(unquote(urlsplit(where).path)) if where.startswith("file://") else Path(where)
    if not (path / METADATA).is_file():
        return None
    has_csv = next(path.glob("**/CDC*.csv"), None) is not None
    return f"file://{quote(str(path.resolve()))}?protocol={'csv' if has_csv else 'canal-json&enable-tidb-extension=true'}"


def _stored(uri: str) -> tuple[Iterator[Any], bool]:
    """The rows and DDLs of files of tables, up to their checkpoint, and whether rows say when they were committed."""
    from tidemill.config.file import parse_config
    from tidemill.consumer.stored import StoredTables

    found = StoredTables(parse_config("").sink_uri(uri), to_show=True)
    steps = (step if isinstance(step, list) else [step] for _, _, step in found.steps(found.checkpoint_ts))
    return itertools.chain.from_iterable(steps), found.has_times


def _source(
    where: str, protocol: str, partition_num: int | None, claim_check: str | None, follow: bool
) -> tuple[Iterator[_Message], Any, Callable[[str], bytes] | None]:
    """The messages, the protocol if one was asked for, and how claim checks are read. Raises ConfigError."""
    from tidemill.cli.downstream.consume import fetch_of, upstream_of
    from tidemill.consumer.reading import parse_protocol

    if where.startswith(("kafka://", "kafka+ssl://")):
        upstream = upstream_of(where, None, [], protocol, partition_num, claim_check, to_show=True)
        return _of_topics(upstream, follow), upstream.protocol, fetch_of(upstream.claim_check_uri)
    if follow:
        raise ConfigError("--follow is for a topic", hint="Give kafka://BROKER:9092/TOPIC.")
    path = Path(unquote(urlsplit(where).path)) if where.startswith(("messages://", "file://")) else Path(where)
    return _of_files(path), parse_protocol(protocol, to_show=True), fetch_of(claim_check or "")


def _of_topics(upstream: Any, follow: bool) -> Iterator[_Message]:
    from tidemill.consumer.kafka import KafkaTopics
    from tidemill.consumer.to_end import read_to_end

    topics = KafkaTopics(upstream)
    try:
        topics.require()
        bounds = {source: topics.bounds(source) for source in topics.discover().partitions}
        if not follow:
            yield from (_Message(*record) for record in read_to_end(topics, bounds))
            return
        topics.follow({source: low for source, (low, _) in bounds.items()})
        while True:
            yield from (_Message(*record) for record in topics.poll(_AT_ONCE, _WAIT_S))
    finally:
        topics.close()


def _of_files(path: Path) -> Iterator[_Message]:
    """The messages of a messages:// file, or of a file:// folder. Raises ConfigError."""
    from tidemill.demo.delivered import from_files, from_jsonl

    if not path.exists():
        raise ConfigError(f"{path} does not exist", hint="Give a topic as kafka://BROKER:9092/TOPIC, or the file or folder of a sink.")
    if (path / "log.json").exists():
        raise ConfigError(
            f"{path} is a change log, which holds rows as TiKV stores them",
            hint=f"`tidemill replay --log {path} --sink-uri messages:///tmp/changes.jsonl`, then `tidemill show /tmp/changes.jsonl`.",
        )
    found = from_files(path) if path.is_dir() else from_jsonl(path)
    try:
        for offset, message in enumerate(found):
            yield _Message(message.topic, message.partition, offset, message.key, message.value)
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{path} is not a file of messages",
            hint="`show` reads what messages:// and file:// sinks write in Open Protocol, Canal-JSON or Debezium's JSON. Of files of "
            "tables (CDC….json) give the sink's folder.",
        ) from None

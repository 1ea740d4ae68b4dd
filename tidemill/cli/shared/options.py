"""Options that several verbs have, so that they are spelled and explained alike. Those of TLS are in `tls.py`, those of topics in
`topics.py`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

STORE_VARIABLE = "TIDEMILL_CANAL_STORE"
"""The environment's entry store for `tidemill canal`: a URL may hold a password."""


class Output(StrEnum):
    """How a verb prints what it found."""

    TEXT = "text"
    JSON = "json"


def output_of(text: str) -> Output:
    """What --output says. `table` is the older word for text. Raises BadParameter."""
    if text == "table":
        return Output.TEXT
    try:
        return Output(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither text nor json") from None


def form(output: Output, as_json: bool) -> Output:
    """What --output says, or the older flag --json."""
    return Output.JSON if as_json else output


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", parser=output_of, metavar="[text|json]", help="text for people, json for programs.")
]
JsonOption = Annotated[bool, typer.Option("--json", hidden=True, help="The same as --output json.")]

PdOption = Annotated[str, typer.Option("--pd", help="PD addresses, HOST:PORT[,HOST:PORT…].")]
TzOption = Annotated[str | None, typer.Option("--tz", help="Zone of TIMESTAMP text: IANA name or ±HH:MM. Default: the system's.")]
SparkMasterOption = Annotated[str | None, typer.Option("--master", help="Spark master (local[N], N the number of cores).")]
StatusAddrOption = Annotated[str | None, typer.Option("--status-addr", help="Serve /status and /metrics here, HOST:PORT.")]

MemoryQuotaOption = Annotated[
    str | None,
    typer.Option(
        "--memory-quota",
        help="Memory of the capture for rows and prewrites (1GiB); the rest goes to disk. Workers on this machine share it.",
    ),
]
StuckAfterOption = Annotated[
    str | None,
    typer.Option("--region-stuck-after", "--stuck-after", help="A region without progress is subscribed again after this time (60s)."),
]

LockGraceOption = Annotated[
    str | None,
    typer.Option(
        "--lock-grace", help="A lock is resolved when its transaction's TTL has been over for this long (2m): until then it may live."
    ),
]
TikvScansOption = Annotated[
    int | None,
    typer.Option("--tikv-scans", min=1, help="Scans at once: of regions of a store by the capture, and of parts of tables (64)."),
]

# Of the capture that `run` and `server` start
LogPartitionsOption = Annotated[int | None, typer.Option("--log-partitions", help="Partitions of a new log (4).")]
LogCompressionOption = Annotated[str | None, typer.Option("--log-compression", help="Of segments: none, lz4 or zstd (none).")]
LogRetentionOption = Annotated[
    str | None,
    typer.Option("--log-retention", help="Keep the log for at least this long (24h), and longer while a changefeed needs it."),
]
CaptureConfigOption = Annotated[
    Path | None, typer.Option("--capture-config", help="TOML with filter.rules: only tables that a rule selects are captured.")
]
TransportOption = Annotated[str | None, typer.Option("--transport", help="How to read TiKV's change feed: h2, or grpc (slower).")]
ControlAddrOption = Annotated[
    str | None, typer.Option("--control-addr", help="HOST[:PORT] of this machine where the workers' executors reach it.")
]

SchemaRegistryOption = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        envvar="TIDEMILL_SCHEMA_REGISTRY",
        help="For avro and debezium-avro: http:// or https://, then \\[USER:PASSWORD@]HOST:PORT, percent-encoded. Wins over the sink URI.",
    ),
]
SparkConfOption = Annotated[
    list[str] | None, typer.Option("--spark-conf", help="NAME=VALUE: a Spark setting of the delivery. May be repeated.")
]
SkipRowOption = Annotated[
    list[str] | None, typer.Option("--skip-row", help="DATABASE.TABLE:KEY@COMMIT_TS: leave this row out. May be repeated.")
]
LogLevelOption = Annotated[str, typer.Option("--log-level", help="debug, info, warn or error.")]
SplitTablesOption = Annotated[
    list[str] | None,
    typer.Option("--split-table", help="Spread a hot table over N partitions of a new log: DATABASE.TABLE=N. Repeatable."),
]

BinlogOption = Annotated[
    bool, typer.Option("--binlog", help="Capture the binlogs of a TiDB up to 8.3, from its Pumps, instead of TiKV's change feed.")
]
DrainerAddrOption = Annotated[
    str | None,
    typer.Option("--drainer-addr", help="With --binlog: HOST:PORT where Pumps and binlogctl reach this Drainer (127.0.0.1:8249)."),
]
DrainerIdOption = Annotated[
    str | None, typer.Option("--drainer-id", help="With --binlog: the Drainer's name in the registry. Default: one of the log's own.")
]

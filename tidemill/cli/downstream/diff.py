"""`tidemill diff`: compare the upstream's tables at a ts with those of a downstream."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import unquote, urlsplit

import typer

from tidemill import logs, tso
from tidemill.cli.shared import completion
from tidemill.cli.shared.options import JsonOption, LogLevelOption, Output, OutputOption, SparkMasterOption, TikvScansOption, TzOption, form
from tidemill.cli.shared.terminal import echo
from tidemill.cli.shared.tls import CaOption, CertOption, KeyOption
from tidemill.cli.shared.topics import TopicOption
from tidemill.errors import ConfigError, SystemFailed, TidemillError, redact

DIFFERENT, FAILED = 1, 2
SHOWN = 20
"""Rows that are named on the screen; all are in --fix-sql."""


def command(
    sink_uri: Annotated[
        str, typer.Option("--sink-uri", help="The downstream: mysql://, tidb://, kafka://, file://, s3:// or sqlite:///FILE.")
    ],
    topic: TopicOption = None,
    log: Annotated[str | None, typer.Option("--log", help="Folder or URL of the change log whose state is compared.")] = None,
    pd: Annotated[str | None, typer.Option("--pd", help="Instead: PD addresses of the cluster whose tables are read.")] = None,
    ts: Annotated[
        str | None,
        typer.Option(
            "--ts",
            help="Which state of the upstream: a TSO, an RFC 3339 time, `syncpoint` (the last one), or `checkpoint` of the changefeed, "
            "the default where the downstream has one; else the newest.",
        ),
    ] = None,
    changefeed_id: Annotated[str | None, typer.Option("--changefeed-id", "-c", help="Whose checkpoint, if there are several.")] = None,
    snapshot: Annotated[str, typer.Option("--snapshot", help="Read a TiDB downstream as of its own TSO or time.")] = "",
    config: Annotated[Path | None, typer.Option("--config", help="Changefeed TOML: its filter rules say which tables.")] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", help="Filter rule such as shop.* for tables. May be repeated.", autocompletion=completion.tables),
    ] = None,
    fix_sql: Annotated[Path | None, typer.Option("--fix-sql", help="Write the SQL that repairs the downstream into this file.")] = None,
    chunk_size: Annotated[int, typer.Option("--chunk-size", min=1, help="Approximate number of rows per checksum.")] = 10_000,
    check_struct_only: Annotated[bool, typer.Option("--check-struct-only", help="Compare tables and columns, no rows.")] = False,
    force_replicate: Annotated[bool, typer.Option("--force-replicate", help="Tables without a key too, as in the TOML.")] = False,
    tz: TzOption = None,
    master: SparkMasterOption = None,
    tikv_scans: TikvScansOption = None,
    output: OutputOption = Output.TEXT,
    as_json: JsonOption = False,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
    log_level: LogLevelOption = "warn",
    log_file: Annotated[Path | None, typer.Option("--log-file", help="Default: stderr.")] = None,
) -> None:
    """Compare the upstream's tables at a ts with a downstream: by checksums first, then row by row where these differ.

    Ends with 0 if they are equal, 1 if they differ, 2 for an error. The changefeed should rest (stopped, paused, at a sync point): of rows
    that change meanwhile it cannot be said whether they differ.
    """
    from tidemill.capture.config import DEFAULT_SCANS
    from tidemill.diff.moment import has_gone_on
    from tidemill.diff.session import Comparison, Options

    logs.setup(log_level, log_file, part="diff")
    output = form(output, as_json)
    try:
        tls = (ca, cert, key)
        wish = _wish(config, table or [], force=force_replicate)
        with ExitStack() as stack:
            show = stack.enter_context(_shown(output is Output.TEXT))
            place, choose = _downstream(stack, sink_uri, topic or [], snapshot, tz, ts, changefeed_id, config)
            upstream = _upstream(log, pd, tls, choose, wish)
            options = Options(chunk_size, check_struct_only, fix_sql is not None, master, scans=tikv_scans or DEFAULT_SCANS)
            report = Comparison(upstream, place, wish, options, show).run()
            gone_on = not report.equal and has_gone_on(place, changefeed_id, report.ts)
        if fix_sql is not None:
            write_fix(fix_sql, report)
    except TidemillError as error:
        _fail(error)
    except OSError as error:
        _fail(SystemFailed.of(error))
    if output is Output.JSON:
        echo(json.dumps({**_as_json(report), "gone_on": gone_on}, indent=2))
    else:
        _print(report, fix_sql)
        if gone_on:
            echo("The changefeed has written above that ts: rows may be named that only changed since. Stop it, and compare again.")
    if not report.equal:
        raise typer.Exit(DIFFERENT)


def _fail(error: TidemillError) -> NoReturn:
    """End as an error does, but with 2: 1 says that something differs."""
    text = f"Error {error.code}: {redact(str(error))}"
    logs.note_in_file(text)
    print(text, file=sys.stderr)
    sys.exit(FAILED)


def _wish(config: Path | None, tables: list[str], *, force: bool) -> Any:
    from tidemill.config.file import load_config
    from tidemill.diff.upstream import Wish
    from tidemill.rules.table_filter import TableFilter

    changefeed = load_config(config)
    rules = TableFilter(tables, where="--table") if tables else changefeed.table_filter()
    return Wish(rules, keyless=force or changefeed.force_replicate)


def _downstream(
    stack: ExitStack,
    sink_uri: str,
    topics: list[str],
    snapshot: str,
    tz: str | None,
    ts: str | None,
    feed: str | None,
    config: Path | None,
) -> tuple[Any, Any]:
    from tidemill.config.file import load_config
    from tidemill.config.uri import parse_sink_uri
    from tidemill.delivery.zone import parse_zone, zone_name
    from tidemill.diff.files import FILES, TOPICS, read_files, read_topics
    from tidemill.diff.job import Place
    from tidemill.diff.moment import choose

    if (scheme := sink_uri.partition("://")[0]) in (*TOPICS, *FILES):
        file = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-diff-"))) / "tables.db"
        target = tso.parse(ts) if ts not in (None, "checkpoint") else None
        if scheme in FILES:
            read_files(load_config(config).sink_uri(sink_uri), file, parse_zone(tz), target)
        else:
            from tidemill.cli.downstream.consume import fetch_of, upstream_of

            source = upstream_of(sink_uri, None, topics, "auto", None, None)
            read_topics(source, file, parse_zone(tz), target, fetch_of(source.claim_check_uri))
        return choose(Place(path=str(file), zone=zone_name(parse_zone(tz))), ts, feed)
    if sink_uri.startswith("sqlite:///"):
        path = unquote(urlsplit(sink_uri).path)
        return choose(Place(path=path, zone=zone_name(parse_zone(tz))), ts, feed)
    parse_sink_uri(sink_uri).database  # noqa: B018 refuses what is not a database
    return choose(Place(uri=sink_uri, snapshot=snapshot), ts, feed)


def _upstream(log: str | None, pd: str | None, tls: Any, choose: Any, wish: Any) -> Any:
    from tidemill.diff import upstream

    if (log is None) == (pd is None):
        raise ConfigError("give either --log or --pd: where the upstream's tables are read")
    return upstream.of_cluster(pd, tls, choose, wish) if pd is not None else upstream.of_log(str(log), choose, wish)


@contextmanager
def _shown(wanted: bool) -> Iterator[Any]:
    """A bar for each step, where a person looks on."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    quiet = not (wanted and sys.stderr.isatty())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as progress:

        def show(what: str, items: int) -> Any:
            task = progress.add_task(what, total=items)
            return lambda done: progress.advance(task, done)

        yield show


def write_fix(path: Path, report: Any) -> None:
    """Write the repairing SQL."""
    from tidemill.diff.repair import BEGIN, creating, statements

    with open(path, "wb") as file:
        file.write(f"-- repairs the downstream to the upstream's state at {tso.describe(report.ts)}\n".encode())
        for line in BEGIN:
            file.write(line.encode() + b"\n")
        for number, one in enumerate(report.tables):
            if one.is_absent:
                file.writelines(text.encode() + b"\n" for text in creating(report.compared[number], report.server))
            elif one.problem:
                file.write(f"-- {one.name} {one.problem}: to be repaired by hand\n".encode())
        for statement in statements(report.compared, report.differences):
            file.write(statement + b"\n")


def _as_json(report: Any) -> dict[str, Any]:
    tables = [
        {
            "table": one.name,
            "equal": one.equal,
            "problem": one.problem or None,
            "upstream_rows": one.upstream_rows,
            "downstream_rows": one.downstream_rows,
            **{what.value: count for what, count in one.rows.items()},
        }
        for one in report.tables
    ]
    return {"ts": report.ts, "equal": report.equal, "tables": tables}


def _print(report: Any, fix_sql: Path | None) -> None:
    from tidemill.diff.repair import shown

    unequal = [one for one in report.tables if not one.equal]
    for one in unequal:
        counted = ", ".join(f"{count} rows {_WORDS[what.value]}" for what, count in one.rows.items() if count)
        echo(f"{one.name}: {one.problem or counted}")
    for one in report.differences[:SHOWN]:
        echo("  " + shown(report.compared[one.table], one))
    if len(report.differences) > SHOWN:
        echo(f"  … and {len(report.differences) - SHOWN} more" + ("" if fix_sql else "; --fix-sql FILE has all"))
    touched = [one.name for one in report.tables if one.touched_only]
    if touched:
        echo(f"Of {', '.join(touched)} only rows that changed since the log began were compared: it has no initial load of them.")
    for table in report.compared:
        if table.left_out:
            echo(f"{table.name}: {', '.join(table.left_out)} not compared: a DDL converted it, and the log lacks what came of that")
    if report.left_out:
        echo(f"Not compared, because without force-replicate they are not replicated: {', '.join(report.left_out)}")
    if report.moved:
        echo(f"Not compared, because a DDL moved rows between partitions and no key in the log follows them: {', '.join(report.moved)}")
    rows = sum(one.upstream_rows for one in report.tables)
    what = "equal" if report.equal else f"{len(unequal)} of them different"
    echo(f"{len(report.tables)} tables at {tso.describe(report.ts)}, {rows:,} rows upstream: {what}")


_WORDS = {"missing": "are missing", "extra": "are too many", "different": "differ"}

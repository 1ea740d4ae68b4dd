"""`tidemill log VERB LOG`: look at a change log, check it, and keep it small."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill import tso
from tidemill.capture import growth
from tidemill.changelog import feeds, log_format
from tidemill.changelog.history import load_history
from tidemill.changelog.options import LogOptions
from tidemill.changelog.ownership import lock_of
from tidemill.changelog.reader import LogReader
from tidemill.changelog.retention import drop
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.cli.shared import completion
from tidemill.cli.shared.options import JsonOption, Output, OutputOption, form
from tidemill.cli.shared.terminal import echo
from tidemill.cli.shared.tls import CaOption, CertOption, KeyOption
from tidemill.errors import LogError, LogInUse, UpstreamUnavailable, redact

app = typer.Typer()

SHOWN_NOTES = 5
GROW_POLL_S = 0.5

Location = Annotated[str, typer.Argument(metavar="LOG", help="Folder or URL of the change log.")]
Wait = Annotated[
    int,
    typer.Option("--wait", min=0, help="Seconds to wait for the result; 0: do not wait. The request stays if it takes longer."),
]


@app.command("verify")
def verify_command(
    log: Location,
    quick: Annotated[bool, typer.Option("--quick", help="Names, chains and file ends only; do not read rows.")] = False,
) -> None:
    """Check every file, chain and row of a log. Lists all damage, and ends with 1 if there is any."""
    report = verify(log, quick=quick)
    for note in report.notes[:SHOWN_NOTES]:
        echo(f"note     {note}")
    if len(report.notes) > SHOWN_NOTES:
        echo(f"note     and {len(report.notes) - SHOWN_NOTES} more, all harmless (files that compaction replaced stay for a while)")
    for problem in report.problems:
        echo(f"PROBLEM  {problem}")
    echo(f"{report.location}: {report.files} segments, {report.rows} rows, {_size(report.size)}" + (" (quick)" if quick else ""))
    echo(f"from {tso.describe(report.start_ts)}")
    echo(f"to   {tso.describe(report.resolved_ts)}")
    if report.unsummed:
        echo(f"{report.unsummed} files have no checksums: versions that knew format 1 alone wrote them. Changed values are not found there")
    if not report.is_whole:
        echo(f"{len(report.problems)} problem{'s' if len(report.problems) > 1 else ''}")
        raise typer.Exit(1)
    echo("whole")


@app.command()
def show(log: Location, output: OutputOption = Output.TEXT, as_json: JsonOption = False) -> None:
    """Show what a log holds: its cluster, its times, its size, and the changefeeds that need it."""
    facts = describe(LogReader(log))
    echo(json.dumps(facts, indent=2) if form(output, as_json) is Output.JSON else _text(facts))


@app.command("heads")
def heads_command(log: Location, output: OutputOption = Output.TEXT, as_json: JsonOption = False) -> None:
    """Show how far each partition of a log is complete (its head). Fast, even for a large log."""
    reader = LogReader(log)
    found = heads(reader)
    if form(output, as_json) is Output.JSON:
        echo(json.dumps(found, indent=2))
        return
    echo(f"{'log':<12} {tso.describe(found['resolved_ts'])}")
    echo(f"{'schema':<12} {tso.describe(found['schema'])}")
    newest = max(found["partitions"])
    for p, head in enumerate(found["partitions"]):
        behind = (tso.physical_ms(newest) - tso.physical_ms(head)) / 1000
        echo(f"{f'rows/{p}':<12} {tso.describe(head)}" + (f", {behind:.1f} s behind the furthest" if behind else ""))
    for one in reader.identity.layout.split_tables:
        least = min(found["partitions"][p] for p in one.partitions)
        echo(f"{'split':<12} {one.name} over {_listed(one.partitions)}, complete up to {tso.describe(least)}")


def heads(reader: LogReader) -> dict[str, Any]:
    """How far the whole log, its schema stream and each of its partitions are."""
    partitions = reader.heads()
    schema = reader.schema_head()
    split = [{"table": one.name, "partitions": list(one.partitions)} for one in reader.identity.layout.split_tables]
    found: dict[str, Any] = {"resolved_ts": min([schema, *partitions]), "schema": schema, "partitions": partitions}
    return found | ({"split_tables": split} if split else {})


def describe(reader: LogReader) -> dict[str, Any]:
    """What `show` tells."""
    start_ts, resolved_ts = reader.start_ts, reader.resolved_ts()
    identity = json.loads(reader.identity.to_json())
    history = load_history(reader, may_stop=True)
    snapshot = history.snapshot(min(resolved_ts, history.resolved_ts))
    tables = sorted(f"{v.schema}.{v.table}" for v in snapshot.tables.values())
    folders = [_folder(reader, folder) for folder in log_format.folders(reader.partitions)]
    return {
        "location": redact(reader.location),
        **identity,
        "start_ts": start_ts,
        "resolved_ts": resolved_ts,
        "schema_snapshots": reader.snapshots(),
        "rows": sum(f["rows"] for f in folders),
        "bytes": sum(f["bytes"] for f in folders),
        "folders": folders,
        "feeds": reader.feeds(),
        "tables": tables,
    }


def _folder(reader: LogReader, folder: str) -> dict[str, Any]:
    chain = reader.listing(folder)
    parts = [path for interval in chain.intervals for path in interval.parts]
    head = reader.schema_head() if folder == log_format.SCHEMA else reader.head(int(folder.rpartition("/")[2]))
    return {
        "folder": folder,
        "segments": len(parts),
        "rows": sum(reader.open_segment(path).count_rows() for path in parts),
        "bytes": sum(reader.partition_bytes(interval) for interval in chain.intervals),
        "last_to": chain.to_ts,
        "head": head,
    }


def _text(facts: dict[str, Any]) -> str:
    lines = [
        f"log         {facts['location']}",
        f"source      {facts['source']}, cluster {facts['cluster_id']}",
        f"from        {tso.describe(facts['start_ts'])}",
        f"to          {tso.describe(facts['resolved_ts'])}",
        f"partitions  {facts['partitions']}, affinity {facts['affinity']}",
    ]
    for one in facts.get("layouts", ()):
        lines.append(f"            {one['partitions']} from {tso.describe(one['from_ts'])}")
        lines += [f"            with {split['name']} over {_listed(split['partitions'])}" for split in one.get("split_tables", ())]
    if facts.get("split_tables"):
        lines.append(f"split       {', '.join(map(str, facts['split_tables']))}")
    lines += [f"rules       {', '.join(r['rules'])} from {tso.describe(r['from_ts'])}" for r in facts.get("capture_rules", ())]
    lines += [f"cluster     {v['version']} from {tso.describe(v['from_ts'])}" for v in facts.get("upstream_versions", ())]
    lines += [f"holds       {facts['rows']} rows, {_size(facts['bytes'])}", f"tables      {len(facts['tables'])}", ""]
    lines.append(f"{'folder':<10} {'segments':>9} {'rows':>12} {'size':>10}  head")
    for f in facts["folders"]:
        lines.append(f"{f['folder']:<10} {f['segments']:>9} {f['rows']:>12} {_size(f['bytes']):>10}  {tso.describe(f['head'])}")
    lines += ["", "changefeeds" if facts["feeds"] else "no changefeeds"]
    for feed, checkpoint in sorted(facts["feeds"].items()):
        lag = tso.physical_ms(max(facts["resolved_ts"] - checkpoint, 0)) / 1000
        lines.append(f"  {feed}  {tso.describe(checkpoint)}, {lag:.1f} s behind the log")
    return "\n".join(lines)


@app.command("grow")
def grow_command(
    log: Location,
    partitions: Annotated[int, typer.Option("--partitions", min=2, help="New number of partitions.")],
    wait: Wait = 120,
) -> None:
    """Add partitions to a log. Its capture does it, within seconds or when it is started next. Changefeeds go on without a restart."""
    reader = LogReader(log)
    if reader.identity.partitions == partitions:
        echo(f"{redact(reader.location)} has {partitions} partitions already{_since(reader)}")
        return
    reader.identity.check_growth(partitions)
    if _wait_for(reader, growth.ask(reader.storage, growth.Request(partitions)), wait):
        echo(f"{redact(reader.location)} has {partitions} partitions{_since(reader)}")


@app.command("split")
def split_command(
    log: Location,
    table: Annotated[str, typer.Option("--table", metavar="DATABASE.TABLE", help="The hot table.", autocompletion=completion.tables)],
    over: Annotated[int, typer.Option("--over", min=1, help="Over how many of the log's partitions; 1: together again, in one.")],
    wait: Wait = 120,
) -> None:
    """Spread a hot table over several partitions, by key ranges with about as many regions each. It needs at least that many regions
    (`SPLIT TABLE … REGIONS n`). The new layout is for rows written after the switch.

    The log's capture does it, now or when it runs next; changefeeds go on. Ask again to cut the table at the borders that its regions
    have by then."""
    database, _, name = table.partition(".")
    if not database or not name:
        raise typer.BadParameter("--table wants DATABASE.TABLE")
    reader = LogReader(log)
    reader.identity.check_split(over)
    request = growth.ask(reader.storage, growth.Request(table=table, over=over, layouts=len(reader.identity.layouts)))
    if _wait_for(reader, request, wait):
        split = reader.identity.layout.split_named(table)
        where = f"over the partitions {_listed(split.partitions)}" if split is not None else "in one partition"
        echo(f"{redact(reader.location)} has {table} {where}{_since(reader)}")


@app.command("cancel")
def cancel_command(log: Location) -> None:
    """Take back what `log grow` or `log split` asked for and the capture has not done yet.

    If the capture is about to do it, it does it all the same: `log show` tells."""
    reader = LogReader(log)
    waiting = growth.cancel(reader.storage)
    location = redact(reader.location)
    echo(f"{location}: nothing waits" if waiting is None else f"{location}: the request is taken back: {waiting}")


def _wait_for(reader: LogReader, request: growth.Request, wait: int) -> bool:
    """Until the capture has done what is asked; False at once without a wait. Raises LogError if the capture refuses, or if the request was
    taken back or replaced; UpstreamUnavailable if it still waits at the end."""
    until = time.monotonic() + wait
    location = redact(reader.location)
    while True:
        found = growth.left(reader.storage)  # before log.json: what is done is written there first, then the request is removed
        if request.is_done(reader.identity_now()):
            return True
        if found is None or found.request != request:
            instead = f"another one is there: {found.request}" if found is not None else "somebody took it back"
            raise LogError(f"{location} keeps its layout: the request is gone, {instead}", hint="Ask again.")
        if found.refusal is not None:
            reader.storage.delete(log_format.GROWTH)
            raise LogError(f"{location} keeps its layout: {found.refusal.message}", hint=found.refusal.hint)
        if time.monotonic() >= until:
            break
        time.sleep(GROW_POLL_S)
    if wait:
        raise UpstreamUnavailable(
            f"{location} has not got its new layout within {wait} s: the request waits: {request}",
            hint="Its capture does it once all partitions are close to the present. `tidemill status` tells how far it is; `tidemill log "
            "cancel` takes the request back.",
        )
    echo("not yet: the capture does it once all partitions are close to the present; `tidemill status` tells how far it is")
    return False


def _since(reader: LogReader) -> str:
    """From when on the log is laid out so; nothing if it always was."""
    return f", for rows from {tso.describe(reader.identity.layout.from_ts)} on" if reader.identity.layouts else ""


def _listed(partitions: Sequence[int]) -> str:
    return ", ".join(map(str, partitions))


@app.command()
def compact(
    log: Location,
    grace: Annotated[str, typer.Option("--grace", help="Replaced segments stay this long for readers that know them.")] = "10m",
    compression: Annotated[str, typer.Option("--log-compression", help="Of the joined segments: none, lz4 or zstd.")] = "none",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Required on an object store: take the log over; a capture that still writes is stopped.")
    ] = False,
) -> None:
    """Join small segments of a log that no capture writes to (a running capture does it itself)."""
    options = LogOptions(compression=compression, retention_ms=tso.physical_ms(tso.MAX_TS), low_water_bytes=0, grace_s=_seconds(grace))
    _maintain(log, options, take_over)


@app.command()
def trim(
    log: Location,
    retention: Annotated[str, typer.Option("--log-retention", help="Keep at least this much, and what changefeeds need.")] = "24h",
    grace: Annotated[str, typer.Option("--grace", help="Files stay this long behind the log's new start.")] = "10m",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Required on an object store: take the log over; a capture that still writes is stopped.")
    ] = False,
) -> None:
    """Delete segments older than the retention. Only for a log without a running capture, which does this itself."""
    _maintain(log, LogOptions(retention_ms=round(_seconds(retention) * 1000), low_water_bytes=0, grace_s=_seconds(grace)), take_over)


@app.command()
def forget(log: Location, changefeed: Annotated[str, typer.Argument(metavar="CHANGEFEED", help="Its id, see `log show`.")]) -> None:
    """Remove a changefeed from a log, so that the log no longer keeps data for it. The changefeed may be unable to go on afterwards.

    Stop the changefeed first: the log does not wait for one that runs either, until it starts again."""
    reader = LogReader(log)
    known = reader.feeds()
    if changefeed not in known:
        raise LogError(
            f"no changefeed {changefeed} needs {redact(reader.location)}", hint=f"These do: {', '.join(sorted(known)) or 'none'}."
        )
    feeds.remove(reader.storage, changefeed)
    echo(f"{changefeed} needed changes from {tso.describe(known[changefeed])} on; the log does not wait for it any more")


@app.command("drop")
def drop_command(
    log: Location,
    pd: Annotated[str | None, typer.Option("--pd", help="PD addresses, HOST:PORT[,HOST:PORT…].")] = None,
    without_pd: Annotated[
        bool, typer.Option("--without-pd", help="Do not contact PD. The log's GC barrier stays there until its TTL ends.")
    ] = False,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
    force: Annotated[bool, typer.Option("--force", help="Delete it even if changefeeds still need it.")] = False,
    take_over: Annotated[bool, typer.Option("--take-over", help="Required on an object store: no capture writes to it.")] = False,
) -> None:
    """Delete a log that no capture writes to, and let the cluster's garbage collection go on."""
    if (pd is None) != without_pd:
        raise typer.BadParameter("give --pd, so that the log's GC barrier is removed there, or --without-pd")
    reader = LogReader(log)
    if not reader.storage.local and not take_over:
        raise typer.BadParameter("an object store has no lock: make sure that no capture writes to it, then give --take-over")
    if (known := sorted(reader.feeds())) and not force:
        raise LogInUse(
            f"{redact(reader.location)} is needed by changefeeds: {', '.join(known)}",
            hint="Remove them first (`tidemill log forget`), or give --force.",
        )
    lock = lock_of(reader.storage)
    if lock is not None:
        lock.take()
    try:
        if pd is not None:
            asyncio.run(_let_go(reader, pd, (ca, cert, key)))
        drop(reader.storage)
    finally:
        if lock is not None:
            lock.release()
    echo(f"{redact(reader.location)} is gone" + ("" if without_pd else ", and PD no longer keeps history for it"))


async def _let_go(reader: LogReader, pd: str, tls: tuple[Path | None, Path | None, Path | None]) -> None:
    """Remove the log's GC barrier from PD. Raises ClusterMismatch, UpstreamUnavailable."""
    from tidemill.capture.tikv.client.pd import PdClient
    from tidemill.capture.tikv.client.tls import security_of
    from tidemill.capture.tikv.gc import let_go

    security = security_of(pd.split(","), *tls)
    client = await PdClient.connect(pd, cluster_id=int(reader.identity.cluster_id), retry_s=10.0, security=security)
    try:
        await let_go(client, reader.identity.extra)
    finally:
        await client.close()


def _maintain(log: str, options: LogOptions, take_over: bool) -> None:
    if not LogReader(log).storage.local and not take_over:
        raise typer.BadParameter("an object store has no lock: make sure that no capture writes to it, then give --take-over")
    joined = removed = 0
    with LogWriter.open(log, options=options) as writer:
        while True:
            done = writer.maintain(tso.compose(time.time_ns() // 1_000_000))
            joined, removed = joined + done.joined, removed + done.removed
            if not done.joined:
                break
    echo(f"{joined} segments joined, {removed} files removed; the log begins at {tso.describe(done.start_ts)}")
    if done.low is not None:
        echo(f"nothing was joined, because that takes room first: {done.low}")


def _seconds(distance: str) -> float:
    """A duration such as 90s, 10m or 24h."""
    return tso.physical_ms(tso.parse(f"+{distance}", 0)) / 1000


def _size(size: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"

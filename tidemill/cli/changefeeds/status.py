"""`tidemill status`: what a capture does, and what holds it back; of a run, how far it has delivered."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from tidemill.budget import ANSWER, Budget
from tidemill.capture.config import CaptureConfig
from tidemill.capture.status import FILE, CaptureStatus, held_by
from tidemill.capture.tikv.watchdog.causes import Cause
from tidemill.capture.tikv.watchdog.gc_patience import MARKS
from tidemill.changefeed.feed_status import ONLY_METRICS, Status, usable_status
from tidemill.changefeed.states import State
from tidemill.cli.changefeeds.server_folder import is_of_server, print_server
from tidemill.cli.shared.feeds import DATA_DIR, choose, known
from tidemill.cli.shared.options import JsonOption, Output, OutputOption, form
from tidemill.cli.shared.terminal import add_row, console, echo
from tidemill.errors import ConfigError, UpstreamUnavailable
from tidemill.statefile import fitting
from tidemill.tso import describe, physical_ms
from tidemill.visible import printable

CONTEXT = {"help_option_names": ["-h", "--help"]}
TIMEOUT = 5.0
RUN, DELIVERY = "status.json", "delivery.json"
LIVING = ("starting", "running", "stopping")
SILENT = 15.0  # seconds without a new status. A capture writes one each second, a delivery after each batch, which rarely takes longer
HELD_SHOWN = 10  # tables that are held up
HELD_PUMP_S = 10.0  # a Pump without writes tells its time every 3 s
SCHEMA = "schema"  # the label of the meta keys in the status
HELD = 10.0  # seconds: some region is always the slowest; it is named only if it has not moved for so long


def command(
    log: Annotated[
        str | None, typer.Option("--log", envvar="TIDEMILL_LOG", help="The change log of a `tidemill capture` that has no --data-dir.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="The --data-dir of `tidemill run` or `tidemill capture`. Default: tidemill-data.")
    ] = None,
    changefeed_id: Annotated[
        str | None, typer.Option("--changefeed-id", "-c", help="Which changefeed, if the data directory has several.")
    ] = None,
    status_addr: Annotated[
        str | None, typer.Option("--status-addr", help="Ask a running process: the HOST:PORT of its --status-addr.")
    ] = None,
    addr: Annotated[
        str | None, typer.Option("--addr", "--server", help="Ask a `tidemill server`: its HOST:PORT, or http://…, https://….")
    ] = None,
    ca: Annotated[Path | None, typer.Option("--ca", help="PEM file with the CA of the server at --addr.")] = None,
    cert: Annotated[Path | None, typer.Option("--cert", help="PEM file with a client certificate for --addr.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="PEM file with the key of --cert.")] = None,
    output: OutputOption = Output.TEXT,
    as_json: JsonOption = False,
) -> None:
    """Show how far a capture is, and which region, store, lock or table holds its resolved ts back, since when.

    For a `tidemill run` also: what the changefeed has delivered, its state, its error, and how to resume it. For a server (--addr): its
    changefeeds, its capture and what is wrong, as on its web page and in `tidemill top`.
    """
    if addr is not None:
        _of_server(addr, (ca, cert, key), form(output, as_json))
        return
    if data_dir is not None and status_addr is None and is_of_server(data_dir) and changefeed_id is None:
        print_server(data_dir, as_json=form(output, as_json) is Output.JSON)
        return
    status = _ask(status_addr) if status_addr else _read(log, data_dir, changefeed_id)
    if form(output, as_json) is Output.JSON:
        echo(json.dumps(status, indent=2))
        return
    try:
        lines, stuck = summary(status), _stuck_table(status["stuck"]) if status.get("stuck") else None
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, OSError) as error:
        raise ConfigError(
            f"the status holds something that no capture writes: {error!r}",
            hint="`--output json` prints it as it is. A running capture writes it again.",
        ) from None
    terminal = console()
    for line in lines:
        terminal.print(printable(line))
    if stuck is not None:
        terminal.print(stuck)


def _of_server(addr: str, tls: tuple[Path | None, Path | None, Path | None], how: Output) -> None:
    from tidemill.cli.changefeeds.top import print_frame, status_of

    told = status_of(addr, tls)
    if how is Output.JSON:
        echo(json.dumps(told, indent=2))
    else:
        print_frame(told)


def _folder(data_dir: Path, changefeed_id: str | None) -> Path:
    """Return the folder with a capture's status. In the data directory of a run each changefeed has a folder. Raises ConfigError."""
    if is_of_server(data_dir):
        return data_dir / "capture"
    if not known(data_dir):
        return data_dir
    return data_dir / "changefeeds" / choose(data_dir, changefeed_id) / "capture"


def _read(log: str | None, data_dir: Path | None, changefeed_id: str | None) -> dict[str, Any]:
    if log is None and data_dir is None and DATA_DIR.is_dir():
        data_dir = DATA_DIR
    if log is None and data_dir is None:
        raise ConfigError("which capture?", hint="Give --data-dir of `tidemill run`, --log of `tidemill capture`, or --status-addr.")
    folder = _folder(data_dir, changefeed_id) if data_dir is not None else CaptureConfig(pd=("-",), log=log or "").folder
    feed = folder.parent
    if data_dir is not None and is_of_server(data_dir) and changefeed_id is not None:
        feed = data_dir / "changefeeds" / changefeed_id
    run = [status for name in (RUN, DELIVERY) if (status := _status_of(feed / name)) is not None]
    try:
        found = fitting(CaptureStatus, json.loads((folder / FILE).read_bytes()), others=True)
    except FileNotFoundError:
        if not run:
            raise ConfigError(
                f"{folder / FILE} does not exist", hint="The capture of a `tidemill run` is found by its --data-dir."
            ) from None
        found = {"state": "starting"}
    except (OSError, ValueError, RecursionError) as e:
        raise ConfigError(f"{folder / FILE} cannot be read: {e}") from None
    if run:
        newest = max(run, key=lambda status: status.get("updated_at", 0.0))
        found["delivery"] = {name: value for name, value in newest.items() if name != "capture" and name not in ONLY_METRICS}
        found["delivery"] |= {name: one[name] for one in run for name in ("rows_per_s",) if name in one}
    return found


def _status_of(file: Path) -> dict[str, Any] | None:
    """Return the status that a run or its changefeed wrote; None if there is none: of a capture alone, or before the first one."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or "changefeed" not in found:
        return None
    known = {f.name for f in fields(Status)}
    others = {name: value for name, value in fitting(Status, found, others=True).items() if name not in known}
    return {**others, **usable_status(found)}


def _ask(address: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://{address}/status", timeout=TIMEOUT) as answer:
            budget = Budget(ANSWER)
            found = budget.json(budget.body(answer.headers.get("Content-Encoding"), iter(lambda: answer.read(1 << 16), b"")))
    except (OSError, HTTPException, ValueError, RecursionError) as e:
        raise UpstreamUnavailable(f"no capture answers at {address}: {e}") from None
    if not isinstance(found, dict):
        raise UpstreamUnavailable(f"no capture answers at {address}: its status is not a JSON object")
    if isinstance(found.get("capture"), dict):  # of a run
        return {**found["capture"], "delivery": {name: value for name, value in found.items() if name != "capture"}}
    return found


def summary(status: dict[str, Any]) -> list[str]:
    """A status in lines for people."""
    regions = ", ".join(f"{n} {phase}" for phase, n in status.get("regions", {}).items() if n) or "none"
    lines = [
        f"state      {status.get('state', '?')} (process {status.get('pid', '?')}){_silence(status)}",
        *([f"paused     {status['paused']}"] if status.get("paused") else []),
        f"cluster    {status.get('cluster_id', '')}",
        f"log        {status.get('log', '')}",
        f"resolved   {status.get('resolved_time', '')}, {_behind(status)}",
        f"captured   {status.get('tables', 0)} tables; regions: {regions}",
        f"rows       {status.get('rows', 0)} in {status.get('segments', 0)} segments{_counted_since(status)}",
        f"waiting    {status.get('waiting_bytes', 0)} bytes of rows, {status.get('prewrite_bytes', 0)} of prewrites",
    ]
    if status.get("parts_to_read"):
        lines.append(f"loading    {status['parts_to_read']} parts of tables are still to be read")
    if status.get("growth"):
        lines.append(f"growth     {status['growth']}")
    for name, partitions in status.get("split_tables", {}).items():
        lines.append(f"split      {name} over the partitions {', '.join(map(str, partitions))}")
    if status.get("gc_safe_point"):
        lines.append(f"history    {_history(status)}")
    lines += partition_lines(status)
    lines += [group_line(one) for one in status.get("groups", ())]
    lines += binlog_lines(status.get("binlog") or {})
    if _is_held(status):
        lines.append(f"held by    {held_by(status['holding'])}")
    lines += held_lines(status.get("held_tables", ()))
    if storage := status.get("storage"):
        lines.append(f"storage    away since {storage.get('since')}, for {storage.get('seconds')} s: {storage.get('message')}")
    if status.get("error"):
        lines.append(f"error      {status['error'].get('code')}: {status['error'].get('message')}")
    return (
        lines + delivered(status["delivery"], status.get("resolved_ts", 0), status.get("parts_to_read", 0))
        if status.get("delivery")
        else lines
    )


def binlog_lines(told: dict[str, Any]) -> list[str]:
    """Return what a capture of binlogs tells: how far each Pump is, which one holds the log, and what is wrong with one."""
    problems = told.get("Problems", {})
    lines = [
        f"Pump       {name} at {describe(ts)}" + (f": {problems[name]}" if name in problems else "")
        for name, ts in sorted(told.get("PumpPos", {}).items())
    ]
    held = told.get("HeldBy")
    if held and held["LagSeconds"] >= HELD_PUMP_S:
        lines.append(f"held by    Pump {held['Pump']}, which is {held['LagSeconds']:.0f} s behind")
    if told.get("Waits"):
        lines.append(f"waits      {told['Waits']}")
    return lines


def _counted_since(status: dict[str, Any]) -> str:
    """Since when the capture counts. It counts from 0 again when it was started again, by a person or by itself."""
    since = status.get("counted_since")
    if not since:
        return ""
    return f" since the capture started at {_moment(since)}" + (", or since its group was started again" if status.get("groups") else "")


def held_lines(held: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each table that is held up. Tables that only wait for another table's lock come last."""
    causes_first = sorted(held, key=lambda one: bool(one["cause"] == Cause.LOCK_BESIDE))
    lines = [f"held up    {_place(one)}{held_by(one)}; cause: {one['cause']}, ranges: {one['ranges']}" for one in causes_first[:HELD_SHOWN]]
    more = len(held) - HELD_SHOWN
    return [*lines, f"held up    and {more} tables more (--output json lists them)"] if more > 0 else lines


def _place(held: dict[str, Any]) -> str:
    """The log partition of a table. The schema stream has none."""
    return "" if held.get("table") == SCHEMA else f"partition {held['partition']}: "


def partition_lines(status: dict[str, Any]) -> list[str]:
    """Return a line for each partition of the log, if they are ten seconds apart."""
    heads = [int(head) for head in status.get("heads", ())]
    newest = max(heads, default=0)
    if physical_ms(newest) - physical_ms(min(heads, default=newest)) < 1000 * HELD:
        return []
    counts = Counter(one.get("partition") for one in status.get("held_tables", ()))
    return [_partition_line(p, head, newest, counts[p]) for p, head in enumerate(heads)]


def _partition_line(partition: int, head: int, newest: int, held: int) -> str:
    behind = (physical_ms(newest) - physical_ms(head)) / 1000
    said = f"partition {partition} " + describe(head)
    said += f", {behind:.1f} s behind the one that is furthest" if behind >= 0.05 else ""
    return said + (f"; {held} table{'s are' if held > 1 else ' is'} held up" if held else "")


def _is_held(status: dict[str, Any]) -> bool:
    """Return whether the slowest region is worth a line: something is wrong with it, or it has not moved for HELD seconds."""
    holding = status.get("holding") or {}
    return bool(holding and (status.get("stuck") or "last_error" in holding or "lock" in holding or holding.get("seconds", 0) >= HELD))


def _age(status: dict[str, Any]) -> float:
    """Seconds since the capture wrote its status."""
    return max(0.0, time.time() - float(status.get("updated") or time.time()))


def _silence(status: dict[str, Any]) -> str:
    """Return a remark if the status is old: a process that was killed cannot write that it has ended."""
    age = _age(status)
    return f", silent for {age:.0f} s: is it gone?" if status.get("state") in LIVING and age > SILENT else ""


def _behind(status: dict[str, Any]) -> str:
    """Return how far the log is behind. If the process is gone, return since when instead: the figure would be old."""
    if status.get("state") in LIVING and _age(status) <= SILENT:
        return f"{status.get('lag_s', 0)} s behind"
    how = status.get("state", "?") if status.get("state") not in LIVING else "silent"
    return f"{how} since {_moment(status.get('updated'))}"


def _moment(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds") if seconds else "an unknown time"


def _history(status: dict[str, Any]) -> str:
    """Return from when on PD keeps the history for the log, and for how long if the capture ends now."""
    used = status.get("gc_ttl_used", 0.0)
    if used >= MARKS[0] and status.get("state") in LIVING:
        return f"kept by PD from {describe(status['gc_safe_point'])} on; {used:.0%} of --gc-ttl are over without the log catching up: " + (
            "at 100% the capture ends and lets it go"
        )
    since = f"kept by PD from {describe(status['gc_safe_point'])} on"
    left = status.get("gc_seconds_left", 0) - _age(status)
    if left <= 0:
        return f"was {since} until {-left:.0f} s ago: if TiDB has collected it since, the capture will refuse to go on"
    gone = status.get("state") not in LIVING or _age(status) > SILENT
    return f"{since}, for another {left:.0f} s" + (": so long the capture may stay away" if gone else " if the capture falls silent")


def delivered(delivery: dict[str, Any], resolved_ts: int = 0, parts_to_read: int = 0) -> list[str]:
    """Return the delivery of a run in lines for people. `resolved_ts`: how far the log is. `parts_to_read`: of tables."""
    checkpoint = delivery.get("checkpoint_ts") or 0
    behind = max(0, physical_ms(resolved_ts) - physical_ms(checkpoint)) / 1000 if resolved_ts and checkpoint else None
    done = f"{delivery.get('rows') or 0} rows and {delivery.get('ddls') or 0} DDLs in all"
    lines = [
        f"delivery   {_delivery_state(delivery, behind or 0.0, parts_to_read)}",
        f"delivered  {describe(checkpoint) if checkpoint else 'nothing yet'}; {done}"
        + (f"; {behind:.1f} s behind the log" if behind is not None else ""),
        *_pace(delivery, checkpoint),
    ]
    if missed := delivery.get("missed_rows"):
        lines.append(f"missed     {missed} rows that were to be changed or deleted were not in the database; the log names some of them")
    if ends := delivery.get("partitions"):
        lines += [f"  of partition {p} " + describe(end) for p, end in enumerate(ends)]
    if error := delivery.get("error"):
        lines.append(f"error      {error.get('code')}: {error.get('message')}")
    if delivery.get("resume"):
        lines.append(f"to resume  {delivery['resume']}")
    return lines


def _pace(delivery: dict[str, Any], checkpoint: int) -> list[str]:
    """Return how far the delivery is behind the clock, and how fast it was in the last minute; nothing of a run that is over or gone,
    whose figures would be old."""
    now = time.time()
    gone = delivery.get("run") in ("stopped", "failed") or now - float(delivery.get("updated_at") or 0) > SILENT
    if gone or not checkpoint or not delivery.get("running"):
        return []
    lag = f"pace       {max(0.0, now - physical_ms(checkpoint) / 1000):.1f} s behind the clock"
    return [lag + (f"; {delivery['rows_per_s']} rows/s in the last minute" if "rows_per_s" in delivery else "")]


def _delivery_state(delivery: dict[str, Any], behind: float, parts: int) -> str:
    """Return what the changefeed is doing, since when, and what comes next."""
    state, now = delivery.get("state", "?"), time.time()
    if delivery.get("run") in ("stopped", "failed"):
        return f"{state}; the run {'ended' if delivery['run'] == 'stopped' else 'failed'} at {_moment(delivery.get('updated_at'))}"
    if delivery.get("run") and (age := now - float(delivery.get("updated_at") or now)) > SILENT:
        return f"{state} when it was last heard of, {age:.0f} s ago: is the run gone?"
    if state == State.FAILED:
        return f"failed since {_moment(delivery.get('failed_at'))}; it is not tried again by itself, the capture goes on"
    process = f"process {delivery['pid']}" if delivery.get("pid") else "its process is starting"
    process = process if delivery.get("running") else "its process has ended"
    if state == State.WARNING:
        since = f" since {_moment(delivery['warning_since'])}" if delivery.get("warning_since") else ""
        if retry_at := delivery.get("retry_at"):
            process = f"it is tried again in {max(0.0, retry_at - now):.0f} s"
        return f"warning{since} ({process})"
    still = now - float(delivery.get("moved_at") or now)
    if state == State.NORMAL and delivery.get("running") and parts and still > SILENT:
        return f"nothing was delivered for {still:.0f} s ({process}): {parts} parts of tables are still to be read, which it may wait for"
    if state == State.NORMAL and delivery.get("running") and not delivery.get("last_batch"):
        return f"starting{f' ({process})' if delivery.get('pid') else ''}: the first batch has not been delivered yet"
    if state == State.NORMAL and delivery.get("running") and still > SILENT and behind > SILENT:
        return f"nothing was acknowledged for {still:.0f} s ({process}): the sink does not answer, or a batch takes long"
    return f"{state} ({process})"


def group_line(one: dict[str, Any]) -> str:
    """A group of a capture in several processes."""
    said = f"group {one['group']}".ljust(11) + f"{one['state']} since {one['since']}"
    if one.get("pid"):
        said += f", process {one['pid']} on {one['host']}, attempt {one['attempt']}"
    head = min((int(head) for head in one["heads"].values()), default=0)
    said += f"; partitions {', '.join(map(str, one['partitions']))}" + (f" up to {describe(head)}" if head else "")
    part = one.get("part", {})
    said += f"; {part.get('tables', 0)} tables, {part.get('rows', 0)} rows"
    return said + (f"; {one['error']['code']}: {one['error']['message']}" if one.get("error") else "")


def _stuck_table(stuck: list[dict[str, Any]]) -> Table:
    table = Table("region", "store", "table", "cause", "for", "resolved", "lock", title="without progress")
    for one in stuck:
        store = f"{one.get('store', '')} {one.get('store_address', '')}".strip()
        lock = one.get("lock", {}).get("key", "")
        cause = f"{one['cause']}: {one['last_error']}" if one.get("last_error") else one["cause"]
        row = (one.get("region", ""), store, one.get("table", ""), cause, f"{one['seconds']} s", one["resolved_time"], lock)
        add_row(table, row)
    return table

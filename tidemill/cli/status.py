"""`tidemill status`: what a capture does, and what holds it back; of a run, how far it has delivered."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tidemill.capture.config import CaptureConfig
from tidemill.capture.status import FILE, held_by
from tidemill.errors import ConfigError, UpstreamUnavailable
from tidemill.tso import describe

CONTEXT = {"help_option_names": ["-h", "--help"]}
TIMEOUT = 5.0
DELIVERY = "delivery.json"
LIVING = ("starting", "running", "stopping")
SILENT = 15.0  # seconds: a capture tells of itself every second


def command(
    log: Annotated[str | None, typer.Option("--log", envvar="TIDEMILL_LOG", help="The change log; its status.json is read.")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="As it was given to `tidemill capture` or `tidemill run`.")] = None,
    changefeed_id: Annotated[str | None, typer.Option("--changefeed-id", "-c", help="Of a `tidemill run`, where DIR has several.")] = None,
    status_addr: Annotated[str | None, typer.Option("--status-addr", help="HOST:PORT of a capture to be asked.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Tell how far a capture is, and which region, store, lock or table holds the watermark since when; of a run, what it has delivered."""
    status = _ask(status_addr) if status_addr else _read(log, data_dir, changefeed_id)
    if as_json:
        typer.echo(json.dumps(status, indent=2))
        return
    console = Console(highlight=False, soft_wrap=True)
    for line in summary(status):
        console.print(line, markup=False)
    if status.get("stuck"):
        console.print(_stuck_table(status["stuck"]))


def _folder(data_dir: Path, changefeed_id: str | None) -> Path:
    """Where the capture of a data directory keeps its status: that of a run has one for each changefeed. Raises ConfigError."""
    feeds = sorted(path.parent.name for path in data_dir.glob("changefeeds/*/capture"))
    if not feeds:
        return data_dir
    if changefeed_id is None and len(feeds) > 1:
        raise ConfigError(f"{data_dir} has several changefeeds: {', '.join(feeds)}", hint="Name one by --changefeed-id.")
    if changefeed_id is not None and changefeed_id not in feeds:
        raise ConfigError(f"{data_dir} has no changefeed {changefeed_id}; it has {', '.join(feeds)}")
    return data_dir / "changefeeds" / (changefeed_id or feeds[0]) / "capture"


def _read(log: str | None, data_dir: Path | None, changefeed_id: str | None) -> dict[str, Any]:
    if log is None and data_dir is None:
        raise ConfigError("which capture?", hint="Give --data-dir of `tidemill run`, --log of `tidemill capture`, or --status-addr.")
    folder = _folder(data_dir, changefeed_id) if data_dir is not None else CaptureConfig(pd=("-",), log=log or "").folder
    try:
        found: dict[str, Any] = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        raise ConfigError(f"{folder / FILE} does not exist", hint="The capture of a `tidemill run` is found by its --data-dir.") from None
    except (OSError, ValueError) as e:
        raise ConfigError(f"{folder / FILE} cannot be read: {e}") from None
    if (delivery := _delivery(folder.parent)) is not None:
        found["delivery"] = delivery
    return found


def _delivery(folder: Path) -> dict[str, Any] | None:
    """What the changefeed of a run says of itself; None for a capture alone, and before the first word."""
    try:
        found: dict[str, Any] = json.loads((folder / DELIVERY).read_text())
    except (OSError, ValueError):
        return None
    return found


def _ask(address: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://{address}/status", timeout=TIMEOUT) as answer:
            found: dict[str, Any] = json.load(answer)
    except (OSError, ValueError) as e:
        raise UpstreamUnavailable(f"no capture answers at {address}: {e}") from None
    return found


def summary(status: dict[str, Any]) -> list[str]:
    """A status in lines for people."""
    regions = ", ".join(f"{n} {phase}" for phase, n in status.get("regions", {}).items() if n) or "none"
    lines = [
        f"state      {status.get('state', '?')} (process {status.get('pid', '?')}){_silence(status)}",
        *([f"paused     {status['paused']}"] if status.get("paused") else []),
        f"cluster    {status.get('cluster_id', '')}",
        f"log        {status.get('log', '')}",
        f"resolved   {status.get('resolved_time', '')}, {status.get('lag_s', 0)} s behind",
        f"captured   {status.get('tables', 0)} tables; regions: {regions}",
        f"rows       {status.get('rows', 0)} in {status.get('segments', 0)} segments",
        f"waiting    {status.get('waiting_bytes', 0)} bytes of rows, {status.get('prewrite_bytes', 0)} of prewrites",
    ]
    if status.get("parts_to_read"):
        lines.append(f"loading    {status['parts_to_read']} parts of tables are still to be read")
    if status.get("gc_safe_point"):
        lines.append(f"history    {_history(status)}")
    lines += [group_line(one) for one in status.get("groups", ())]
    if status.get("holding"):
        lines.append(f"held by    {held_by(status['holding'])}")
    if status.get("error"):
        lines.append(f"error      {status['error'].get('code')}: {status['error'].get('message')}")
    return lines + delivered(status["delivery"]) if status.get("delivery") else lines


def _age(status: dict[str, Any]) -> float:
    """Seconds since the capture told of itself."""
    return max(0.0, time.time() - float(status.get("updated") or time.time()))


def _silence(status: dict[str, Any]) -> str:
    """A process that was killed says nothing of its end."""
    age = _age(status)
    return f", silent for {age:.0f} s: is it gone?" if status.get("state") in LIVING and age > SILENT else ""


def _history(status: dict[str, Any]) -> str:
    """What PD keeps for the log, and for how long if nobody renews it."""
    since = f"kept by PD from {describe(status['gc_safe_point'])} on"
    left = status.get("gc_seconds_left", 0) - _age(status)
    if left <= 0:
        return f"was {since} until {-left:.0f} s ago: if TiDB has collected it since, the capture will refuse to go on"
    gone = status.get("state") not in LIVING or _age(status) > SILENT
    return f"{since}, for another {left:.0f} s" + (": so long the capture may stay away" if gone else " if the capture falls silent")


def delivered(delivery: dict[str, Any]) -> list[str]:
    """The delivery of a run in lines for people."""
    process = f"process {delivery.get('pid', '?')}" if delivery.get("running") else "its process has ended"
    lines = [
        f"delivery   {delivery.get('state', '?')} ({process})",
        f"delivered  {describe(delivery.get('checkpoint_ts', 0))}; {delivery.get('rows', 0)} rows and {delivery.get('ddls', 0)} DDLs",
    ]
    if error := delivery.get("error"):
        lines.append(f"error      {error.get('code')}: {error.get('message')}")
    return lines


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
    table = Table("region", "store", "table", "problem", "for", "resolved", "lock", title="without progress")
    for one in stuck:
        store = f"{one.get('store', '')} {one.get('store_address', '')}".strip()
        lock = one.get("lock", {}).get("key", "")
        problem = f"{one['problem']}: {one['why']}" if one.get("why") else one["problem"]
        row = (one.get("region", ""), store, one.get("table", ""), problem, f"{one['seconds']} s", one["resolved_time"], lock)
        table.add_row(*(str(cell) for cell in row))
    return table

"""`tidemill tables`: what a cluster has, and which tables can be delivered."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
import uvloop
from rich.table import Table

from tidemill import tso
from tidemill.capture.meta import read_meta
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import Security, security_of
from tidemill.cli.shared.options import (
    JsonOption,
    Output,
    OutputOption,
    PdOption,
    form,
)
from tidemill.cli.shared.terminal import add_row, console, echo
from tidemill.cli.shared.tls import CaOption, CertOption, KeyOption
from tidemill.tidb.schema.tracking.history import SchemaHistory, TableVersion

COLUMNS = ("schema", "table", "id", "kind", "partitions", "key")


def command(
    pd: PdOption,
    at: Annotated[str, typer.Option("--at", help="List the tables as of this time: a TSO, RFC 3339, now, -2h.")] = "now",
    output: OutputOption = Output.TEXT,
    as_json: JsonOption = False,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """List the tables of a cluster and their keys. Tables without a usable key are delivered only with force-replicate."""
    found = uvloop.run(_tables(pd, at, security_of(pd.split(","), ca, cert, key)))
    if form(output, as_json) is Output.JSON:
        echo(json.dumps(found, indent=2))
        return
    table = Table(*COLUMNS, box=None, pad_edge=False)
    for entry in found:
        add_row(table, ("" if entry[name] is None else entry[name] for name in COLUMNS))
    console().print(table)
    without = sum(1 for entry in found if entry["kind"] == "table" and entry["key"] is None)
    echo(f"{len(found)} tables and views; {without} without a usable key")


async def _tables(pd: str, at: str, security: Security | None) -> list[dict[str, Any]]:
    client = await PdClient.connect(pd, security=security)
    try:
        ts = tso.parse(at, await client.tso())
        history = SchemaHistory.bootstrap(ts, (await read_meta(client, ts)).items())
    finally:
        await client.close()
    return [_entry(version) for version in sorted(history.snapshot(ts).tables.values(), key=lambda v: v.name)]


def _entry(version: TableVersion) -> dict[str, Any]:
    info = version.info
    kind = "view" if info.is_view else "table" if info.has_rows else "sequence" if info.is_sequence else "temporary table"
    key = ", ".join(info.handle_key_names) if info.has_rows and info.has_usable_key else None
    partitions = len(version.physical_ids) if info.partition is not None else None
    return {"schema": version.schema, "table": version.table, "id": version.table_id, "kind": kind, "partitions": partitions, "key": key}

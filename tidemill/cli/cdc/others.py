"""`tidemill cli capture|processor|tso|unsafe`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from tidemill import tso as timestamps
from tidemill.cli.cdc.changefeeds import NoConfirmOption, UpstreamCa, UpstreamCert, UpstreamKey, UpstreamPd
from tidemill.cli.cdc.client import Client
from tidemill.cli.cdc.commands import said_as_ticdc, verb, with_flags
from tidemill.cli.cdc.connection import Connection
from tidemill.cli.cdc.options import IdOption, KeyspaceOption
from tidemill.cli.cdc.output import print_json, read_yes
from tidemill.cli.cdc.wanted import upstream
from tidemill.cli.shared.terminal import echo
from tidemill.errors import made

if TYPE_CHECKING:
    from tidemill.capture.tikv.client.pd import PdClient

RESOLVE_BEFORE_MS = 60_000
"""Locks of the last minute may be of transactions that still run."""

capture = typer.Typer(no_args_is_help=True, help="Manage servers.")
processor = typer.Typer(no_args_is_help=True, help="Look at changefeeds on servers.")
tso = typer.Typer(no_args_is_help=True, help="The cluster's time.")
unsafe = typer.Typer(no_args_is_help=True, help="For those who know what they do.")


@verb(capture, "list")
def list_captures(client: Client) -> None:
    """List servers."""
    found = client.items("/api/v2/captures")
    names = {"id": "id", "is-owner": "is_owner", "address": "address", "cluster-id": "cluster_id"}
    print_json([{shown: one[name] for shown, name in names.items()} for one in found])


@verb(processor, "list")
def list_processors(client: Client) -> None:
    """List which changefeeds run on which servers."""
    found = client.items("/api/v2/processors")
    print_json([{"id": one["changefeed_id"], "capture_id": one["capture_id"]} for one in found])


@verb(processor, "query")
def query_processor(
    client: Client, changefeed_id: IdOption, capture_id: Annotated[str, typer.Option("--capture-id", "-p", help="A server's id.")]
) -> None:
    """Show which tables a server has of a changefeed."""
    found = client.send("GET", f"/api/v2/processors/{quote(changefeed_id, safe='')}/{quote(capture_id, safe='')}")
    tables = {str(table): {"start-ts": 0} for table in found["table_ids"]}
    print_json({"status": {"tables": tables, "operation": None, "admin-job-type": 0}, "position": None})


def _query_tso() -> None:
    def query(_: None) -> None:
        """Print the cluster's time: from PD with --pd, else from the server."""

    def call(connection: Connection, given: object) -> None:
        with said_as_ticdc():
            if connection.pd:
                echo(asyncio.run(_tso_of_pd(connection.pd, connection)))
                return
            with connection.client() as client:
                echo(timestamps.compose(*client.tso()))

    tso.command("query")(with_flags(query, call))


async def _tso_of_pd(pd: str, connection: Connection) -> int:
    async with _pd_of(pd, connection) as client:
        return await client.tso()


@asynccontextmanager
async def _pd_of(pd: str, connection: Connection) -> AsyncIterator[PdClient]:
    from tidemill.capture.tikv.client.pd import PdClient  # with gRPC; the other commands need not load it
    from tidemill.capture.tikv.client.tls import security_of

    paths = [Path(one) if one else None for one in (connection.ca, connection.cert, connection.key)]
    client = await PdClient.connect(pd, security=security_of(pd.split(","), *paths))
    try:
        yield client
    finally:
        await client.close()


_query_tso()


@verb(unsafe, "show-metadata")
def show_metadata(client: Client) -> None:
    """Print what the server keeps."""
    found = client.send("GET", "/api/v2/unsafe/metadata")
    for one in found:
        echo(f"Key: {one.get('key', '')}, Value: {one.get('value', '')}")
    echo(f"Show {len(found)} KVs")


@verb(unsafe, "resolve-lock")
def resolve_lock(
    client: Client,
    region: Annotated[int, typer.Option("--region", help="The region's id.")],
    ts: Annotated[int, typer.Option("--ts", help="Resolve locks before this TSO. Default: a minute ago.")] = 0,
    keyspace: KeyspaceOption = "default",
    upstream_pd: UpstreamPd = None,
    upstream_ca: UpstreamCa = None,
    upstream_cert: UpstreamCert = None,
    upstream_key: UpstreamKey = None,
) -> None:
    """Resolve the locks of a region whose transactions are over."""
    cluster = upstream(upstream_pd, upstream_ca, upstream_cert, upstream_key)
    if not ts:
        ts = timestamps.compose(client.tso(cluster)[0] - RESOLVE_BEFORE_MS)
    client.send("POST", "/api/v2/unsafe/resolve_lock", {**cluster, "region_id": region, "ts": ts}, keyspace=keyspace)


@verb(unsafe, "delete-service-gc-safepoint")
def delete_service_gc_safepoint(
    client: Client,
    no_confirm: NoConfirmOption = False,
    keyspace: KeyspaceOption = "default",
    upstream_pd: UpstreamPd = None,
    upstream_ca: UpstreamCa = None,
    upstream_cert: UpstreamCert = None,
    upstream_key: UpstreamKey = None,
) -> None:
    """Remove what holds the cluster's GC back for this server."""
    _confirm(no_confirm)
    cluster = upstream(upstream_pd, upstream_ca, upstream_cert, upstream_key)
    client.send("DELETE", "/api/v2/unsafe/service_gc_safepoint", cluster, keyspace=keyspace)
    echo("CDC service GC safepoint truncated in PD!")


@verb(unsafe, "reset")
def reset(
    client: Client,
    no_confirm: NoConfirmOption = False,
    cluster_id: Annotated[str, typer.Option("--cluster-id", help="`default`, the only one.")] = "default",
) -> None:
    """Remove all changefeeds, and what holds the cluster's GC back."""
    _confirm(no_confirm)
    if cluster_id != "default":
        raise made("CDC:ErrAPIInvalidParam", f"there is no cluster {cluster_id}; there is `default`", retryable=False)
    for one in client.changefeeds("all"):
        client.remove(one["id"])
    client.send("DELETE", "/api/v2/unsafe/service_gc_safepoint", {})
    echo("reset and all metadata truncated in PD!")


def _verify_gc_safepoint() -> None:
    def verify(_: None, keyspace: KeyspaceOption = "default") -> None:
        """Read the names of all databases at PD's GC safe point: whether a changefeed may begin there. Needs --pd."""

    def call(connection: Connection, given: Mapping[str, str]) -> None:
        with said_as_ticdc():
            if not connection.pd:
                raise made(
                    "CDC:ErrInvalidServerOption", "Empty PD address. Please use --pd to specify PD cluster addresses", retryable=False
                )
            if given["keyspace"] != "default":
                raise made("CDC:ErrLoadKeyspaceFailed", f"there is no keyspace {given['keyspace']}; there is `default`", retryable=False)
            ts, databases = asyncio.run(_databases_at_safe_point(connection.pd, connection))
            echo(f"GC safepoint and ListDatabases verified, snapshot-ts: {ts}, databases: {databases}")

    unsafe.command("verify-gc-safepoint")(with_flags(verify, call))


async def _databases_at_safe_point(pd: str, connection: Connection) -> tuple[int, int]:
    from tidemill.capture.meta import read_meta
    from tidemill.tidb.schema.tracking.history import SchemaHistory

    async with _pd_of(pd, connection) as client:
        state = await client.gc_state()
        ts = state.txn_safe_point if state is not None else await client.gc_safe_point()
        if not ts:
            raise made("CDC:ErrGetServiceSafepointFailed", "safepoint is zero, GC may not have run in this cluster yet", retryable=False)
        echo(f"WARNING: this verification holds no service safepoint; GC may advance past snapshot {ts} before the read completes.")
        found = SchemaHistory.bootstrap(ts, (await read_meta(client, ts)).items()).snapshot(ts)
    return ts, len(found.databases)


_verify_gc_safepoint()


def _confirm(no_confirm: bool) -> None:
    if no_confirm:
        return
    echo("Confirm that you know what this command will do and use it at your own risk [Y/N]")
    if not read_yes():
        echo("Error: abort meta command", err=True)
        raise typer.Exit(1)

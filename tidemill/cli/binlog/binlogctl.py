"""`tidemill binlogctl`: look at Pumps and Drainers, pause them, take them offline. The flags are the real one's, with one dash or two."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill import tso
from tidemill.binlog.ctl.commands import COMMANDS, Control, Query
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import security_of
from tidemill.cli.shared.terminal import echo


def _flag(name: str, text: str) -> Any:
    return typer.Option(f"--{name}", f"-{name}", help=text)


def command(
    cmd: Annotated[str, _flag("cmd", f"One of {', '.join(COMMANDS)}.")] = "pumps",
    pd_urls: Annotated[str, _flag("pd-urls", "PD's addresses, with commas.")] = "http://127.0.0.1:2379",
    node_id: Annotated[str, _flag("node-id", "ID of the node.")] = "",
    state: Annotated[str, _flag("state", "The state that update-pump and update-drainer write.")] = "",
    data_dir: Annotated[Path, _flag("data-dir", "Where generate_meta writes the savepoint.")] = Path("binlog_position"),
    show_offline_nodes: Annotated[bool, typer.Option("--show-offline-nodes", "-show-offline-nodes", help="Show offline ones too.")] = False,
    time_zone: Annotated[str, _flag("time-zone", "Show the time of generate_meta in this zone.")] = "",
    ts: Annotated[str, _flag("ts", "What wait waits for: a TSO, a time, or now.")] = "now",
    timeout: Annotated[float, _flag("timeout", "Seconds that wait waits; 0: no limit.")] = 0.0,
    ssl_ca: Annotated[Path | None, _flag("ssl-ca", "PEM file with the cluster's CA.")] = None,
    ssl_cert: Annotated[Path | None, _flag("ssl-cert", "PEM file with a client certificate.")] = None,
    ssl_key: Annotated[Path | None, _flag("ssl-key", "PEM file with the key of --ssl-cert.")] = None,
) -> None:
    """Look at Pumps and Drainers, pause them, take them offline, and wait for them."""
    security = security_of(pd_urls.split(","), ssl_ca, ssl_cert, ssl_key)

    async def run() -> None:
        pd = await PdClient.connect(pd_urls, security=security)
        try:
            wanted = tso.parse(ts, await pd.tso())
            query = Query(node_id, state, data_dir, show_offline_nodes, time_zone, wanted, timeout)
            await Control(pd, security, echo).run(cmd, query)
        finally:
            await pd.close()

    asyncio.run(run())

"""`tidemill cli changefeed move-table` and the like. The server refuses them, and says why."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemill.cli.cdc.client import Client, feed_path
from tidemill.cli.cdc.commands import verb
from tidemill.cli.cdc.options import IdOption, KeyspaceOption
from tidemill.cli.cdc.output import print_json
from tidemill.errors import TidemillError

_Table = Annotated[int, typer.Option("--table-id", "-t", help="The table's id.")]
_Node = Annotated[str, typer.Option("--target-node-id", "-d", help="The server that should have it.")]
_Mode = Annotated[int, typer.Option("--mode", hidden=True)]
_Wait = Annotated[str, typer.Option("--wait", hidden=True)]


def add(app: typer.Typer) -> None:
    """Add the commands."""

    @verb(app, "move-table", hidden=True)
    def move_table(
        client: Client, changefeed_id: IdOption, table_id: _Table, target_node_id: _Node, mode: _Mode = 0, wait: _Wait = "true",
        keyspace: KeyspaceOption = "default",
    ) -> None:  # fmt: skip
        """Move a table to another server."""
        _ask(client, changefeed_id, "move_table", table_id, target_node_id, keyspace)

    @verb(app, "move-split-table", hidden=True)
    def move_split_table(
        client: Client,
        changefeed_id: IdOption,
        table_id: _Table,
        target_node_id: _Node,
        mode: _Mode = 0,
        keyspace: KeyspaceOption = "default",
    ) -> None:
        """Move the parts of a table to another server."""
        _ask(client, changefeed_id, "move_split_table", table_id, target_node_id, keyspace)

    @verb(app, "split-table-by-region-count", hidden=True)
    def split_table(
        client: Client, changefeed_id: IdOption, table_id: _Table, mode: _Mode = 0, keyspace: KeyspaceOption = "default"
    ) -> None:
        """Split a table."""
        _ask(client, changefeed_id, "split_table_by_region_count", table_id, None, keyspace)

    @verb(app, "merge-table", hidden=True)
    def merge_table(
        client: Client, changefeed_id: IdOption, table_id: _Table, mode: _Mode = 0, keyspace: KeyspaceOption = "default"
    ) -> None:
        """Merge the parts of a table."""
        _ask(client, changefeed_id, "merge_table", table_id, None, keyspace)


def _ask(client: Client, changefeed_id: str, action: str, table_id: int, node: str | None, keyspace: str) -> None:
    """Print `{"success": …, "error": …}`. As in TiCDC, a refusal is not a failure of the command."""
    said = ""
    try:
        client.send("POST", feed_path(changefeed_id, f"/{action}"), tableID=table_id, targetNodeID=node, keyspace=keyspace)
    except TidemillError as error:
        said = f"[{error.code}]{error.message}"
    print_json({"success": not said, "error": said})

"""`tidemill canal ctl`: where the clients of an entry store are; move one; forget one."""

from __future__ import annotations

import json
import secrets
import time
from typing import Annotated, Any

import typer

from tidemill import tso
from tidemill.canal.conversation.subscriber import Key
from tidemill.canal.server.control import CONTROL, DONE
from tidemill.canal.server.saving import load
from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.open import open_storage
from tidemill.cli.shared.options import STORE_VARIABLE, JsonOption, Output, OutputOption, form
from tidemill.cli.shared.terminal import echo
from tidemill.errors import ConfigError, UpstreamUnavailable, redact
from tidemill.sinks.canal.store.reader import EntryStoreReader

PATIENCE_S = 15.0
POLL_S = 0.1

ctl = typer.Typer(help="Look at the clients of an entry store, move them, forget them.", no_args_is_help=True)

StoreOption = Annotated[str, typer.Option("--store", envvar=STORE_VARIABLE, help="Folder or URL of the entry store.")]
DestinationArgument = Annotated[str, typer.Argument(metavar="DESTINATION", help="The destination that the client reads.")]
ClientArgument = Annotated[int, typer.Argument(metavar="CLIENT", help="The client's number, 1001 for most.")]


@ctl.callback()
def group() -> None:
    """Look at the clients of an entry store, move them, forget them."""


@ctl.command()
def clients(store: StoreOption, output: OutputOption = Output.TEXT, as_json: JsonOption = False) -> None:
    """Show how far each client has acknowledged, as the store's files have it. No server is needed."""
    storage = open_storage(store)
    reader = EntryStoreReader(storage)
    head = reader.head()
    found = [
        _described(key, record.place.position.commit_ts, record.filter, head) for key, record in sorted(load(storage).items(), key=_order)
    ]
    if form(output, as_json) is Output.JSON:
        echo(json.dumps({"begins": reader.begins(), "head": head, "clients": found}, indent=2))
        return
    echo(f"the store holds {tso.describe(reader.begins())} to {tso.describe(head)}")
    for one in found:
        echo(
            f"{one['destination']} {one['client']}: acknowledged {tso.describe(one['acknowledged_ts'])}, {one['lag_s']:.0f} s behind"
            + (f", filter {one['filter']}" if one["filter"] else "")
        )
    if not found:
        echo("no client is known")


def _order(item: tuple[Key, Any]) -> tuple[str, int]:
    return item[0].destination, item[0].client


def _described(key: Key, acked: int, filter_: str, head: int) -> dict[str, Any]:
    lag = max(0, tso.physical_ms(head) - tso.physical_ms(acked)) / 1000
    return {"destination": key.destination, "client": key.client, "acknowledged_ts": acked, "lag_s": lag, "filter": filter_}


@ctl.command()
def seek(
    destination: DestinationArgument,
    client: ClientArgument,
    to: Annotated[str, typer.Argument(metavar="TO", help="A TSO, a time (RFC 3339), now or -2h: entries behind it come next.")],
    store: StoreOption,
) -> None:
    """Move a client of a running server. Its open batches are gone; what it gets next lies behind TO."""
    storage = open_storage(store)
    ts = tso.parse(to, EntryStoreReader(storage).head())
    _ask(storage, {"do": "seek", "destination": destination, "client": client, "ts": ts})
    echo(f"client {client} of {destination} goes on from {tso.describe(ts)}")


@ctl.command()
def forget(destination: DestinationArgument, client: ClientArgument, store: StoreOption) -> None:
    """Forget a client of a running server: nothing is kept for it any more. If it subscribes again it begins as a new one."""
    _ask(open_storage(store), {"do": "forget", "destination": destination, "client": client})
    echo(f"client {client} of {destination} is forgotten")


def _ask(storage: Storage, request: dict[str, Any]) -> None:
    """Ask the server that serves the store, and wait for its answer. Raises ConfigError with what it says, UpstreamUnavailable."""
    word = secrets.token_hex(8)
    name, done = f"{CONTROL}/{word}.json", f"{CONTROL}/{word}{DONE}"
    storage.replace(name, json.dumps(request).encode(), durable=False)
    until = time.monotonic() + PATIENCE_S
    while (answer := storage.read(done)) is None:
        if time.monotonic() > until:
            storage.delete(name)
            raise UpstreamUnavailable(
                f"no server answers for the store {redact(storage.location)} within {PATIENCE_S:g} s",
                hint="Start `tidemill canal` with it.",
            )
        time.sleep(POLL_S)
    storage.delete(done)
    error = json.loads(answer).get("error")
    if error:
        raise ConfigError(str(error))

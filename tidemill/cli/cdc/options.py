"""Options that `tidemill changefeed` and `tidemill cli changefeed` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.shared import completion

IdOption = Annotated[str, typer.Option("--changefeed-id", "-c", help="The changefeed's name.", autocompletion=completion.changefeeds)]
KeyspaceOption = Annotated[str, typer.Option("--keyspace", "-k", "--namespace", "-n", help="`default`, the only one.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="The configuration file (TOML).")]
RegistryOption = Annotated[str | None, typer.Option("--schema-registry", help="Address of the schema registry.")]
AllOption = Annotated[bool, typer.Option("--all", "-a", help="Also finished and removed ones.")]

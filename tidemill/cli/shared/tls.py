"""The flags of TLS to PD and TiKV, with TiCDC's names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CaOption = Annotated[Path | None, typer.Option("--ca", help="PEM file with the CA of PD and TiKV. Turns TLS on.")]
CertOption = Annotated[Path | None, typer.Option("--cert", help="PEM file with the client certificate, if the cluster asks for one.")]
KeyOption = Annotated[Path | None, typer.Option("--key", help="PEM file with the key of --cert.")]

"""The flags of TLS to PD and TiKV, with TiCDC's names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CaOption = Annotated[Path | None, typer.Option("--ca", help="PEM file with the CA of PD and TiKV; asks for TLS.")]
CertOption = Annotated[Path | None, typer.Option("--cert", help="PEM file with our certificate, where the cluster verifies clients.")]
KeyOption = Annotated[Path | None, typer.Option("--key", help="PEM file with the key of --cert.")]

"""`tidemill doctor`: is everything there that a changefeed needs?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tidemill.cli.shared.console import of_uri
from tidemill.cli.shared.feeds import DATA_DIR
from tidemill.cli.shared.options import JsonOption, Output, OutputOption, SparkConfOption, SparkMasterOption, form
from tidemill.cli.shared.terminal import cell, console, echo
from tidemill.cli.shared.tls import CaOption, CertOption, KeyOption
from tidemill.doctor.findings import Finding, Health, is_well

_COLOURS = {Health.GOOD: "green", Health.DOUBTFUL: "yellow", Health.BAD: "red"}


def command(
    pd: Annotated[str | None, typer.Option("--pd", help="PD's addresses, HOST:PORT[,HOST:PORT…]: check the cluster.")] = None,
    log: Annotated[str | None, typer.Option("--log", help="Folder or URL of the change log: look at its place.")] = None,
    sink_uri: Annotated[str | None, typer.Option("--sink-uri", help="Look at this sink.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="The changefeed's TOML file, which adds to the sink URI.")] = None,
    data_dir: Annotated[Path, typer.Option("--data-dir", help="Folder of a run's state.")] = DATA_DIR,
    start_ts: Annotated[str | None, typer.Option("--start-ts", help="Is there still history since then? TSO, RFC 3339, now, -2h.")] = None,
    master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    output: OutputOption = Output.TEXT,
    as_json: JsonOption = False,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Check this machine, the cluster, the log's place and the sink, and say what to do about what is wrong.

    Give what `tidemill run` is to be given. Nothing is created. Ends with 0 if a changefeed can be started, else with 1.
    """
    from tidemill.capture.tikv.client.tls import security_of
    from tidemill.config.file import load_config
    from tidemill.doctor.examine import Subjects, examine
    from tidemill.spark import settings

    addresses = None if pd is None else tuple(address.strip() for address in pd.split(",") if address.strip())
    security = None if addresses is None else security_of(addresses, ca, cert, key)
    if sink_uri is not None:
        sink_uri, _ = of_uri(sink_uri, data_dir.absolute() / "console" / "default.jsonl")
    sink = None if sink_uri is None else load_config(config).sink_uri(sink_uri)
    subjects = Subjects(data_dir, addresses, security, start_ts, log, sink, master, settings.options(spark_conf or ()))
    found: list[Finding] = []
    terminal = console()
    for finding in examine(subjects):
        found.append(finding)
        if form(output, as_json) is not Output.JSON:
            _print(terminal, finding)
    if form(output, as_json) is Output.JSON:
        echo(json.dumps({"well": is_well(found), "findings": [finding.as_dict() for finding in found]}, ensure_ascii=False, indent=2))
    else:
        _summary(terminal, found)
    sys.stdout.flush()
    if not is_well(found):
        raise typer.Exit(1)


def _print(terminal: Console, finding: Finding) -> None:
    terminal.print(Text.assemble((f"{finding.health.value:<8}", _COLOURS[finding.health]), cell(f"{finding.subject}: {finding.text}")))
    if finding.remedy:
        terminal.print(cell(f"        → {finding.remedy}"))


def _summary(terminal: Console, found: list[Finding]) -> None:
    counts = {health: sum(finding.health is health for finding in found) for health in Health}
    terminal.print(f"{len(found)} checks: {counts[Health.BAD]} failed, {counts[Health.DOUBTFUL]} warnings")

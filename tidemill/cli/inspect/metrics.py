"""`tidemill metrics`: the Grafana dashboard and the alert rules of Prometheus."""

from __future__ import annotations

import json
from importlib import resources

import typer

from tidemill.cli.shared.terminal import echo
from tidemill.metrics.dashboard import dashboard

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command("dashboard")
def print_dashboard() -> None:
    """Print a Grafana dashboard, to be imported there."""
    echo(json.dumps(dashboard(), indent=2))


@app.command("alerts")
def print_alerts() -> None:
    """Print alert rules, a file for `rule_files` of Prometheus."""
    echo(resources.files("tidemill.metrics").joinpath("alerts.yml").read_text(encoding="utf-8"), nl=False)

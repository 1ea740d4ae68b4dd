"""What deploy/ has is well formed, and starts Tidemill with options that it knows. Linters and helm are used where they are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml

from tidemill.cli.changefeeds import run, server
from tidemill.cli.main import build
from tidemill.cli.playground import playground

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "tidemill"
VALUES = ["--set", "pd=pd:2379", "--set", "sink.uri=blackhole://"]


def options_of(verb: Any) -> set[str]:
    """The options of a verb."""
    app = typer.Typer()
    app.command()(verb)
    command = typer.main.get_command(app)
    assert isinstance(command, click.Command) or hasattr(command, "params")
    return {option for parameter in command.params for option in parameter.opts if option.startswith("--")}


def asked(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def linted(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(one) for one in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_copied_file_is_there() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert [one for one in copied if one != "dist/*.whl" and not (ROOT / one).is_file()] == []
    assert re.search(r"^USER (?!0|root)", text, re.MULTILINE)
    extras = re.search(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)
    assert extras
    project = (ROOT / "pyproject.toml").read_text()
    assert f'all = ["tidemill[{extras[1]}' in project


def test_compose_starts_what_there_is() -> None:
    services = yaml.safe_load((DEPLOY / "docker" / "compose.yml").read_text())["services"]
    assert set(services) == {"playground", "kafka", "server", "changefeed"}
    assert asked(" ".join(services["server"]["command"])) <= options_of(server.command)
    assert asked(" ".join(services["playground"]["command"])) <= options_of(playground.serve)
    assert all("healthcheck" in services[name] for name in ("playground", "kafka"))
    assert services["changefeed"]["depends_on"].keys() == {"server", "kafka"}
    assert services["server"]["environment"]["TIDEMILL_STATUS_ADDR"] == "127.0.0.1:8300"
    assert [port.split(":")[0] for port in services["server"]["ports"]] == ["127.0.0.1"]  # without tokens nobody else may reach it
    for command in services["changefeed"]["command"][0].split(" || "):
        application: Any = typer.main.get_command(build(["changefeed"]))
        verb = application.commands["changefeed"].commands[command.split()[2]]
        assert asked(command) <= {option for one in verb.params for option in one.opts}


def test_the_unit_starts_a_run() -> None:
    unit = (DEPLOY / "systemd" / "tidemill@.service").read_text()
    start = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert start
    example = (DEPLOY / "systemd" / "example.env").read_text()
    assert asked(start[1]) | asked(example) <= options_of(run.command)
    for name in re.findall(r"\$\{?(TIDEMILL_\w+)", start[1]):
        assert f"{name}=" in example


def test_the_unit_of_a_server_starts_one_and_is_as_closed() -> None:
    units = [(DEPLOY / "systemd" / name).read_text() for name in ("tidemill@.service", "tidemill-server.service")]
    start = re.search(r"^ExecStart=(.*)$", units[1], re.MULTILINE)
    assert start
    example = (DEPLOY / "systemd" / "server.env").read_text()
    assert asked(start[1]) | asked(example) <= options_of(server.command)
    for name in re.findall(r"\$\{?(TIDEMILL_\w+)", start[1]):
        assert f"{name}=" in example
    own = ("Description=", "EnvironmentFile=", "ExecStart=")
    settings = [[line for line in unit.splitlines() if "=" in line and not line.startswith(("#", *own))] for unit in units]
    assert settings[0] == settings[1]


def test_the_chart_uses_values_that_are_there() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["name"], chart["apiVersion"]) == ("tidemill", "v2")
    assert f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    templates = {path.name: path.read_text() for path in sorted((CHART / "templates").iterdir())}
    for name, text in templates.items():
        for path in re.findall(r"\.Values\.([\w.]+)", text):
            found: Any = values
            for part in path.split("."):
                assert isinstance(found, dict), (name, path)
                assert part in found, (name, path)
                found = found[part]
        assert text.count("{{") == text.count("}}")
        opened = len(re.findall(r"\{\{-? *(?:if|with|range|define) ", text))
        assert opened == len(re.findall(r"\{\{-? *end *-?\}\}", text))
    arguments = re.findall(r'(?:- |printf ")(--[a-z-]+)', templates["statefulset.yaml"])
    assert set(arguments) <= options_of(run.command) | options_of(server.command)
    for verb, part in zip((server, run), _of_modes(templates["statefulset.yaml"]), strict=True):
        given = set(re.findall(r'(?:- |printf ")(--[a-z-]+)', part))
        assert given
        assert given <= options_of(verb.command)


def _of_modes(text: str) -> tuple[str, str]:
    """The arguments of `server` and those of `run` alone."""
    part = text.partition('{{- if include "tidemill.isServer" . }}\n            - {{ printf "--addr')[2]
    of_server, _, behind = part.partition("{{- else }}")
    return of_server, behind.partition("{{- if .Values.config }}")[0]


def test_what_is_deployed_is_closed_by_default() -> None:
    """The unit's files are its user's alone. The chart's driver asks who connects, its status is the pod's, its root is read-only."""
    unit = (DEPLOY / "systemd" / "tidemill@.service").read_text()
    assert {"UMask=0077", "StateDirectoryMode=0700", "NoNewPrivileges=yes"} <= set(unit.splitlines())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert (values["metrics"]["open"], values["networkPolicy"]["enabled"]) == (False, True)
    pod = (CHART / "templates" / "statefulset.yaml").read_text()
    for wanted in ("spark.authenticate=true", "spark.network.crypto.enabled=true", "automountServiceAccountToken:", "statusIsOpen"):
        assert wanted in pod
    assert pod.count("readOnlyRootFilesystem: true") == pod.count("allowPrivilegeEscalation: false") == 2


@pytest.mark.skipif(shutil.which("helm") is None, reason="there is no helm here")
@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--set", "spark.master=k8s://https://kubernetes.default.svc", "--set", "persistence.enabled=false"],
        ["--set", "config=a\\=1,tls.existingSecret=t,metrics.serviceMonitor.enabled=true,spark.conf.spark\\.x=1"],
        ["--set", "sink.existingSecret=s,state=s3://b/s,extraArgs={--snapshot},podAnnotations.a=b"],
    ],
)
def test_the_chart_renders(more: list[str]) -> None:
    linted("helm", "lint", "--strict", CHART, *VALUES)
    made = [one for one in yaml.safe_load_all(linted("helm", "template", "cdc", CHART, *VALUES, *more)) if one]
    pod = next(one for one in made if one["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert {one["name"] for one in container["volumeMounts"]} <= {one["name"] for one in pod["volumes"] or []} | {"state"}
    assert asked(" ".join(container["args"])) <= options_of(run.command)
    assert {one["kind"] for one in made} >= {"Service", "StatefulSet", "ServiceAccount"}


@pytest.mark.skipif(shutil.which("helm") is None, reason="there is no helm here")
def test_the_chart_renders_a_server() -> None:
    chosen = ["--set", "pd=pd:2379,mode=server,server.replicas=2,server.existingSecret=t,log=s3://b/log"]
    made = [one for one in yaml.safe_load_all(linted("helm", "template", "cdc", CHART, *chosen)) if one]
    pods = next(one for one in made if one["kind"] == "StatefulSet")["spec"]
    container = pods["template"]["spec"]["containers"][0]
    assert (pods["replicas"], container["args"][0]) == (2, "server")
    assert asked(" ".join(container["args"])) <= options_of(server.command)
    assert "Secret" not in {one["kind"] for one in made}


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="there is no hadolint here")
def test_the_dockerfile_as_hadolint_sees_it() -> None:
    linted("hadolint", DEPLOY / "docker" / "Dockerfile")


class Status(BaseHTTPRequestHandler):
    """Answers with the server's status."""

    def do_GET(self) -> None:
        body = json.dumps(self.server.status).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"run": "running", "state": "failed"}, 0),
        ({"run": "failed"}, 1),
        ({"state": "running"}, 0),
        ({"state": "stopped"}, 1),
        ({"version": "v8.5.7"}, 0),
    ],
)
def test_the_health_check(status: dict[str, str], code: int) -> None:
    """A failed changefeed does not make the container unhealthy."""
    server = HTTPServer(("127.0.0.1", 0), Status)
    server.status = status  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        environment = {"TIDEMILL_STATUS_ADDR": f"127.0.0.1:{server.server_port}"}
        assert (
            subprocess.run([sys.executable, DEPLOY / "docker" / "healthcheck.py"], env=environment, capture_output=True).returncode == code
        )
    finally:
        server.shutdown()
        server.server_close()

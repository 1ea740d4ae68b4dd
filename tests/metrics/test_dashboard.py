"""The dashboard and the alert rules ask for metrics that exist; a real Prometheus, where there is one, answers every query."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from tests.support.metric_samples import page_of_a_run
from tidemill.cli.inspect.metrics import app
from tidemill.metrics.dashboard import WINDOW, dashboard, panels
from tidemill.metrics.http import PageServer
from tidemill.metrics.samples import metrics_page
from tidemill.process.ports import free_ports

ALERTS = resources.files("tidemill.metrics").joinpath("alerts.yml").read_text(encoding="utf-8")
QUERIES = [query for panel in panels() for query, _ in panel.queries]
NAME = re.compile(r"\b((?:tidemill|ticdc)_\w+)(?:\{([^}]*)\})?")
HERE = Path(__file__).parent

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="there is no prometheus here; with Debian's package of that name `make dashboards` runs it",
)


def served(folder: Path) -> dict[str, set[str]]:
    """The labels of each series that a run serves, by the name that a query uses."""
    found: dict[str, set[str]] = {}
    text = metrics_page(lambda: page_of_a_run(folder)).body().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {"instance", "job"}).update(sample.labels)
    return found


@pytest.mark.parametrize("what", ["dashboard", "alerts"])
def test_queries_name_what_is_served(tmp_path: Path, what: str) -> None:
    there = served(tmp_path)
    texts = QUERIES if what == "dashboard" else re.findall(r"expr: (.*)", ALERTS)
    asked = [found for text in texts for found in NAME.findall(text)]
    assert len(asked) >= len(texts) > 10
    for name, matchers in asked:
        assert name in there
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= there[name]


def test_the_dashboard_is_whole() -> None:
    made = dashboard()
    assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"])
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in made["panels"]}
    assert len(places) == len(made["panels"])
    assert {t["expr"] for panel in made["panels"] for t in panel.get("targets", ())} == set(QUERIES)


def test_the_verb_prints_both() -> None:
    printed = CliRunner().invoke(app, ["dashboard"])
    assert json.loads(printed.stdout) == dashboard()
    assert CliRunner().invoke(app, ["alerts"]).stdout == ALERTS


@needs_prometheus
def test_the_rules_as_promtool_sees_them(tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(ALERTS)
    shutil.copy(HERE / "alerts_test.yml", tmp_path)
    for command in (["promtool", "check", "rules", "alerts.yml"], ["promtool", "test", "rules", "alerts_test.yml"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


class Prometheus:
    """A Prometheus that scrapes one address each second."""

    def __init__(self, folder: Path, target: str) -> None:
        (folder / "alerts.yml").write_text(ALERTS)
        scraped = {"job_name": "t", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
        (folder / "prometheus.yml").write_text(json.dumps({"rule_files": ["alerts.yml"], "scrape_configs": [scraped]}))
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}/api/v1"
        files = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
        self._process = subprocess.Popen(["prometheus", *files], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(self, query: str) -> list[Any]:
        with urllib.request.urlopen(f"{self._url}/query?{urllib.parse.urlencode({'query': query})}", timeout=10) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
        return found

    def wait_for(self, query: str) -> None:
        pause = threading.Event()
        while True:
            try:
                if self.ask(query):
                    return
            except OSError:
                assert self._process.poll() is None
            pause.wait(0.2)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    pages = PageServer({"/metrics": metrics_page(lambda: page_of_a_run(tmp_path))})
    asyncio.run_coroutine_threadsafe(pages.start("127.0.0.1:0"), loop).result()
    server = Prometheus(tmp_path, pages.address)
    try:
        yield server
    finally:
        server.stop()
        asyncio.run_coroutine_threadsafe(pages.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@needs_prometheus
def test_a_real_prometheus_answers_every_query(prometheus: Prometheus) -> None:
    prometheus.wait_for("count_over_time(tidemill_build_info[1m]) >= 3")
    empty = [
        query
        for query in QUERIES
        if not prometheus.ask(query.replace(WINDOW, "1m").replace("$changefeed", ".*").replace("$instance", ".*"))
    ]
    assert empty == []
    assert prometheus.ask("tidemill_changefeed_statu") == []  # a name that does not exist would be found

"""The commands of the tutorials run as they stand there, against one playground and one server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages.terminals import ROOT, Line, Terminals, files_of, lines_of, needs_a_network, needs_its_tmp, text_with

FOLDER = ROOT / "docs" / "tutorials"
PAGES = sorted(FOLDER.glob("*.md"))
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.kafka, needs_a_network, needs_its_tmp]


class Desk:
    """Terminals with the playground, the server, Kafka, a registry, a MariaDB and a `cdc` in them."""

    def __init__(self, folder: Path) -> None:
        self.terminals = Terminals(folder)
        self._folder = folder

    def open(self) -> None:
        playground, server = lines_of((FOLDER / "README.md").read_text(encoding="utf-8"))
        programs = self._folder / "bin"
        programs.mkdir()
        # TiCDC's command line, played by ours, against the same server
        (programs / "cdc").write_text('#!/bin/sh\nexec tidemill "$@"\n')
        (programs / "cdc").chmod(0o755)
        self.terminals.export({"PYTHONPATH": str(ROOT)}, path=programs)
        upstream = self.terminals.start(playground.command, "playground")
        services = self.terminals.start("python -m tests.support.pages.services", "services")
        said = text_with(upstream, "Kafka is at") + text_with(services, "ready")
        self.terminals.export({"KAFKA": re.findall(r"Kafka is at ([\d.:]+\d)", said)[0]})
        self.terminals.export(dict(re.findall(r"^(REGISTRY|MYSQL_PORT)=(\S+)$", said, re.MULTILINE)))
        self.log = self.terminals.start(server.command, "server")
        self.terminals.answer_with("tidemill changefeed list", "There is no changefeed", self.log, None)

    def page(self, name: str) -> Iterator[Line]:
        """Write the files of a page, and give its commands."""
        text = (FOLDER / name).read_text(encoding="utf-8")
        for path, body in files_of(text).items():
            self.terminals.put(path, body)
        return iter(lines_of(text))

    def run(self, lines: Iterator[Line], upto: str = "") -> str:
        """Run the commands up to one that begins so, which is run, too. Returns what the last one printed."""
        said = ""
        for line in lines:
            said = self.terminals.run(line.command, line.ends)
            if upto and line.command.startswith(upto):
                return said
        assert not upto, f"the page has no command {upto}"
        return said

    def until(self, lines: Iterator[Line], word: str) -> str:
        """Run the next command until it prints a word."""
        return self.terminals.answer_with(next(lines).command, word, self.log, None)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("desk"))
    try:
        made.open()
        yield made
    finally:
        made.terminals.close()


def test_kafka_in_avro(desk: Desk) -> None:
    lines = desk.page("kafka-avro.md")
    read = desk.run(lines, "python").splitlines()
    assert [line.split("}")[0] + "}" for line in read] == ["{'id': 1}", "{'id': 2}", "{'id': 1}", "{'id': 2}"]
    assert "'_tidb_op': 'u'" in read[2]
    assert read[3].endswith("deleted")
    desk.run(lines)


@pytest.mark.thorough("the other pages use the same server; what Spark has of a lake: tests/spark/source/test_source_in_spark.py")
def test_delta_and_iceberg(desk: Desk) -> None:
    lines = desk.page("lake.md")
    desk.run(lines, "tidemill playground ctl sql 'BEGIN")
    for _ in range(2):
        desk.until(lines, "moves")
    shown = next(lines).command
    said = desk.terminals.answer_with(shown, "|  1|  7|    3|", desk.log, None)
    assert said.count("|  1|  7|    3|") == said.count("|  2|  5| NULL|") == 2
    desk.run(lines)


@pytest.mark.thorough(
    "test_kafka_in_avro has the same server; what it writes into a MariaDB, and what diff finds: tests/sinks/mysql, tests/diff"
)
def test_mysql_verified(desk: Desk) -> None:
    lines = desk.page("mysql.md")
    desk.run(lines, "tidemill playground ctl sql 'BEGIN")
    database = 'mariadb --host 127.0.0.1 --port "$MYSQL_PORT" --user root --execute'
    desk.terminals.answer_with(f"{database} 'SELECT balance FROM bank.accounts'", "70.00", desk.log, None)
    desk.run(lines)
    desk.terminals.run(f"{database} 'SELECT 1'")


def test_a_client_of_canal(desk: Desk) -> None:
    lines = desk.page("canal.md")
    desk.run(lines, 'tidemill playground ctl sql "UPDATE')
    server = next(lines).command
    assert server.startswith("tidemill canal ")
    out = desk.terminals.start(server, "canal")
    said = desk.terminals.answer_with(next(lines).command, "anne", out, None)
    assert "CREATE TABLE" in said
    assert "1001" in desk.run(lines, "tidemill canal ctl")
    desk.run(lines)


@pytest.mark.thorough("test_kafka_in_avro has the same server and Kafka; changefeeds that come from TiCDC: tests/cli/cdc")
def test_from_ticdc_and_back(desk: Desk) -> None:
    lines = desk.page("from-ticdc.md")
    desk.run(lines, "tidemill playground ctl sql 'INSERT INTO trade.orders VALUES (3")
    for _ in range(2):  # TiCDC's topic, and the trial's
        assert "trade.orders  update" in desk.until(lines, "id=3")
    desk.run(lines, "tidemill playground ctl sql 'INSERT INTO trade.orders VALUES (4")
    desk.until(lines, "id=4")
    desk.run(lines)
    assert "orders" not in desk.terminals.run("tidemill changefeed list")

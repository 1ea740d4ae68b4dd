"""Clients of Canal's that tests run: Java's canal.client 1.1.8 and 1.1.4, its connectors, and canal-python 0.4, each fetched once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tidemill.playground.programs.canal_client import PROGRAM, ClientProcess, JavaClient, compiled, jars
from tidemill.playground.programs.maven import ProgramError, installed, java
from tidemill.protocols.canal.codes import EntryType, EventType
from tidemill.protocols.canal.events import EntryColumn
from tidemill.protocols.canal.parse import parse_entry

HERE = Path(__file__).parent
GOAL = ("dependency:copy-dependencies", "-DincludeScope=runtime")
VERSIONS = ("1.1.8", "1.1.4")
KAFKA, ADAPTER = HERE / "KafkaReader.java", HERE / "AdapterLoop.java"


def old_jars() -> Path:
    """Those of canal.client 1.1.4."""
    pom, sums = HERE / "old_pom.xml", HERE / "old_checksums.txt"
    return installed("canal-client-old", pom, "TIDEMILL_CANAL_OLD_JARS", GOAL, "canal.client-*.jar", checksums=sums)


def connector_jars() -> Path:
    """Those of canal.client 1.1.8 with connectors for Kafka and ZooKeeper, and canal-adapter's for TCP."""
    pom, sums = HERE / "connectors_pom.xml", HERE / "connectors_checksums.txt"
    return installed("canal-connectors", pom, "TIDEMILL_CANAL_CONNECTOR_JARS", GOAL, "connector.*.jar", checksums=sums)


def python_packages() -> Path:
    """The folder with canal-python and the protobuf that it runs with; nothing of it is in the environment of Tidemill."""
    wanted = HERE / "requirements.txt"
    root = Path(os.environ.get("TIDEMILL_CANAL_PYTHON") or Path.cwd() / ".tidemill" / "canal-python").absolute()
    folder = root / hashlib.sha256(wanted.read_bytes()).hexdigest()[:16]
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            arriving = root / f"arriving-{os.getpid()}"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
            done = subprocess.run([*command, "--target", str(arriving), "-r", str(wanted)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise ProgramError(f"pip could not fetch canal-python:\n{(done.stdout + done.stderr)[-2000:]}")
            arriving.rename(folder)
    return folder


def java_client(version: str) -> JavaClient:
    """One of `VERSIONS`."""
    return JavaClient(folder=jars() if version == VERSIONS[0] else old_jars())


def python_client() -> ClientProcess:
    """canal-python 0.4. It runs without this environment's packages."""
    environment = {"PYTHONPATH": str(python_packages()), "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    return ClientProcess([sys.executable, "-S", str(HERE / "python_client.py")], environment)


def kafka_reader() -> ClientProcess:
    """Canal's connector for Kafka; `KafkaReader.java` has its commands."""
    return JavaClient(KAFKA, connector_jars())


def adapter(address: str, destination: str) -> subprocess.Popen[str]:
    """canal-adapter's loop. It prints a line of JSON for all that it synchronizes, and for what it rolls back or loses."""
    folder = connector_jars()
    command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{compiled(ADAPTER, folder)}:{folder}/*"]
    return subprocess.Popen([*command, ADAPTER.stem, address, destination], stdout=subprocess.PIPE, text=True, encoding="utf-8")


def fetch() -> None:
    """All of them, so that tests need no network."""
    compiled(PROGRAM, jars())
    compiled(PROGRAM, old_jars())
    for program in (KAFKA, ADAPTER):
        compiled(program, connector_jars())
    python_packages()


def told(raw: bytes) -> dict[str, Any]:
    """What a client has to say about an entry of ours."""
    entry = parse_entry(raw)
    header, change = entry.header, entry.change
    found: dict[str, Any] = {
        "type": entry.type.name,
        "version": header.version,
        "file": header.logfile_name,
        "offset": header.logfile_offset,
        "server_id": header.server_id,
        "charset": "UTF-8",
        "execute_time": header.execute_time,
        "source": "MYSQL",
        "schema": header.schema,
        "table": header.table,
        "event_length": header.event_length,
        "event_type": EventType.UPDATE.name if header.event_type is None else EventType(header.event_type).name,
        "props": [list(pair) for pair in header.props],
    }
    if entry.type is EntryType.TRANSACTIONEND:
        assert entry.transaction is not None
        found["transaction_id"] = entry.transaction.transaction_id
    if change is not None:
        rows = [[[_column(c) for c in image] for image in (row.before, row.after)] for row in change.rows]
        found |= {
            "kind": change.event_type,
            "ddl": change.ddl,
            "sql": change.sql,
            "ddl_schema": change.ddl_schema,
            "table_id": change.table_id,
            "rows": rows,
        }
    return found


def _column(column: EntryColumn) -> list[Any]:
    value = None if column.value is None else column.value.decode()
    return [column.index, column.sql_type, column.name, column.key, column.updated, value, column.mysql_type]

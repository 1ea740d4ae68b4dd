"""`tidemill config check` of a file is quick: it imports what settings need, and no more. Modules are counted, not seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.process.children import environment

HEAVY = {
    *(
        "numpy",
        "pyarrow",
        "llvmlite",
        "pyspark",
        "grpc",
        "fastapi",
        "uvicorn",
        "duckdb",
        "httpx",
        "confluent_kafka",
        "fastavro",
        "deltalake",
    ),
    *("pyiceberg", "google", "pymysql", "cryptography", "prometheus_client", "opentelemetry"),
}
MOST = 400
"""Modules of all kinds, Python's own included."""
PROGRAM = """
import sys
from tidemill.cli.main import main
try:
    main(["config", "check", *sys.argv[1:]])
except SystemExit as end:
    assert not end.code, end.code
print(len(sys.modules), *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""
FILES = {
    "kafka": ('[filter]\nrules = ["a.*"]\n[sink]\nprotocol = "canal-json"\n', ("--sink-uri", "kafka://h:9092/t")),
    "mysql": ("force-replicate = true\n", ("--sink-uri", "mysql://root@h/")),
    "conditions": ('[[filter.event-filters]]\nmatcher = ["a.b"]\nignore-event = ["delete"]\nignore-insert-value-expr = "id > 5"\n', ()),
}


@pytest.mark.parametrize("name", FILES)
def test_a_check_imports_little(tmp_path: Path, name: str) -> None:
    text, more = FILES[name]
    (tmp_path / "feed.toml").write_text(text)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "feed.toml"), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    count, *packages = done.stderr.split()
    assert not HEAVY & {*packages}
    assert int(count) < MOST

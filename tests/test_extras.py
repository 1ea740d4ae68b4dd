"""What needs an extra that is not installed says which."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support import sources
from tidemill.errors import ConfigError
from tidemill.extras import EXTRAS, ExtraMissing, demand, extra

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"confluent_kafka": "confluent-kafka", "pymysql": "PyMySQL", "opentelemetry": "opentelemetry-exporter-otlp-proto-http"}
"""Packages whose module has another name."""


def test_the_extras_are_those_of_the_package() -> None:
    declared = {name: {one.partition(">=")[0] for one in ranges} for name, ranges in PROJECT["optional-dependencies"].items()}
    assert {name: {MODULES.get(one, one) for one in modules} for name, modules in EXTRAS.items()} == {
        name: declared[name] for name in EXTRAS
    }
    assert set(declared) - set(EXTRAS) == {"dataframe", "all", "dev", "docs"}


def test_an_error_names_the_extra() -> None:
    with pytest.raises(ConfigError) as refused, extra("kafka"):
        raise ModuleNotFoundError("No module named 'confluent_kafka'", name="confluent_kafka.admin")
    assert refused.value.code == "TM:ErrConfig"
    assert "confluent_kafka" in refused.value.message
    assert "pip install 'tidemill[kafka]'" in refused.value.hint
    assert isinstance(refused.value, ImportError)


def test_an_extra_that_is_demanded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    demand("kafka")
    with pytest.raises(ExtraMissing, match="pymysql"):
        demand("mysql")


def test_another_missing_module_stays_what_it_is() -> None:
    with pytest.raises(ModuleNotFoundError) as found, extra("kafka"):
        raise ModuleNotFoundError("No module named 'x'", name="x")
    assert not isinstance(found.value, ExtraMissing)


WITHOUT = {
    "demo": "playground",
    "demo --kafka": "playground",
    "playground --listen 127.0.0.1:0": "playground",
    "playground ctl sql x --pd 127.0.0.1:1": "playground",
    "playground query --pd 127.0.0.1:1 --table a.b": "playground",
    "server --pd 127.0.0.1:1 --log {folder}/log --data-dir {folder}/data": "server",
    "changefeed list": "server",
    "cli changefeed list": "server",
    "top --once": "server",
    "show kafka://127.0.0.1:9/t": "kafka",
    "consume --kafka 127.0.0.1:9 --topic t --sink-uri sqlite:///{folder}/t.db": "kafka",
    "verify topic --kafka 127.0.0.1:9 --topic t": "kafka",
    "diff --pd 127.0.0.1:1 --sink-uri mysql://127.0.0.1:1/": "mysql",
    "doctor --sink-uri mysql://127.0.0.1:1/": "mysql",
    "pump --pd-urls http://127.0.0.1:1": "binlog",
    "binlogctl --cmd pumps": "binlog",
    "canal --store {folder}/entries --addr 127.0.0.1:0": "canal",
    "replay --log {folder}/log --sink-uri delta://{folder}/lake": "lake",
    "view list --dir {folder}/views": "views",
}
"""Verbs, and the extra that each needs."""
_HIDDEN = """
import sys
import pyarrow
from tidemill.extras import EXTRAS
pyarrow.array([1])  # looks for pandas once, and fails over a None
sys.modules.update(dict.fromkeys([module for modules in EXTRAS.values() for module in modules] + ["pandas"]))
"""
_EACH = """
import contextlib, io, json
from tidemill.cli.main import main
said = {}
for line in json.loads(sys.argv[1]):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main(line.split())
    except SystemExit as ended:
        said[line] = [ended.code, out.getvalue()]
    except ImportError as error:
        said[line] = [0, repr(error)]
print(json.dumps(said))
"""
_READ = """
import pyspark.sql.datasource, tidemill.changefeed.runner, tidemill.cli.changefeeds.run
from tidemill.functions import apply_changes
from tidemill.spark import as_of, from_canal_json, register
from tidemill.spark.source.source import *
from tidemill.spark.table.source import *
"""


def without_extras(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", _HIDDEN + code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_verb_without_its_extra_ends_with_one_error_that_names_it(tmp_path: Path) -> None:
    """All that is optional is hidden. Each verb ends with 1 and the command that installs what it needs."""
    lines = {line.format(folder=tmp_path): name for line, name in WITHOUT.items()}
    said = json.loads(without_extras(_EACH, json.dumps(list(lines))).splitlines()[-1])
    for line, name in lines.items():
        code, text = said[line]
        assert code == 1, (line, text)
        assert "needs the Python package" in text, (line, text)
        assert f"pip install 'tidemill[{name}]'" in text, (line, text)


def test_what_needs_no_extra_starts_without_any() -> None:
    """The runner, and reading TiDB as DataFrames: `spark.read.format("tidemill")`."""
    assert without_extras(_READ) == ""


BEHIND = {"server/api": "server", "views/sql": "views"}
"""Rooms whose first module names the extra: the others need not."""


def test_each_import_of_an_optional_package_names_its_extra() -> None:
    owners = {module: {name for name, modules in EXTRAS.items() if module in modules} for modules in EXTRAS.values() for module in modules}
    bare = []
    for path, text in sources.files(rf"\b(from|import)\s.*\b({'|'.join(map(re.escape, owners))})\b"):
        statements = list(sources.statements(ast.parse(text)))
        inside = [inner for node in statements if _names_its_extra(node) for inner in ast.walk(node)]
        named = {id(inner) for inner in inside}
        guarded = {module for inner in inside for module in _imported(inner)}
        place = path.relative_to(sources.PACKAGE).as_posix()
        behind = next((name for part, name in BEHIND.items() if place.startswith(part)), "")
        for node in statements:
            if id(node) not in named:
                found = [module for module in _imported(node) if module in owners.keys() - guarded and behind not in owners[module]]
                bare += [f"{place}:{node.lineno}: {module}" for module in found]
    assert bare == []


def _names_its_extra(node: ast.AST) -> bool:
    """Whether it is `with extra(…):`, or only for type checkers."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.With) and any(ast.unparse(item.context_expr).startswith("extra(") for item in node.items)


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [name.name.partition(".")[0] for name in node.names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module.partition(".")[0]]
    return []

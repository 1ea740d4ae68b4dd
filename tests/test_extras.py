"""What needs an extra that is not installed says which."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["playground", "--listen", "127.0.0.1:0"], "playground"),
        (["demo"], "playground"),
        (["demo", "--kafka"], "playground"),
    ],
)
def test_a_verb_without_its_extra_ends_with_one_error(arguments: list[str], name: str) -> None:
    """No traceback; what does not need it still starts."""
    hidden = "import sys; sys.modules.update(dict.fromkeys(['pymysql', 'confluent_kafka', 'greenlet', 'etcd3aio', 'httpx']))"
    others = (
        "import tidemill.changefeed.runner, tidemill.cli.changefeeds.run, tidemill.cli.main; from tidemill.functions import apply_changes"
    )
    tail = f"{others}; tidemill.cli.main.main({arguments})"
    done = subprocess.run([sys.executable, "-c", f"{hidden}; {tail}"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("Error TM:ErrConfig: this needs the Python package")
    assert f"tidemill[{name}]" in done.stderr
    assert "Traceback" not in done.stderr

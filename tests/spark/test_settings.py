"""Whose Spark settings count: the user's, but for those that delivery would go wrong with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.errors import ConfigError
from tidemill.process.places import masters
from tidemill.spark import settings as sparkconf
from tidemill.spark.settings import NEEDED, of_frames, options, parsed, settings

CLUSTER = "spark://a:7077"


def test_a_properties_file() -> None:
    text = """
# a comment
! another
spark.executor.cores            4
  spark.ui.enabled=true
spark.a : b c
spark.b = x=y
spark.long one \\
    two
spark.empty
spark.path C\\:\\\\x
"""
    assert parsed(text) == {
        "spark.executor.cores": "4",
        "spark.ui.enabled": "true",
        "spark.a": "b c",
        "spark.b": "x=y",
        "spark.long": "one two",
        "spark.empty": "",
        "spark.path": "C:\\x",
    }


def test_the_users_settings_win(tmp_path: Path) -> None:
    """Those of the file are left to Spark: what is returned shows on a command line."""
    file = tmp_path / "spark-defaults.conf"
    file.write_text("spark.driver.memory 4g\nspark.ssl.keyPassword secret\nspark.ui.enabled true\n")
    found = settings(None, user={"spark.ui.enabled": "false", "spark.mine": "1"}, preferred={"spark.driver.host": "h"}, file=file)
    assert "spark.driver.memory" not in found
    assert "secret" not in str(found)
    assert (found["spark.ui.enabled"], found["spark.mine"], found["spark.driver.host"]) == ("false", "1", "h")
    assert NEEDED.items() <= found.items()
    without = settings(None, file=tmp_path / "none")
    assert (without["spark.driver.memory"], without["spark.ui.enabled"]) == ("1g", "false")


def test_java_of_an_executor_is_optimised_only_where_rows_enter_it(tmp_path: Path) -> None:
    def of(**given: str) -> str:
        return settings(CLUSTER, preferred=given or of_frames(CLUSTER), file=tmp_path / "none")["spark.executor.extraJavaOptions"]

    assert "TieredStopAtLevel=1" in of(**{"spark.driver.host": "h"})
    assert "Tiered" not in of()
    assert "SerialGC" not in of()


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_what_would_go_wrong_is_refused_by_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text(f"{name} other\n")
    with pytest.raises(ConfigError, match=f"{name} = other of {file} cannot be: ") as caught:
        settings(CLUSTER, file=file)
    assert NEEDED[name] in caught.value.hint
    with pytest.raises(ConfigError, match=f"{name} = more of --spark-conf"):
        settings(CLUSTER, user={name: "more"}, file=tmp_path / "none")
    assert settings(CLUSTER, user={name: NEEDED[name]}, file=file)[name] == NEEDED[name]
    assert settings(CLUSTER, {name: "ours"}, file=file)[name] == "ours"  # a session of another kind


def test_where_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert sparkconf.defaults_file() == tmp_path / "spark-defaults.conf"
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert sparkconf.defaults_file() == tmp_path / "spark/conf/spark-defaults.conf"


def test_memory_of_python_is_declared_where_executors_are_containers(tmp_path: Path) -> None:
    none = tmp_path / "none"
    name = "spark.executor.memoryOverhead"
    assert name not in settings("local[4]", file=none)
    assert settings("yarn", file=none)[name] == "896m"
    assert settings("yarn", user={"spark.executor.cores": "4"}, file=none)[name] == "2432m"
    assert settings("yarn", user={name: "1g"}, file=none)[name] == "1g"
    assert name not in settings("yarn", user={"spark.executor.memoryOverheadFactor": "0.5"}, file=none)


def test_options() -> None:
    assert options(["spark.a=b=c", "spark.x = y "]) == {"spark.a": "b=c", "spark.x": "y"}
    for wrong in ("spark.a", "a=b"):
        with pytest.raises(ConfigError, match=r"expected spark\.NAME=VALUE"):
            options([wrong])


def test_addresses_of_masters() -> None:
    assert masters("spark://a:7077,b:7078") == [("a", 7077), ("b", 7078)]
    assert masters("spark://[::1]:7077") == [("::1", 7077)]
    assert masters("local[2]") == masters("yarn") == masters(None) == masters("k8s://https://h:1") == []


def test_sockets_of_a_session_for_data_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their path has 108 bytes at most, and that of a session on a cluster is made on other machines."""
    name = "spark.python.unix.domain.socket.enabled"
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert of_frames(None)[name] == of_frames("local[2]")[name] == "true"
    assert name not in of_frames(CLUSTER)
    monkeypatch.setattr("tempfile.tempdir", "/tmp/" + "x" * 80)
    assert name not in of_frames("local[2]")

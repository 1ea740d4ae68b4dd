"""The archive of Spark's classes: where it is, and when Spark's Java is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.spark.java.archive import OPTIONS, PLACE, archive_of, with_archive


@pytest.fixture
def java(tmp_path: Path) -> Path:
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    return home


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({PLACE: "/named", "HOME": "/home/a"}, "/named"),
        ({"XDG_CACHE_HOME": "/caches", "HOME": "/home/a"}, "/caches/tidemill/java"),
        ({"HOME": "/home/a"}, "/home/a/.cache/tidemill/java"),
    ],
)
def test_where_it_is(java: Path, environment: dict[str, str], folder: str) -> None:
    found = archive_of(java, environment)
    assert found is not None
    assert str(found.parent) == folder


def test_a_user_without_a_home_has_none(java: Path) -> None:
    assert archive_of(java, {}) is None
    assert with_archive(java, {}) == {}


def test_another_java_has_another_archive(java: Path, tmp_path: Path) -> None:
    environment = {PLACE: str(tmp_path)}
    before = archive_of(java, environment)
    (java / "release").write_text('JAVA_VERSION="17.0.2"')
    assert archive_of(java, environment) != before


def test_spark_is_told_of_one_that_is_there(java: Path, tmp_path: Path) -> None:
    environment = {PLACE: str(tmp_path), OPTIONS: "-Dmine=1"}
    assert with_archive(java, environment) == {}
    archive = archive_of(java, environment)
    assert archive is not None
    archive.touch()
    assert with_archive(java, environment) == {OPTIONS: f"-Dmine=1 -XX:SharedArchiveFile={archive}"}
    assert with_archive(java, {**environment, OPTIONS: "-XX:SharedArchiveFile=/mine"}) == {}
    assert with_archive(java, {**environment, OPTIONS: "-XX:ArchiveClassesAtExit=/new"}) == {}, "Java takes one of the two"

"""Ids that outlive the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.registry.cache import KEPT_SCHEMAS, IdCache


def test_ids_are_known_after_a_restart(tmp_path: Path) -> None:
    cache = IdCache(tmp_path / "schemas.jsonl", "http://h")
    assert cache.get("a-key", "x") is None
    cache.put("a-key", "x", 1)
    cache.put("a-value", "x", 2)
    cache.put("a-value", "y", 3)
    again = IdCache(tmp_path / "schemas.jsonl", "http://h")
    assert [again.get(*one) for one in (("a-key", "x"), ("a-value", "x"), ("a-value", "y"), ("a-key", "y"))] == [1, 2, 3, None]
    assert again.knows("a-key")
    assert not again.knows("b-key")


def test_another_registry_knows_nothing_of_it(tmp_path: Path) -> None:
    IdCache(tmp_path / "schemas.jsonl", "http://h").put("a", "x", 1)
    assert IdCache(tmp_path / "schemas.jsonl", "http://other").get("a", "x") is None


def test_subjects_that_are_gone_are_forgotten_for_good(tmp_path: Path) -> None:
    cache = IdCache(tmp_path / "schemas.jsonl", "http://h")
    cache.put("a", "x", 1)
    cache.put("b", "x", 1)
    cache.keep({"b", "c"})
    for one in (cache, IdCache(tmp_path / "schemas.jsonl", "http://h")):
        assert (one.get("a", "x"), one.get("b", "x")) == (None, 1)


def test_a_subject_keeps_its_newest_schemas() -> None:
    cache = IdCache(None, "http://h")
    for number in range(KEPT_SCHEMAS + 3):
        cache.put("a", str(number), number)
    assert [cache.get("a", str(n)) for n in (0, 2, 3, KEPT_SCHEMAS + 2)] == [None, None, 3, KEPT_SCHEMAS + 2]


@pytest.mark.parametrize(
    "broken", ["", "[]", "{", '{"registry": "http://h"}\n{"subject": 5}\n[]\n', "\xff", "[" * 100_000, '{"registry": "http://h"}\n{"su']
)
def test_a_broken_file_only_costs_calls(tmp_path: Path, broken: str) -> None:
    (tmp_path / "schemas.jsonl").write_bytes(broken.encode("latin-1"))
    cache = IdCache(tmp_path / "schemas.jsonl", "http://h")
    assert cache.get("a", "x") is None
    cache.put("a", "x", 5)
    assert IdCache(tmp_path / "schemas.jsonl", "http://h").get("a", "x") == 5


def test_a_line_that_a_crash_cut_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "schemas.jsonl"
    cache = IdCache(path, "http://h")
    cache.put("a", "x", 1)
    cache.put("a", "y", 2)
    path.write_bytes(path.read_bytes()[:-5])
    again = IdCache(path, "http://h")
    assert (again.get("a", "x"), again.get("a", "y")) == (1, None)
    again.put("a", "y", 2)
    assert IdCache(path, "http://h").get("a", "y") == 2


@pytest.mark.parametrize("number", ["-1", "1e9", str(1 << 31), "null", '"7"', "9" * 100])
def test_an_id_that_no_registry_gives_is_not_known(tmp_path: Path, number: str) -> None:
    cache = IdCache(tmp_path / "schemas.jsonl", "http://h")
    cache.put("a", "x", 77)
    path = tmp_path / "schemas.jsonl"
    path.write_text(path.read_text().replace("77", number))
    assert IdCache(path, "http://h").get("a", "x") is None

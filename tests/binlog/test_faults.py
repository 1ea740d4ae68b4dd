"""FAULTS.md: each reported fault has tests, and they exist."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
REPORTED = frozenset(
    {
        *("#1181", "#1143", "#1267", "#1117", "#1118", "#1179", "#764", "tidb#9173", "tidb-tools#177", "#1060", "#1129", "#1317"),
        *("#1112", "#978", "#1087", "#1136", "#1156", "tidb-tools#188", "#933", "#1159", "#1187", "#839", "#699", "#1042", "#1096"),
        *("#1036", "#1014", "#1034", "#646", "PR #1017", "#753", "#935", "tidb#10757", "tidb#9334", "tidb-operator#656", "#734"),
        *("#768", "#1064", "tidb-operator#459", "#1008", "#1228"),
    }
)


def table() -> list[tuple[list[str], list[str]]]:
    """What was reported, and the places of the tests, by row."""
    lines = (Path(__file__).parent / "FAULTS.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [(reported.split(", "), tests.split(", ")) for reported, _, tests in cells[1:]]


def is_there(place: str) -> bool:
    """Whether a test exists."""
    path, _, test = place.partition("::")
    return (ROOT / path).is_file() and f"\ndef {test}(" in (ROOT / path).read_text()


def test_each_reported_fault_is_in_the_table_once() -> None:
    found = [one for reported, _ in table() for one in reported]
    assert sorted(found) == sorted(REPORTED)


def test_the_tests_of_the_table_exist() -> None:
    assert [place for _, places in table() for place in places if not is_there(place)] == []

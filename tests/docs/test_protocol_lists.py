"""Pages that list protocols list all of them that the code has, and none more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tidemill.cli.shared.topics import ProtocolOption
from tidemill.consumer.reading import AUTO, READERS
from tidemill.protocols.all import PROTOCOLS, SPELLINGS
from tidemill.protocols.spec import ProtocolSpec

ROOT = Path(__file__).parents[2]
NAMES = {"open-protocol": "Open Protocol", "avro": "Avro", "canal": "Canal", "canal-json": "Canal-JSON", "csv": "CSV", "simple": "simple",
         "debezium": "Debezium", "debezium-avro": "Debezium in Avro"}  # fmt: skip
"""What prose calls each protocol."""
COLUMN_FUNCTIONS = ("open-protocol", "avro", "canal", "canal-json", "simple", "csv")
"""Those that `tidemill.spark` has a column function for."""


def spelled(specs: Iterable[ProtocolSpec]) -> set[str]:
    return {spec.spellings[0] for spec in specs}


def page(name: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / name).read_text(encoding="utf-8"))


def between(name: str, begin: str, end: str) -> str:
    """The part of a page between two texts that are there."""
    text = page(name)
    assert begin in text, f"{name} has no {begin!r} any more"
    found, mark, _ = text.partition(begin)[2].partition(end)
    assert mark, f"{name} has no {end!r} after {begin!r} any more"
    return found


def named(text: str) -> set[str]:
    """The protocols that a text names in prose. Canal-JSON does not name Canal."""
    return {word for word, name in NAMES.items() if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)}


def quoted(text: str) -> set[str]:
    """The spellings that a text has as code."""
    return {word for word in re.findall(r"`(?:protocol=)?([a-z-]+)`", text) if word in SPELLINGS}


def folder(spec: ProtocolSpec) -> str:
    return spec.reference.split(".")[-2].replace("_", "-")


def test_prose_has_a_name_for_each_protocol() -> None:
    assert set(NAMES) == spelled(PROTOCOLS.values())


def test_every_protocol_has_a_page() -> None:
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs/protocols").glob("*.md")}
    assert set(pages) == {folder(spec) for spec in PROTOCOLS.values()}
    for spec in PROTOCOLS.values():
        assert pages[folder(spec)].startswith(f"# {spec.spellings[0]}\n")


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [("README.md", "rows go in TiCDC's", "; as rows"), ("docs/limits.md", "| protocols |", ". Not supported")],
)
def test_prose_lists_every_protocol(name: str, begin: str, end: str) -> None:
    assert named(between(name, begin, end)) == set(NAMES)


def test_the_page_for_users_of_ticdc_lists_every_protocol() -> None:
    (row,) = re.findall(r"^\| (`open-protocol`[^|]*)\|", (ROOT / "docs/coming-from-ticdc.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert quoted(row) == spelled(PROTOCOLS.values())


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [
        ("docs/sinks/storage.md", "With `protocol=", " both write"),
        ("docs/sinks/files.md", "For all protocols but", ", which write"),
        ("docs/consumer.md", "nor `file://` with", ", which need"),
    ],
)
def test_pages_list_the_protocols_of_the_storage_sink(name: str, begin: str, end: str) -> None:
    assert quoted(f"`{between(name, begin, end).lstrip()}`") | quoted(between(name, begin, end)) == spelled(
        spec for spec in PROTOCOLS.values() if spec.file_extension
    )


def test_the_sink_uri_lists_the_protocols_of_the_storage_sink() -> None:
    listed = between("docs/configuration.md", "files of tables (", ")")
    assert set(listed.split(", ")) == spelled(spec for spec in PROTOCOLS.values() if spec.file_extension)


def test_pages_list_what_the_consumer_reads() -> None:
    readable = spelled(PROTOCOLS[protocol] for protocol in READERS)
    assert quoted(between("docs/consumer.md", "| `--protocol` |", "| `--sink-uri`")) == readable
    assert named(between("README.md", "`tidemill consume` reads", "back into tables")) == readable
    assert named(between("docs/sinks/kafka.md", "reads a topic of Tidemill's or TiCDC's (", ")")) == readable
    (option,) = ProtocolOption.__metadata__  # type: ignore[attr-defined]
    assert set(re.split(r", (?:or )?|:", option.help)[:3]) == {*readable, AUTO}


def test_pages_list_what_the_consumer_writes() -> None:
    assert quoted(between("docs/consumer.md", "also in another protocol (", "; not")) == spelled(
        spec for spec in PROTOCOLS.values() if spec.from_events
    )


def test_pages_list_the_column_functions() -> None:
    import tidemill.spark

    older = {"from_confluent_avro"}  # the same function by its older name
    assert len({name for name in tidemill.spark.__all__ if name.startswith("from_")} - older) == len(COLUMN_FUNCTIONS)
    assert named(between("README.md", "Spark's column functions read", ", and every")) == set(COLUMN_FUNCTIONS)

"""The page of errors has every code that the code has, says of each whether it is tried again, and has every exit code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support import sources
from tidemill import errors

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "errors.md"
ROW = re.compile(r"\| `(TM:Err\w+)` \| (yes|no) \| [^|]+ \| [^|]+ \|")


class Found:
    """Classes of errors, read from the source: name, bases, code and whether an error is tried again."""

    def __init__(self) -> None:
        self.bases: dict[str, list[str]] = {}
        self.given: dict[str, dict[str, object]] = {}
        self.bare: set[str] = set()  # codes without a class: what the supervisor says of a process
        for _, text in sources.files(r"\bclass |TM:Err"):
            if not re.search(r"TM:Err|\bretryable\b", text):
                self._note_bases(text)
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    self._note(node)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"TM:Err\w+", node.value):
                    self.bare.add(node.value)

    def _note_bases(self, text: str) -> None:
        """Of classes that say neither: they may stand between one and another. To parse each file takes long."""
        for name, bases in re.findall(r"^\s*class (\w+)\(([^)]*)\)", text, re.MULTILINE):
            if name not in self.bases:
                self.bases[name] = [base.strip() for base in bases.split(",")]
                self.given[name] = {}

    def _note(self, node: ast.ClassDef) -> None:
        given: dict[str, object] = {
            target.id: statement.value.value
            for statement in node.body
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
            for target in statement.targets
            if isinstance(target, ast.Name) and target.id in ("code", "retryable")
        }
        if node.name not in self.bases or given:
            name = f"{node.name} {given['code']}" if "code" in self.given.get(node.name, {}) and "code" in given else node.name
            self.bases[name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
            self.given[name] = given

    def retryable(self, name: str) -> bool:
        if "retryable" in self.given[name]:
            return bool(self.given[name]["retryable"])
        return any(self.retryable(base) for base in self.bases[name] if base in self.bases)

    def codes(self) -> dict[str, bool]:
        return {
            str(given["code"]): self.retryable(name) for name, given in self.given.items() if str(given.get("code", "")).startswith("TM:")
        }


@cache
def found_in_source() -> Found:
    return Found()


def of_page() -> dict[str, bool]:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(dict(rows)) == len(rows)
    return {code: said == "yes" for code, said in rows}


def test_the_page_has_every_code_and_none_more() -> None:
    decided_at_run_time = {errors.SystemFailed.code: True}  # by its errno; the page says so
    found = found_in_source()
    without_class = {"TM:ErrProcessLost": True, "TM:ErrProcessCrashed": False}  # of a process that ends without a word
    assert found.bare - found.codes().keys() - decided_at_run_time.keys() == without_class.keys()
    assert of_page() == found.codes() | decided_at_run_time | without_class


@pytest.mark.slow
def test_the_source_is_read_as_python_reads_it() -> None:
    found = found_in_source()
    assert found.codes()["TM:ErrLogSegmentGone"] is errors.SegmentGone.retryable is True
    assert found.codes()["TM:ErrSchemaRegistryUnavailable"] is errors.RegistryUnavailable.retryable is True
    assert found.codes()["TM:ErrLogCorrupt"] is errors.LogCorrupt.retryable is False


@pytest.mark.parametrize("path", sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]), ids=lambda path: path.name)
def test_pages_name_codes_that_there_are(path: Path) -> None:
    assert set(re.findall(r"TM:Err\w+", path.read_text(encoding="utf-8"))) <= set(of_page())


def test_exit_codes() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)}
    assert listed == {0, 2, errors.EXIT_FAILED, errors.EXIT_RETRY, errors.EXIT_FATAL, 130, 143}


def test_the_sample_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from tidemill.cli.main import main

    with pytest.raises(SystemExit):
        main(["run", "--pd", "h:1", "--sink-uri", "blackhole://", "--log", "l", "--stuck-after", "soon"])
    sample = re.findall(r"^    (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert capsys.readouterr().err.splitlines() == sample[:2]

"""The page of a benchmark run, and the figures that it is made of."""

from __future__ import annotations

import importlib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.__main__ import commands, main
from bench.report.figures import PLACE, Figure, Limit, NotFigures, note, read
from bench.report.page import Run, curves, number, page
from bench.report.plots import bars, curve

SLOW = Figure("Capture", "narrow <64>", 2.5, "CPU s", Limit("loopback socket", 0.5), aim=0.8)
FAST = Figure("Encode", "narrow", 48.9, "times TiCDC's", aim=30, most=False)
POINTS = [Figure("Growth", "8 tables", 100.0 + i, "ns", axis="rows", at=10.0**i) for i in range(5, 8)]


def test_what_is_noted_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path / "figures.jsonl"))
    for figure in (SLOW, FAST, *POINTS):
        note(figure)
    assert read(tmp_path / "figures.jsonl") == [SLOW, FAST, *POINTS]


def test_nothing_is_kept_where_no_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PLACE, raising=False)
    monkeypatch.chdir(tmp_path)
    note(SLOW)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["{", "[1]", "{}", '{"limit": null, "speed": 1}', '{"limit": {"name": "x"}}'])
def test_a_file_without_figures_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    path = tmp_path / "figures.jsonl"
    monkeypatch.setenv(PLACE, str(path))
    note(FAST)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(NotFigures, match=r"figures\.jsonl, line 2 does not hold a figure: .*`python -m bench"):
        read(path)


def test_an_aim_is_the_most_or_the_least() -> None:
    assert [SLOW.meets, FAST.meets, POINTS[0].meets] == [False, True, None]
    assert SLOW.times_limit == 5
    assert FAST.times_limit is None


def test_the_page_has_each_figure_beside_its_limit_its_aim_and_the_run_before() -> None:
    before = [Figure("Capture", "narrow <64>", 5.0, "CPU s"), Figure("Capture", "gone", 1.0, "CPU s")]
    text = page(Run([SLOW, FAST, *POINTS], ["2 cores & load 0.1"], ["python -m bench.bench_x"]), before)
    row = "<tr><td>narrow &lt;64&gt;</td><td class='missed'>2.50</td><td>CPU s</td><td>loopback socket 0.500</td><td>5.00</td>"
    assert row + "<td>≤ 0.800, missed</td><td>5.00</td><td>-50 %</td></tr>" in text
    assert "<td class='met'>48.9</td><td>times TiCDC&#x27;s</td><td></td><td></td><td>≥ 30.0</td><td></td><td></td></tr>" in text
    assert "100,000: 105; 1,000,000: 106; 10,000,000: 107" in text
    assert "2 cores &amp; load 0.1" in text
    assert "These did not end well: python -m bench.bench_x" in text
    assert "gone" not in text
    assert text.count("<svg") == 2  # the bar with a limit, and the curve; one figure alone needs no plot


def test_each_axis_has_a_curve_of_its_own() -> None:
    more = [Figure("Memory", "all", 500.0, "MiB", axis="minutes", at=1), Figure("Growth", "64 tables", 90.0, "ns", axis="rows", at=1e5)]
    found = curves([SLOW, *POINTS, *more])
    assert list(found) == ["minutes-mib", "rows-ns"]
    shown = "".join(ElementTree.fromstring(found["rows-ns"]).itertext())
    assert "8 tables" in shown
    assert "64 tables" in shown


def test_a_page_is_made_of_figures_that_were_taken_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, figures in (("one", [SLOW, FAST]), ("two", POINTS)):
        monkeypatch.setenv(PLACE, str(tmp_path / f"{name}.jsonl"))
        for figure in figures:
            note(figure)
    files = [str(tmp_path / "one.jsonl"), str(tmp_path / "two.jsonl")]
    monkeypatch.setattr("sys.argv", ["bench", "--of", *files, "--page", str(tmp_path / "page.html"), "--plots", str(tmp_path / "plots")])
    assert main() == 0
    text = (tmp_path / "page.html").read_text()
    assert "narrow &lt;64&gt;" in text
    assert "Figures of one.jsonl, two.jsonl" in text
    assert [file.name for file in (tmp_path / "plots").iterdir()] == ["rows-ns.svg"]


def test_plots_are_xml_that_names_what_it_shows() -> None:
    for svg, words in ((bars([SLOW, SLOW]), ("narrow <64>", "CPU s")), (curve(POINTS), ("8 tables", "rows", "ns"))):
        shown = "".join(ElementTree.fromstring(svg).itertext())
        assert all(word in shown for word in words)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.1234, "0.123"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (1234567, "1,234,567")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_every_benchmark_of_the_run_is_there() -> None:
    for line in commands(quick=True, corpus=None) + commands(quick=False, corpus=Path("corpora")):
        assert callable(importlib.import_module(line[0]).main), line[0]

"""The page of a run: a table and plots for each stage, curves of growth, and what changed since an earlier run. One HTML file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from bench.report.figures import Figure
from bench.report.plots import bars, curve

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid #8884; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
.met { color: #2a7d2a; } .missed { color: #c0392b; }
svg { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
figure { margin: 0 0 1.5rem; }
"""
HEAD = ("what", "seen", "unit", "limit of the same run", "times the limit", "aim", "before", "change")


@dataclass(frozen=True, slots=True)
class Run:
    """Figures, and where they were taken: lines of text for the head of the page."""

    figures: Sequence[Figure]
    machine: Sequence[str]
    failed: Sequence[str] = ()
    """Command lines that did not end well."""


def page(run: Run, before: Sequence[Figure] = ()) -> str:
    """Return the page. `before`: figures of an earlier run, named in two columns where both runs have them."""
    old = {figure.key: figure for figure in before}
    points = [figure for figure in run.figures if figure.axis]
    parts = [*_head(run)]
    for stage in dict.fromkeys(figure.stage for figure in run.figures if not figure.axis):
        rows = [figure for figure in run.figures if figure.stage == stage and not figure.axis]
        parts += [f"<h2>{escape(stage)}</h2>", _table(rows, old), *(_figure(svg) for svg in _bars(rows))]
    if points:
        parts.append("<h2>Growth</h2>")
    for rows in _by_axis(points):
        parts += [f"<h3>{escape(rows[0].axis)}</h3>", _points(rows, old), _figure(curve(rows))]
    return "\n".join([*parts, "</body></html>", ""])


def curves(figures: Sequence[Figure]) -> dict[str, str]:
    """Return an SVG element for each axis and unit that figures have, by a name for a file."""
    return {slug(f"{rows[0].axis}, {rows[0].unit}"): curve(rows) for rows in _by_axis([f for f in figures if f.axis])}


def slug(text: str) -> str:
    """Return a text as a file's name: words with hyphens between."""
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))


def _by_axis(points: Sequence[Figure]) -> list[list[Figure]]:
    ordered = sorted(points, key=lambda f: (f.axis, f.unit))
    return [list(group) for _, group in groupby(ordered, key=lambda f: (f.axis, f.unit))]


def _head(run: Run) -> list[str]:
    lines = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Tidemill: what it costs</title>",
        f"<style>{STYLE}</style></head><body><h1>Tidemill: what it costs</h1>",
        "<p>CPU is user and system time. A limit is what the machine itself needs for the same bytes, measured beside the stage in the "
        "same run; it is the dark line in the plots. Take a run again with <code>make bench</code>.</p>",
        f"<p>{'<br>'.join(escape(line) for line in run.machine)}</p>",
    ]
    if run.failed:
        lines.append(f"<p class='missed'>These did not end well: {escape('; '.join(run.failed))}</p>")
    return lines


def _table(rows: Sequence[Figure], old: dict[tuple[str, str, str, float], Figure]) -> str:
    head = "".join(f"<th>{text}</th>" for text in HEAD)
    return f"<table><tr>{head}</tr>{''.join(_row(row, old.get(row.key)) for row in rows)}</table>"


def _row(figure: Figure, before: Figure | None) -> str:
    limit = f"{figure.limit.name} {number(figure.limit.value)}" if figure.limit is not None else ""
    times = number(figure.times_limit) if figure.times_limit is not None else ""
    cells = [figure.name, number(figure.value), figure.unit, limit, times, _aim(figure), *_change(figure, before)]
    mark = {None: "", True: " class='met'", False: " class='missed'"}[figure.meets]
    return "<tr>" + "".join(f"<td{mark if i == 1 else ''}>{escape(cell)}</td>" for i, cell in enumerate(cells)) + "</tr>"


def _aim(figure: Figure) -> str:
    if figure.aim is None:
        return ""
    return f"{'≤' if figure.most else '≥'} {number(figure.aim)}{'' if figure.meets else ', missed'}"


def _change(figure: Figure, before: Figure | None) -> tuple[str, str]:
    if before is None:
        return "", ""
    return number(before.value), f"{100 * (figure.value / before.value - 1):+.0f} %" if before.value else ""


def _points(rows: Sequence[Figure], old: dict[tuple[str, str, str, float], Figure]) -> str:
    lines = []
    for name, points in groupby(rows, key=lambda f: f.name):
        said = [_point(point, old.get(point.key)) for point in points]
        lines.append(f"<tr><td>{escape(name)}</td><td>{escape(rows[0].unit)}</td><td>{escape('; '.join(said))}</td></tr>")
    return f"<table><tr><th>what</th><th>unit</th><th>{escape(rows[0].axis)}: seen</th></tr>{''.join(lines)}</table>"


def _point(point: Figure, before: Figure | None) -> str:
    said = f"{point.at:,.0f}: {number(point.value)}"
    return f"{said} (before {number(before.value)})" if before is not None else said


def _bars(rows: Sequence[Figure]) -> list[str]:
    """A plot for each unit that several figures, or a figure and its limit, share."""
    units = dict.fromkeys(figure.unit for figure in rows)
    groups = [[figure for figure in rows if figure.unit == unit] for unit in units]
    return [bars(group) for group in groups if len(group) > 1 or group[0].limit is not None]


def _figure(svg: str) -> str:
    return f"<figure>{svg}</figure>"


def number(value: float) -> str:
    """Return a number as a person reads it: three digits that count, thousands apart."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"

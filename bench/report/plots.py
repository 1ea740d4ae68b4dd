"""Plots of figures as SVG text: bars beside their limits, and curves. Without a display."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas

from bench.report.figures import Figure

SEEN, MISSED, LIMIT = "#4c78a8", "#d1684f", "#222222"
WIDTH_IN, BAR_IN, HEAD_IN = 9.0, 0.28, 0.9
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "tidemill", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}


def bars(figures: Sequence[Figure]) -> str:
    """A bar for each figure of one unit, the first on top; a dark line where its limit is. Returns an SVG element."""
    with rc_context(SETTINGS):
        canvas = Canvas(figsize=(WIDTH_IN, HEAD_IN + BAR_IN * len(figures)), layout="constrained")
        axes = canvas.subplots()
        places = range(len(figures))
        colors = [MISSED if figure.meets is False else SEEN for figure in figures]
        axes.barh(places, [figure.value for figure in figures], color=colors, height=0.7)
        for place, figure in zip(places, figures, strict=True):
            if figure.limit is not None:
                axes.plot([figure.limit.value] * 2, [place - 0.42, place + 0.42], color=LIMIT, linewidth=2)
        axes.set_yticks(places, [figure.name for figure in figures])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel(figures[0].unit)
        return _svg(canvas)


def curve(points: Sequence[Figure]) -> str:
    """A line for each name, over one axis: one that grows by factors, or one that begins at 0. Returns an SVG element."""
    with rc_context(SETTINGS):
        canvas = Canvas(figsize=(WIDTH_IN, 3.2), layout="constrained")
        axes = canvas.subplots()
        for name, own in groupby(sorted(points, key=lambda f: (f.name, f.at)), key=lambda f: f.name):
            line = list(own)
            axes.plot([point.at for point in line], [point.value for point in line], marker="o", markersize=4, label=name)
        if min(point.at for point in points) > 0:
            axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(points[0].axis)
        axes.set_ylabel(points[0].unit)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        return _svg(canvas)


def _svg(canvas: Canvas) -> str:
    out = io.StringIO()
    canvas.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :].strip()

"""What a server or a run does, as lines of text: one frame of `tidemill top`, and the whole of `tidemill status --addr`. Pure.

It is made of the answer of /api/page/overview. Text of others cannot move the cursor: what is not printable is replaced.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.cells import cell_len, chop_cells, set_cell_size

HELD_S = 10.0
"""Some region is always the slowest. It is named if it has not moved for so long, or something is wrong with it."""
HIGH_LAG_S, VERY_HIGH_LAG_S = 60.0, 600.0
_GAP = "  "
_PROBLEM_LINES = 4
"""Of an error, and of what to do about it."""


class Style(enum.StrEnum):
    """How a piece of text looks: the numbers of its escape sequence."""

    PLAIN = ""
    TITLE = "1"
    SOFT = "2"
    GOOD = "32"
    WARN = "33"
    BAD = "1;31"
    BAR = "7"


Piece = tuple[str, Style]
Line = Sequence[Piece]


class Sort(enum.Enum):
    """By which column changefeeds are sorted."""

    STATE = "s"
    LAG = "l"
    RATE = "r"
    NAME = "n"


_ORDER = ("failed", "warning", "stopped", "finished", "normal")
_STATE_STYLE = {"normal": Style.GOOD, "warning": Style.WARN, "failed": Style.BAD}
_KEYS: Mapping[Sort, Callable[[Mapping[str, Any]], Any]] = {
    Sort.STATE: lambda feed: (_ORDER.index(feed["state"]) if feed["state"] in _ORDER else 0, feed["id"]),
    Sort.LAG: lambda feed: (-(feed["checkpoint_lag_s"] or 0.0), feed["id"]),
    Sort.RATE: lambda feed: (-(feed["rows_per_s"] or 0.0), feed["id"]),
    Sort.NAME: lambda feed: feed["id"],
}


def printable(text: object) -> str:
    """Return a text on one line, without what would move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else " " if letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in str(text))


def duration(seconds: float | None) -> str:
    """Return a duration as people say it: 0.8 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {name}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def lag_style(seconds: float | None) -> Style:
    """Return how a lag looks. TiCDC's alert of a high delay comes at ten minutes."""
    if seconds is None or seconds < HIGH_LAG_S:
        return Style.PLAIN
    return Style.BAD if seconds >= VERY_HIGH_LAG_S else Style.WARN


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table of changefeeds. `weight`: which columns go first where the terminal is narrow."""

    title: str
    of: Callable[[Mapping[str, Any]], Piece]
    right: bool = False
    weight: int = 0


def _rate(feed: Mapping[str, Any]) -> str:
    value = feed["rows_per_s"] or 0.0
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value else "0"


_COLUMNS = (
    Column("CHANGEFEED", lambda feed: (printable(feed["id"]), Style.TITLE)),
    Column("STATE", lambda feed: (printable(feed["state"]), _STATE_STYLE.get(feed["state"], Style.SOFT))),
    Column("CHECKPOINT LAG", lambda feed: (duration(feed["checkpoint_lag_s"]), _lag_of(feed)), right=True),
    Column("RESOLVED TS LAG", lambda feed: (duration(feed["resolved_lag_s"]), Style.PLAIN), right=True, weight=2),
    Column("ROWS/S", lambda feed: (_rate(feed), Style.PLAIN), right=True, weight=1),
    Column("ROWS", lambda feed: (f"{feed['rows']:,}", Style.PLAIN), right=True, weight=3),
    Column("SINK", lambda feed: (printable(feed["sink_uri"]), Style.SOFT), weight=4),
)


def _lag_of(feed: Mapping[str, Any]) -> Style:
    return Style.PLAIN if feed["state"] in ("stopped", "finished") else lag_style(feed["checkpoint_lag_s"])


def frame(
    told: Mapping[str, Any], width: int, *, height: int | None = None, sort: Sort = Sort.STATE, skip: int = 0, footer: str = ""
) -> list[Line]:
    """Return the lines for a terminal of that size. `height` None: as many lines as there are. `skip`: so many lines of the list of
    changefeeds are scrolled away."""
    head = [*_head(told, width), *_capture(told["capture"], width), [("", Style.PLAIN)]]
    body = _changefeeds(told["changefeeds"], width, sort)
    if height is None:
        return [*head, *body]
    room = height - (1 if footer else 0)
    head = head[: max(1, room - 4)]
    title, rows = body[0], body[1:]
    shown = max(0, room - len(head) - 1)
    skip = max(0, min(skip, len(rows) - shown))
    lines: list[Line] = [*head, title, *rows[skip : skip + shown]]
    lines += [[("", Style.PLAIN)]] * (room - len(lines))
    return [*lines, *([[(set_cell_size(footer, width), Style.BAR)]] if footer else [])]


def scrollable(told: Mapping[str, Any], width: int) -> int:
    """Return how many lines the list of changefeeds has."""
    return len(_changefeeds(told["changefeeds"], width, Sort.STATE)) - 1


def _head(told: Mapping[str, Any], width: int) -> list[Line]:
    server, feeds = told["server"], told["changefeeds"]
    counts = {state: sum(feed["state"] == state for feed in feeds) for state in reversed(_ORDER)}
    what = [f"Tidemill {printable(server['version'])}", printable(server["address"])]
    what += ["" if server["is_owner"] else "not the owner", f"cluster {printable(server['upstream_id'])}" if server["upstream_id"] else ""]
    lines = [_cut([("  ".join(filter(None, what)), Style.TITLE), (f"  {datetime.fromtimestamp(told['now']):%H:%M:%S}", Style.SOFT)], width)]
    states: list[Piece] = [(f"{len(feeds)} changefeed{'' if len(feeds) == 1 else 's'}", Style.PLAIN)]
    states += [(f"{_GAP}{n} {state}", _STATE_STYLE.get(state, Style.PLAIN)) for state, n in counts.items() if n]
    rate = sum(feed["rows_per_s"] or 0.0 for feed in feeds)
    lines.append(_cut([*states, (f"{_GAP}{rate:,.0f} rows/s", Style.PLAIN)], width))
    for one in told["processes"]:
        if one["pid"] is None:
            why = one["last_error"]
            said = f"{why['code']}: {why['message']}" if why else "it is being started"
            lines += _wrapped(f"the {printable(one['name'])} process does not run: {printable(said)}", width, Style.BAD)
    return lines


def _capture(capture: Mapping[str, Any], width: int) -> list[Line]:
    regions = ", ".join(f"{n:,} {printable(phase)}" for phase, n in capture["regions"].items() if n) or "no regions"
    lag = capture["resolved_lag_s"]
    lines: list[Line] = [
        _cut(
            [
                (f"capture {printable(capture['state'])}{_GAP}resolved ts lag ", Style.PLAIN),
                (duration(lag), lag_style(lag)),
                (f"{_GAP}{capture['tables']:,} tables{_GAP}{regions}{_GAP}{capture['rows']:,} rows", Style.PLAIN),
            ],
            width,
        )
    ]
    for bad, text in _troubles(capture):
        lines += _wrapped(printable(text), width, Style.BAD if bad else Style.WARN)
    return lines


def _troubles(capture: Mapping[str, Any]) -> list[tuple[bool, str]]:
    found: list[tuple[bool, str]] = []
    if error := capture["error"]:
        found.append((True, f"{error.get('code')}: {error.get('message')}"))
    if capture["silent_s"]:
        found.append((True, f"the capture has written no status for {duration(capture['silent_s'])}"))
    if storage := capture["storage"]:
        found.append((True, f"the log's storage is away for {duration(storage.get('seconds'))}: {storage.get('message')}"))
    if capture["paused"]:
        found.append((False, f"paused: {capture['paused']}"))
    if capture["parts_to_read"]:
        found.append((False, f"{capture['parts_to_read']} parts of tables are still to be read"))
    holding = capture["holding"]
    held = capture["held_tables"]
    if holding and not held and (capture["stuck"] or {"last_error", "lock"} & holding.keys() or holding.get("seconds", 0) >= HELD_S):
        found.append((False, f"held by {_holder(holding)}"))
    found += [(False, f"held up: {_holder(one)}") for one in held[:10]]
    if len(held) > 10:
        found.append((False, f"and {len(held) - 10} tables more"))
    return found


def _holder(one: Mapping[str, Any]) -> str:
    """Who holds the resolved ts, for how long, and what to do."""
    parts = [f"{one.get('table', 'the log itself')} for {duration(one.get('seconds'))}"]
    if one.get("cause"):
        parts.append(str(one["cause"]))
    if "region" in one:
        parts.append(f"region {one['region']} at store {one.get('store')} {one.get('store_address', '')}".rstrip())
    if lock := one.get("lock"):
        parts.append(f"transaction {lock['start_ts']}, key {lock['key']}")
    if one.get("last_error"):
        parts.append(str(one["last_error"]))
    return "; ".join(parts) + (f". {one['remedy']}" if one.get("remedy") else "")


def _changefeeds(feeds: Sequence[Mapping[str, Any]], width: int, sort: Sort) -> list[Line]:
    """The title, then one line for each changefeed, with its error below it."""
    if not feeds:
        return [[("There are no changefeeds.", Style.SOFT)]]
    rows = sorted(feeds, key=_KEYS[sort])
    cells = [[column.of(feed) for column in _COLUMNS] for feed in rows]
    sizes = [max(cell_len(column.title), *(cell_len(row[i][0]) for row in cells)) for i, column in enumerate(_COLUMNS)]
    kept = _fitting(sizes, width)
    lines = [_row([(column.title, Style.SOFT) for column in _COLUMNS], sizes, kept, width)]
    for feed, row in zip(rows, cells, strict=True):
        lines.append(_row(row, sizes, kept, width))
        lines += _problem(feed, width)
    return lines


def _fitting(sizes: Sequence[int], width: int) -> list[int]:
    """The columns that have room. The last one may be cut."""
    kept = [*range(len(_COLUMNS))]
    least = [min(size, 20) if i == len(sizes) - 1 else size for i, size in enumerate(sizes)]
    while len(kept) > 1 and sum(least[i] for i in kept) + len(_GAP) * (len(kept) - 1) > width:
        heaviest = max(kept, key=lambda i: _COLUMNS[i].weight)
        if not _COLUMNS[heaviest].weight:
            break
        kept.remove(heaviest)
    return kept


def _row(cells: Sequence[Piece], sizes: Sequence[int], kept: Sequence[int], width: int) -> Line:
    pieces: list[Piece] = []
    for i in kept:
        text, style = cells[i]
        space = " " * (sizes[i] - cell_len(text))
        pieces += [(space + text if _COLUMNS[i].right else text + space, style), (_GAP, Style.PLAIN)]
    return _cut(pieces[:-1], width)


def _problem(feed: Mapping[str, Any], width: int) -> list[Line]:
    """Code and message of its error, what to do, and when it is tried again."""
    error = feed["error"]
    if not error:
        return []
    style = _STATE_STYLE.get(feed["state"], Style.SOFT) if feed["state"] != "normal" else Style.SOFT
    lines = _first(_wrapped(printable(f"{error['code']}: {error['message']}"), width, style, "  "), width)
    if error["hint"]:
        lines += _first(_wrapped(f"to do: {printable(error['hint'])}", width, Style.PLAIN, "  "), width)
    notes = []
    if feed["retry_at"]:
        notes.append(f"tried again at {datetime.fromtimestamp(feed['retry_at']):%H:%M:%S}")
    if feed["holds_log_until"]:
        notes.append(f"the log is kept for it until {datetime.fromtimestamp(feed['holds_log_until']):%Y-%m-%d %H:%M:%S}")
    return lines + (_wrapped("; ".join(notes), width, Style.SOFT, "  ") if notes else [])


def _first(lines: list[Line], width: int) -> list[Line]:
    """Return the first lines. A statement in an error may be long, and would push the other changefeeds off the screen."""
    if len(lines) <= _PROBLEM_LINES:
        return lines
    return [*lines[:_PROBLEM_LINES], *_wrapped("… all of it: tidemill changefeed show", width, Style.SOFT, "  ")]


def _wrapped(text: str, width: int, style: Style, indent: str = "") -> list[Line]:
    """Break a text at spaces, and words that are longer than a line anywhere."""
    indent = indent if width > 20 else ""
    room = max(1, width - len(indent))
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= room:
            lines[-1] = joined
        else:
            lines += [""] if lines[-1] else []
            lines[-1:] = chop_cells(word, room)
    return [[(indent + line, style)] for line in lines]


def _cut(pieces: Sequence[Piece], width: int) -> Line:
    """What of a line fits."""
    found: list[Piece] = []
    left = width
    for text, style in pieces:
        if cell_len(text) > left:
            found.append((set_cell_size(text, left), style))
            break
        found.append((text, style))
        left -= cell_len(text)
    return found


def plain(line: Line) -> str:
    """A line without its styles."""
    return "".join(text for text, _ in line).rstrip()


def coloured(line: Line) -> str:
    """A line with its styles as escape sequences."""
    return "".join(f"\x1b[{style}m{text}\x1b[0m" if style else text for text, style in line)

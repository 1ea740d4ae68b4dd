"""Times given to commands that read a log and have no cluster to ask: `now` is the log's end."""

from __future__ import annotations

from tidemill import tso


def ts_in(log: str, text: str | None) -> int | None:
    """Return the ts that a user means, see `tso.parse`. `now` and distances such as `-2h` count from the log's resolved ts.

    Raises ConfigError, and what reading the log raises.
    """
    from tidemill.changelog.reader import LogReader

    if text is None:
        return None
    return tso.parse(text, LogReader(log).resolved_ts() if tso.is_relative(text) else None)

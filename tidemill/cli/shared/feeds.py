"""Which changefeed of a data directory is meant."""

from __future__ import annotations

from pathlib import Path

from tidemill.errors import ConfigError

DATA_DIR = Path("tidemill-data")
"""What `tidemill run` takes where it is given none."""


def choose(data_dir: Path, changefeed_id: str | None) -> str:
    """The one that is named, or the only one. Raises ConfigError."""
    feeds = known(data_dir)
    if not feeds:
        raise ConfigError(f"{data_dir} has no changefeed", hint="Name the --data-dir that was given to `tidemill run`.")
    if changefeed_id is None and len(feeds) > 1:
        raise ConfigError(f"{data_dir} has several changefeeds: {', '.join(feeds)}", hint="Name one by --changefeed-id.")
    if changefeed_id is not None and changefeed_id not in feeds:
        raise ConfigError(f"{data_dir} has no changefeed {changefeed_id}; it has {', '.join(feeds)}")
    return changefeed_id or feeds[0]


def known(data_dir: Path) -> list[str]:
    """Changefeeds that a `tidemill run` has, by name."""
    return sorted({path.parent.name for name in ("capture", "run.lock") for path in data_dir.glob(f"changefeeds/*/{name}")})

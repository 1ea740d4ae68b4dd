"""How far a Drainer is: data-dir/savepoint, the TOML file of the real program."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tidemill.changelog.storage import durable
from tidemill.errors import ConfigError

NAME = "savepoint"


@dataclass(frozen=True, slots=True)
class Position:
    """Everything up to `commit_ts` is delivered. `consistent`: the Drainer was stopped in order."""

    commit_ts: int
    schema_version: int = 0
    consistent: bool = False


class Savepoint:
    """The file in a data folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def load(self) -> Position | None:
        """Return the position; None where there is none. Raises ConfigError for a file that cannot be read.

        Lines behind the first that is not TOML are passed over: binlogctl's generate_meta with a time zone writes dates below the position.
        """
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._path} cannot be read: {error}") from None
        found: dict[str, object] = {}
        for line in text.splitlines():
            try:
                found |= tomllib.loads(line)
            except tomllib.TOMLDecodeError:
                continue
        commit_ts, version = found.get("commitTS"), found.get("schema-version", 0)
        if not isinstance(commit_ts, int) or not isinstance(version, int) or commit_ts < 0:
            raise ConfigError(
                f"{self._path} has no usable commitTS", hint="Write one as commitTS = 435000000000000000, or remove the file."
            )
        return Position(commit_ts, version, found.get("consistent") is True) if commit_ts else None

    def save(self, position: Position) -> None:
        """Write the position, in one step. Raises OSError."""
        text = (
            f"consistent = {'true' if position.consistent else 'false'}\n"
            f"commitTS = {position.commit_ts}\nschema-version = {position.schema_version}\n"
        )
        durable.put(str(self._path), text.encode())

    def close(self) -> None:
        """Nothing is open."""

"""What the catalog is asked, as Spark's options: a question, the names it is about, and the settings of the catalog."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.errors import ConfigError
from tidemill.spark.source.options import NAMES as CHANGES_NAMES
from tidemill.spark.source.options import by_name, plain
from tidemill.spark.table.options import NAMES as TABLE_NAMES
from tidemill.tso import compose, parse


class Question(enum.StrEnum):
    """What is asked for."""

    DATABASES = "databases"
    DATABASE = "database"
    TABLES = "tables"
    TABLE = "table"
    CHANGES = "changes"


_ABOUT = ("question", "database", "name", "asOfMicros", "version", "from", "fromIncluded", "to", "toIncluded", "bounds")
_SETTINGS = tuple(dict.fromkeys((*TABLE_NAMES, *CHANGES_NAMES)))
_BY_PLAIN = {plain(name): name for name in (*_ABOUT, *_SETTINGS)}


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, what it is about (`database`, `name` and the bounds, by their names), and the settings of the catalog."""

    question: Question
    about: Mapping[str, str]
    settings: Mapping[str, str]

    @property
    def database(self) -> str:
        """The database that is asked about."""
        return self.about["database"]

    @property
    def table(self) -> str:
        """The table that is asked about, without its database."""
        return self.about["name"]

    def for_format(self, names: tuple[str, ...]) -> dict[str, str]:
        """Return the settings that a format knows."""
        return {name: text for name, text in self.settings.items() if name in names}


def parse_question(given: Mapping[str, str]) -> Asked:
    """Parse Spark's options. Raises ConfigError for a setting that neither format has."""
    by = by_name(given, _BY_PLAIN)
    about = {name: by.pop(name) for name in _ABOUT if name in by}
    if "pd" not in by and "log" not in by and "logFile" not in by:
        raise ConfigError(
            "the catalog has neither a cluster nor a log",
            hint="Set spark.sql.catalog.NAME.pd to PD's addresses, or spark.sql.catalog.NAME.log to a change log, or both.",
        )
    return Asked(Question(about.pop("question")), about, by)


def as_of(about: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the moment of a table as options of `tidemill.table`: that of the query, else that of the catalog's `settings`."""
    if "asOfMicros" in about:
        return {"asOfTs": str(compose(int(about["asOfMicros"]) // 1000))}
    if "version" in about:
        return {"asOfTs": about["version"]}
    return dict(settings)


def interval(about: Mapping[str, str]) -> dict[str, str]:
    """Return the bounds of a CHANGES clause as options of `tidemill`, whose start is exclusive and whose end is inclusive.

    `bounds`: `version` (a TSO, or what `--start-ts` takes but for distances) or `timestamp` (microseconds since 1970). Raises ConfigError.
    """
    found = {}
    if "from" in about:
        first = _first(about["bounds"], about["from"], included=about["fromIncluded"] == "true")
        found["startingTs"] = str(max(first - 1, 0))
    if "to" in about:
        found["endingTs"] = str(_first(about["bounds"], about["to"], included=about["toIncluded"] != "true") - 1)
    return found


def _first(bounds: str, text: str, *, included: bool) -> int:
    """Return the first ts that is not below a bound; `included`: the bound itself is not below it."""
    if bounds == "version":
        return parse(text) + (not included)
    micros = int(text)
    return compose(-(-micros // 1000) if included else micros // 1000 + 1)

"""`ProtocolSpec`: all that the rest of Tidemill knows of a protocol. Each is a module of `protocols/specs`;
`protocols/all.py` lists them.

Encoders, decoders and references are named as `module:name` and loaded on first use. So a worker loads the kernels of one protocol only,
and a protocol may name kernels, which are in a layer above.
"""

from __future__ import annotations

import enum
import importlib
from dataclasses import dataclass
from typing import Any


class Needs(enum.Enum):
    """What an encoder needs besides table programs and options. Control messages get the clock too."""

    SCHEMA_IDS = "schema ids"  # of the registry, a pair for each table
    CLOCK = "clock"  # milliseconds since 1970, for messages that hold the time of encoding
    FIRST_TARGETS = "first targets"  # for each table the target that is partition 0 of its topic


@dataclass(frozen=True, slots=True)
class ProtocolSpec:
    """One protocol."""

    format: str
    """A `MessageFormat`; of another package the name of its entry point, whatever stands here."""
    spellings: tuple[str, ...]
    """Its names in the sink URI and the TOML file. The first is printed."""
    options: tuple[str, ...]
    """Names of the parameters that this protocol uses and others do not. Types and defaults: `config.parameters`."""
    encoder: str
    """The kernels' row encoder: a class of (programs, options, …)."""
    reference: str
    """The module of the reference encoder."""
    control: str
    """A function of the options (and the clock, if it needs one) that returns the `ControlMessages`."""
    decoder: str
    """The decoder: messages → events, a function or a class. Its arguments are the protocol's own (a registry, earlier messages), so its
    users know it by name: the readers of `tidemill consume`, the Arrow decoder, tests."""
    columns: str = ""
    """The decoder of Arrow arrays of messages → typed columns."""
    no_columns: str = ""
    """Why there is no decoder into columns."""
    needs: frozenset[Needs] = frozenset()
    schemas: str = ""
    """A function of (table version, options) that returns the `AvroSchemas` to register. Empty: the protocol has no schema registry."""
    large_messages: bool = False
    """Whether a row that is too large for a message may be sent as its handle key, or as a claim check."""
    file_extension: str = ""
    """Extension of the storage sink's data files. Empty: the storage sink does not take this protocol."""
    not_on_kafka: str = ""
    """Why the protocol cannot go to Kafka. Empty: it can."""
    needs_keys: bool = False
    """Whether every table needs a usable key."""
    describes_tables: bool = False
    """Whether a table's description is sent before its rows."""
    from_events: bool = False
    """Whether messages can be made of decoded events, as `tidemill consume` does. Events do not have everything of a table's version."""

    def __post_init__(self) -> None:
        if bool(self.columns) == bool(self.no_columns):
            raise ValueError(f"{self.spellings[0]}: either a decoder into columns, or why there is none")

    @property
    def uses_registry(self) -> bool:
        """Whether the schemas of tables are registered before their rows are sent."""
        return bool(self.schemas)


def load(place: str) -> Any:
    """Import the object that `module:name` names, or a module."""
    module, _, name = place.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found

"""What a protocol is to the rest of Tidemill: one `ProtocolSpec` in each protocol's folder, listed in `protocols/all.py`.

Encoders, decoders and references are named as `module:name` and loaded when they are used: a worker has the kernels of one protocol only,
and a protocol may name kernels, which stand in a layer above it.
"""

from __future__ import annotations

import enum
import importlib
from dataclasses import dataclass
from typing import Any

from tidemill.protocols.options import MessageFormat


class Needs(enum.Enum):
    """What an encoder is given besides table programs and options. Control messages are given the clock too."""

    SCHEMA_IDS = "schema ids"  # of the registry, a pair for each table
    CLOCK = "clock"  # milliseconds since 1970, where messages say when they were made
    FIRST_TARGETS = "first targets"  # for each table the target that is partition 0 of its topic


@dataclass(frozen=True, slots=True)
class ProtocolSpec:
    """One protocol."""

    format: MessageFormat
    spellings: tuple[str, ...]
    """In the sink URI and the TOML file; the first is what is printed."""
    options: tuple[str, ...]
    """Names of the parameters that mean something to this protocol but not to all. Types and defaults: `config.parameters`."""
    encoder: str
    """The kernels' row encoder: a class of (programs, options, …)."""
    reference: str
    """The readable twin of the encoder: a module."""
    control: str
    """What it says besides rows: a function of the options (and the clock, if it needs one) that returns `ControlMessages`."""
    decoder: str
    """Messages back into events."""
    columns: str = ""
    """Arrow arrays of messages into typed columns."""
    no_columns: str = ""
    """Why there is no decoder into columns."""
    needs: frozenset[Needs] = frozenset()
    uses_registry: bool = False
    large_messages: bool = False
    """Whether a row that is too large for a message may be sent as its handle key, or as a claim check."""
    file_extension: str = ""
    """Of the storage sink's files of tables; empty: it is not written so."""
    not_on_kafka: str = ""
    """Why it cannot go to Kafka."""
    needs_keys: bool = False
    """Whether every table needs a usable key."""
    describes_tables: bool = False
    """Whether a table's description goes ahead of its rows."""

    def __post_init__(self) -> None:
        if bool(self.columns) == bool(self.no_columns):
            raise ValueError(f"{self.spellings[0]}: either a decoder into columns, or why there is none")


def load(place: str) -> Any:
    """What `module:name` names, or a module."""
    module, _, name = place.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found

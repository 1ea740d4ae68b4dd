"""All protocols. A new protocol needs a folder, kernels, a member of `MessageFormat`, and its spec in the list below."""

from __future__ import annotations

from tidemill.protocols.options import MessageFormat
from tidemill.protocols.spec import ProtocolSpec
from tidemill.protocols.specs.avro import AVRO
from tidemill.protocols.specs.canal import CANAL
from tidemill.protocols.specs.canal_json import CANAL_JSON
from tidemill.protocols.specs.csv import CSV
from tidemill.protocols.specs.debezium import DEBEZIUM
from tidemill.protocols.specs.debezium_avro import DEBEZIUM_AVRO
from tidemill.protocols.specs.open import OPEN
from tidemill.protocols.specs.simple import SIMPLE

PROTOCOLS: dict[MessageFormat, ProtocolSpec] = {
    spec.format: spec for spec in (OPEN, CANAL, CANAL_JSON, CSV, SIMPLE, AVRO, DEBEZIUM, DEBEZIUM_AVRO)
}

SPELLINGS: dict[str, ProtocolSpec] = {spelling: spec for spec in PROTOCOLS.values() for spelling in spec.spellings}


def spec_of(protocol: MessageFormat) -> ProtocolSpec:
    """Return the spec of a format."""
    return PROTOCOLS[protocol]

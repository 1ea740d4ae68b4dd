"""All protocols. A new protocol needs a folder, kernels, a member of `MessageFormat`, and its spec in the list below."""

from __future__ import annotations

from tidemill.protocols.avro.spec import AVRO
from tidemill.protocols.canal.spec import CANAL
from tidemill.protocols.canal_json.spec import CANAL_JSON
from tidemill.protocols.csv.spec import CSV
from tidemill.protocols.debezium.spec import DEBEZIUM
from tidemill.protocols.open.spec import OPEN
from tidemill.protocols.options import MessageFormat
from tidemill.protocols.simple.spec import SIMPLE
from tidemill.protocols.spec import ProtocolSpec

PROTOCOLS: dict[MessageFormat, ProtocolSpec] = {spec.format: spec for spec in (OPEN, CANAL, CANAL_JSON, CSV, SIMPLE, AVRO, DEBEZIUM)}

SPELLINGS: dict[str, ProtocolSpec] = {spelling: spec for spec in PROTOCOLS.values() for spelling in spec.spellings}


def spec_of(protocol: MessageFormat) -> ProtocolSpec:
    """Return the spec of a format."""
    return PROTOCOLS[protocol]

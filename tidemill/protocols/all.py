"""All protocols. A new protocol needs a folder, kernels, a member of `MessageFormat`, and its spec in the list below. Those of other
packages are entry points of the group `tidemill.protocols`."""

from __future__ import annotations

from dataclasses import replace

from tidemill import plugins
from tidemill.errors import ConfigError
from tidemill.protocols.spec import ProtocolSpec
from tidemill.protocols.specs.avro import AVRO
from tidemill.protocols.specs.canal import CANAL
from tidemill.protocols.specs.canal_json import CANAL_JSON
from tidemill.protocols.specs.csv import CSV
from tidemill.protocols.specs.debezium import DEBEZIUM
from tidemill.protocols.specs.debezium_avro import DEBEZIUM_AVRO
from tidemill.protocols.specs.open import OPEN
from tidemill.protocols.specs.simple import SIMPLE

PROTOCOLS: dict[str, ProtocolSpec] = {spec.format: spec for spec in (OPEN, CANAL, CANAL_JSON, CSV, SIMPLE, AVRO, DEBEZIUM, DEBEZIUM_AVRO)}

SPELLINGS: dict[str, ProtocolSpec] = {spelling: spec for spec in PROTOCOLS.values() for spelling in spec.spellings}


def spec_of(protocol: str) -> ProtocolSpec:
    """Return the spec of a protocol, built in or of another package. Raises ConfigError."""
    own = PROTOCOLS.get(protocol)
    found = own or brought(protocol)
    if found is None:
        raise ConfigError(f"no protocol is called {protocol}", hint="Install the package that brings it, on executors too.")
    return found


def brought(name: str) -> ProtocolSpec | None:
    """Return the protocol of another package; None if no package brings it. Raises ConfigError for one that cannot be used."""
    point = plugins.offered(plugins.PROTOCOLS, frozenset(SPELLINGS)).get(name)
    if point is None:
        return None
    spec: ProtocolSpec = plugins.load(point, ProtocolSpec)
    return replace(spec, format=name, spellings=(name,))

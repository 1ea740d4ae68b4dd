"""Everything that a protocol's spec names exists, and the spec answers every question that is asked of a protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.config.parameters import PARAMETERS
from tidemill.config.uri import parse_protocol
from tidemill.protocols.all import PROTOCOLS, SPELLINGS
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.protocols.spec import Needs, ProtocolSpec, load

SPECS = [pytest.param(spec, id=spec.spellings[0]) for spec in PROTOCOLS.values()]
FOLDERS = Path(__file__).parents[2] / "tidemill/protocols"
FILES = ("__init__.py", "TYPES.md", "encode.py", "decode.py", "control.py")


def test_every_format_has_a_spec() -> None:
    assert set(PROTOCOLS) == set(MessageFormat)
    assert all(parse_protocol(spelling) is spec.format for spelling, spec in SPELLINGS.items())


@pytest.mark.parametrize("spec", SPECS)
def test_what_a_spec_names_is_there(spec: ProtocolSpec) -> None:
    for place in filter(None, (spec.encoder, spec.reference, spec.control, spec.decoder, spec.columns)):
        assert load(place) is not None, place
    clock = {"clock": lambda: 0} if Needs.CLOCK in spec.needs else {}
    messages = load(spec.control)(EncodingOptions(protocol=spec.format), **clock)
    assert isinstance(messages.ddl_on_first_partition, bool)


@pytest.mark.parametrize("spec", SPECS)
def test_options_of_a_spec_are_parameters(spec: ProtocolSpec) -> None:
    assert [name for name in spec.options if name not in PARAMETERS] == []
    assert all(spec.format in PARAMETERS[name].protocols for name in spec.options)


@pytest.mark.parametrize("spec", SPECS)
def test_folders_have_the_same_files(spec: ProtocolSpec) -> None:
    folder = FOLDERS / Path(*spec.reference.split(".")[2:-1])
    assert [name for name in FILES if not (folder / name).is_file()] == []

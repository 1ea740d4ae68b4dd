"""Which settings are secrets, and how each may be a reference: one table for sink URIs, files, registries, flags and the API."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from tidemill import secret
from tidemill.changefeed.changes import SETTINGS
from tidemill.cli.cdc.connection import OPTIONS
from tidemill.config.file import parse_config
from tidemill.config.parameters import PARAMETERS
from tidemill.config.registry_address import parse_address
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import ConfigError
from tidemill.secret import SECRETS, Way, argv_of, reference, secret_of
from tidemill.server.permitted import READ, RUN, VARIABLES

OF_SINKS = (
    "password",
    "sasl-password",
    "key-password",
    "ssl-key-password",
    "access-key",
    "secret-access-key",
    "session-token",
    "external-id",
)
WITH_ADDRESSES = {"claim-check-storage-uri", "schema-registry", "catalog-uri", "sasl-user"}
"""Parameters that are not shown, and are addresses or a name: what is secret in an address is a parameter of its own there."""

BASES = {
    "password": "mysql://u@h/",
    "ssl-key-password": "mysql+ssl://u@h/?ssl-cert=/c&ssl-key=/k",
    "sasl-password": "kafka://h:1/t?protocol=canal-json&sasl-user=u",
    "key-password": "kafka+ssl://h:1/t?protocol=canal-json&cert=/c&key=/k",
    "access-key": "s3://b/p?protocol=canal-json",
    "secret-access-key": "s3://b/p?protocol=canal-json&access-key=k",
    "session-token": "s3://b/p?protocol=canal-json",
    "external-id": "s3://b/p?protocol=canal-json&role-arn=r",
}


def with_parameter(base: str, name: str, value: str) -> str:
    return f"{base}{'&' if '?' in base else '?'}{name}={quote(value, safe='')}"


def in_sink(name: str, uri: str) -> secret.Secret:
    sink = parse_config("").sink_uri(uri)
    if name == "password":
        return sink.database.password
    if name == "ssl-key-password":
        assert sink.database.tls is not None
        return sink.database.tls.key_password
    if name == "sasl-password":
        assert sink.broker.sasl is not None
        return sink.broker.sasl.password
    if name == "key-password":
        assert sink.broker.tls is not None
        return sink.broker.tls.key_password
    assert sink.storage is not None
    found: secret.Secret = getattr(sink.storage.s3, name.replace("-", "_"))
    return found


def test_every_secret_parameter_may_be_a_reference() -> None:
    own = {name for name, parameter in PARAMETERS.items() if parameter.secret} - WITH_ADDRESSES - secret.COMMANDS
    assert own == set(OF_SINKS) - {"password"}
    assert own <= set(SECRETS)


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("name", OF_SINKS)
def test_a_parameter_may_be_a_reference_in_the_uri_and_the_file(name: str, way: Way) -> None:
    place = "/run/x 'y z'" if way is Way.COMMAND else "/run/x"
    of_uri = in_sink(name, with_parameter(BASES[name], reference(name, way), place))
    assert (of_uri.value, of_uri.way, of_uri.place) == ("", way, place)
    section, _, key = PARAMETERS[reference(name, way)].keys[0].rpartition(".")
    sink = parse_config(f'[{section}]\n{key} = "{place}"\n').sink_uri(BASES[name])
    assert reference(name, way) in sink.text  # all that a worker needs
    assert in_sink(name, sink.text) == of_uri


@pytest.mark.parametrize("name", [name for name in OF_SINKS if name != "password"])
def test_a_secret_is_given_once(name: str) -> None:
    both = with_parameter(with_parameter(BASES[name].replace("&access-key=k", ""), name, "zq7"), reference(name, Way.FILE), "/f")
    with pytest.raises(ConfigError, match=f"leave out {name}-file") as raised:
        parse_sink_uri(both)
    assert "zq7" not in str(raised.value)
    twice = with_parameter(with_parameter(BASES[name], reference(name, Way.ENV), "E"), reference(name, Way.FILE), "/f")
    with pytest.raises(ConfigError, match="give one"):
        parse_sink_uri(twice)


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("name", ["password", "key-password"])
def test_a_registry_has_references_too(name: str, way: Way) -> None:
    address = parse_address(f"https://u@r:1?cert=/c&key=/k&{reference(name, way)}=/x")
    assert getattr(address, name.replace("-", "_")) == secret_of(name, {reference(name, way): "/x"}, "")


def test_the_clients_flags_are_of_the_table() -> None:
    flags = {parameter.replace("_", "-") for parameter in OPTIONS}
    for name in ("password", "token", "key-password"):
        assert {reference(name, way) for way in Way} <= flags


def test_what_the_api_may_not_name_is_of_the_table() -> None:
    for name in SECRETS:
        assert [reference(name, way) in where for way, where in zip(Way, (READ, VARIABLES, RUN), strict=True)] == [True] * 3


def test_references_may_change_at_any_time() -> None:
    for name in PARAMETERS:
        if name in secret.NAMES:
            assert str(SETTINGS[name].when) == "at once"


def test_a_command_is_split_as_a_shell_does_and_not_run_by_one() -> None:
    assert argv_of("vault read -field 'a b' $HOME") == ("vault", "read", "-field", "a b", "$HOME")
    for text in ("", "  ", "'x", "a\0b"):
        with pytest.raises(ValueError, match="command"):
            argv_of(text)
        with pytest.raises(ConfigError, match="password-command"):
            parse_sink_uri(with_parameter(BASES["password"], "password-command", text))


def test_neither_value_nor_arguments_are_shown() -> None:
    for found in (secret_of("password", {"password": "zq7"}, ""), secret_of("password", {"password-command": "/bin/x zq7"}, "")):
        assert "zq7" not in repr(found) + str(found)
    assert str(secret_of("password", {"password-command": "/bin/x zq7"}, "")) == "password-command /bin/x"
    sink = parse_sink_uri("mysql://u@h/?password-command=/bin/x+zq7")
    assert "zq7" not in f"{sink!r} {sink}"


def test_every_reference_is_in_the_page() -> None:
    page = (Path(__file__).parents[1] / "docs/security.md").read_text(encoding="utf-8")
    table = page.partition("## Secrets")[2].partition("\n## ")[0]
    for name in SECRETS:
        assert re.search(rf"`{re.escape(name)}`", table), name

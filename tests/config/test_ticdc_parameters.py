"""Every parameter of TiCDC's sink URIs is taken, warned of with what replaces it, or refused with the way round."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tidemill.config.parameters import UNSUPPORTED
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import ConfigError

with (Path(__file__).parents[1] / "golden/peers/ticdc_sink_uri_parameters.tsv").open(encoding="utf-8") as _file:
    ROWS = [(row["sink"], row["parameters"]) for row in csv.DictReader(_file, delimiter="\t")]
BASES = {"kafka": "kafka://h:9092/t?protocol=canal-json&", "mysql": "mysql://root@h:3306/?", "s3": "s3://b/p?protocol=csv&"}
REFUSED = {
    *(f"sasl-gssapi-{name}" for name in ("auth-type", "keytab-path", "kerberos-config-path", "service-name", "user", "password", "realm")),
    *(f"sasl-oauth-{name}" for name in ("client-id", "client-secret", "token-url", "scopes", "grant-type", "audience")),
    *("avro-include-before-value", "output-row-key", "transaction-atomicity", "dry-run", "dry-run-delay", "dry-run-block-interval"),
    *("storage-class", "sse", "sse-kms-key-id", "acl", "use-accelerate-endpoint", "profile", "provider"),
}
TOGETHER = {
    "insecure-skip-verify": "&enable-tls=true",
    "sasl-user": "&sasl-password=x",
    "sasl-password": "&sasl-user=x",
    "sasl-mechanism": "&sasl-user=x&sasl-password=x",
}


@pytest.mark.parametrize(("sink", "parameters"), ROWS)
def test_a_parameter_is_known(sink: str, parameters: str) -> None:
    name = parameters.partition("=")[0]
    uri = BASES[sink] + parameters + TOGETHER.get(name, "")
    if name in REFUSED and (sink, name) != ("mysql", "transaction-atomicity"):
        with pytest.raises(ConfigError, match=f"{name} is not supported yet") as refused:
            parse_sink_uri(uri)
        assert refused.value.hint == f"Leave it out; {UNSUPPORTED[name].instead}."
    else:
        parse_sink_uri(uri)


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_a_value_that_asks_for_nothing_is_taken(name: str) -> None:
    sink = "mysql" if name.startswith("dry") else "s3"
    for value in ("", UNSUPPORTED[name].nothing, UNSUPPORTED[name].nothing.upper()):
        parse_sink_uri(f"{BASES[sink]}{name}={value}")


@pytest.mark.parametrize("name", ["has-vector-type", "enable-ddl-ts", "where-clause", "cache-prep-stmts"])
@pytest.mark.parametrize("scheme", ["mysql", "tidb"])
def test_what_is_done_by_itself_is_said(name: str, scheme: str) -> None:
    (warning,) = parse_sink_uri(f"{scheme}://root@h/?{name}=true").warnings
    assert warning.startswith(f"{name} has no meaning for Tidemill: ")


def test_defaults_of_databases_are_those_of_ticdc() -> None:
    for scheme, workers in (("mysql", 16), ("mysql+ssl", 16), ("tidb", 64), ("tidb+ssl", 64)):
        found = parse_sink_uri(f"{scheme}://root@h/")
        assert (found.database.workers, found.database.async_ddl_timeout) == (workers, 120_000)
        assert parse_sink_uri(found.text).database.workers == workers, "a worker reads the same"
        assert parse_sink_uri(f"{scheme}://root@h/?worker-count=3").database.workers == 3
        assert parse_sink_uri(f"{scheme}://root@h/", {"worker-count": "5"}).database.workers == 5


def test_the_role_that_writes_to_a_bucket() -> None:
    found = parse_sink_uri(BASES["s3"] + "role-arn=arn:aws:iam::1:role/w&external-id=e&region=eu")
    assert found.storage is not None
    assert found.storage.s3 is not None
    assert (found.storage.s3.role_arn, found.storage.s3.external_id.value) == ("arn:aws:iam::1:role/w", "e")
    with pytest.raises(ConfigError, match="role-arn and access-key exclude each other"):
        parse_sink_uri(BASES["s3"] + "role-arn=r&access-key=k&secret-access-key=s")
    with pytest.raises(ConfigError, match="external-id belongs to role-arn"):
        parse_sink_uri(BASES["s3"] + "external-id=r")
    with pytest.raises(ConfigError, match="role-arn is not for delta://"):
        parse_sink_uri("delta+s3://b/p?role-arn=r")

"""A sink URI that comes by the API names no file, variable or host that the server was not started with."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from tidemill.config.uri import PARAMETERS, parse_sink_uri
from tidemill.errors import ConfigError
from tidemill.server.permitted import CALLED, HOSTS, READ, RUN, VARIABLES, WRITTEN, Permitted

STORE = Path("/data/canal")


@pytest.fixture
def permitted(tmp_path: Path) -> Permitted:
    for name in ("secrets", "out", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "secrets" / "link").symlink_to("/etc")
    (tmp_path / "out" / "link").symlink_to("/etc")
    return Permitted((tmp_path / "secrets",), (tmp_path / "out",))


def registry(query: str) -> str:
    return f"kafka://h:1/t?protocol=avro&schema-registry={quote(f'https://r:1?{query}', safe='')}"


@pytest.mark.parametrize(
    "uri",
    [
        "mysql://u@h:1/?password-file=/etc/shadow",
        "mysql://u@h:1/?password-file=SECRETS/../other/x",
        "mysql://u@h:1/?password-file=SECRETS/link/shadow",
        "mysql://u@h:1/?password-file=etc/shadow",
        "mysql://u@h:1/?password-env=AWS_SECRET_ACCESS_KEY",
        "mysql://u@h:1/?password-env=TIDEMILL_SINK_URI",
        "mysql://u@h:1/?password-command=/bin/cat%20/etc/shadow",
        "mysql://u@h:1/?password-command=cat",
        "mysql+ssl://u@h:1/?ssl-cert=SECRETS/c&ssl-key=SECRETS/k&ssl-key-password-file=/etc/shadow",
        "kafka://h:1/t?protocol=canal-json&sasl-user=u&sasl-password-env=HOME",
        "kafka://h:1/t?protocol=canal-json&sasl-user=u&sasl-password-command=/bin/id",
        "s3://b/p?protocol=canal-json&secret-access-key-file=/etc/shadow",
        "s3://b/p?protocol=canal-json&session-token-command=/bin/id",
        "mysql+ssl://u@h:1/?ssl-ca=/etc/shadow",
        "mysql+ssl://u@h:1/?ssl-cert=/etc/shadow&ssl-key=SECRETS/k",
        "kafka://h:1/t?protocol=canal-json&ca=/root/x",
        "kafka://h:1/t?protocol=canal-json&cert=SECRETS/c&key=/root/k",
        registry("ca=/root/x"),
        registry("cert=/root/x&key=/root/x"),
        registry("password-file=/etc/shadow").replace("https%3A%2F%2Fr", "https%3A%2F%2Fu%40r"),
        registry("password-command=/bin/id"),
        "kafka://h:1/t?protocol=canal-json&enable-tidb-extension=true&large-message-handle-option=claim-check&claim-check-storage-uri=s3%3A%2F%2Fb%2Fp%3Fsecret-access-key-file%3D%252Fetc%252Fshadow",
        "file:///etc/cron.d?protocol=canal-json",
        "file://OUT/link?protocol=canal-json",
        "file://OUT/../other?protocol=canal-json",
        "messages:///etc/passwd?protocol=canal-json",
        "delta:///etc/lake",
        "iceberg://c/n?warehouse=/etc/lake",
        "iceberg://c/n?warehouse=file:///etc/lake",
        "iceberg://c/n?warehouse=OUT/w&catalog-uri=sqlite:////etc/x.db",
        "canal:///etc/store",
        "canal://h:1/d?store=/etc/store",
        "kafka://h:1/t?protocol=canal-json&enable-tidb-extension=true&large-message-handle-option=claim-check&claim-check-storage-uri=file:///etc/x",
    ],
)
def test_what_the_server_was_not_started_with_is_refused(permitted: Permitted, tmp_path: Path, uri: str) -> None:
    sink = parse_sink_uri(uri.replace("SECRETS", f"{tmp_path}/secrets").replace("OUT", f"{tmp_path}/out"))
    with pytest.raises(ConfigError, match="the API may name"):
        permitted.check(sink, STORE)


@pytest.mark.parametrize(
    "uri",
    [
        "mysql://u@h:1/?password-file=SECRETS/x",
        "mysql://u@h:1/?password-env=TIDEMILL_SECRET_DOWNSTREAM",
        "mysql+ssl://u@h:1/?ssl-ca=SECRETS/ca.pem",
        "file://OUT/x?protocol=canal-json",
        "messages://OUT/x.jsonl?protocol=canal-json",
        "delta://OUT/x",
        "canal://h:1/d?store=/data/canal",
        "s3://bucket/x?protocol=canal-json",
        "blackhole://",
        "kafka://h:1/t?protocol=canal-json",
    ],
)
def test_what_it_was_started_with_is_taken(permitted: Permitted, tmp_path: Path, uri: str) -> None:
    permitted.check(parse_sink_uri(uri.replace("SECRETS", f"{tmp_path}/secrets").replace("OUT", f"{tmp_path}/out")), STORE)


@pytest.mark.parametrize(
    ("uri", "taken"),
    [
        ("kafka://k1.prod.example:9092/t?protocol=canal-json", True),
        ("kafka://k1.prod.example:9092,10.1.2.3:9092/t?protocol=canal-json", True),
        ("kafka://k1.prod.example:9092,10.2.2.3:9092/t?protocol=canal-json", False),
        ("mysql://u:p@db:3306/", True),
        ("mysql://u:p@db:22/", False),
        ("mysql://u:p@169.254.169.254:80/", False),
        (registry(""), False),
    ],
)
def test_hosts_can_be_limited(uri: str, taken: bool) -> None:
    permitted = Permitted(hosts=("*.prod.example", "10.1.0.0/16", "db:3306"))
    if taken:
        permitted.check(parse_sink_uri(uri), STORE)
    else:
        with pytest.raises(ConfigError, match="not among --allow-sink-hosts"):
            permitted.check(parse_sink_uri(uri), STORE)


def test_every_parameter_that_names_a_place_is_known_here() -> None:
    """A new one is looked at, or is named below with what it is."""
    others = {"file-index-digit", "file-size", "target-file-size", "force-path-style", "use-table-id-as-path", "date-separator"}
    others |= {
        "start-ts",
        "enable-partition-separator",
        "output-column-id",
        "terminator",
        "flush-interval",
        "compact-every",
        "topic",
        "csv-output-field-header",
        *("key-password", "ssl-key-password"),
    }
    place = re.compile(r"\b(files?|folders?|address|URL|URI|path|variable|host|where)\b", re.IGNORECASE)
    named = {name for name, one in PARAMETERS.items() if place.search(f"{name} {one.about}")}
    assert named - others - READ - VARIABLES - RUN - WRITTEN - CALLED - HOSTS == set()


def test_a_command_is_run_where_its_program_is_named(tmp_path: Path) -> None:
    """By its whole path: neither another one of that name nor a link is."""
    allowed = Permitted((), (), commands=("/opt/vault-read",))
    allowed.check(parse_sink_uri("mysql://u@h:1/?password-command=/opt/vault-read%20db%20%27a%20b%27"), STORE)
    for text in ("vault-read db", "/bin/sh /opt/vault-read", "/opt/vault-read/../x", "/opt/vault-read2"):
        with pytest.raises(ConfigError, match="the API may name /opt/vault-read"):
            allowed.check(parse_sink_uri(f"mysql://u@h:1/?password-command={quote(text)}"), STORE)


def within(name: str, address: str) -> str:
    base = {
        "claim-check-storage-uri": "kafka://a.prod:1/t?protocol=canal-json&enable-tidb-extension=true&large-message-handle-option=claim-check",
        "store": "canal://0.0.0.0:1/d?",
        "catalog-uri": "iceberg://c/n?warehouse=s3%3A%2F%2Fb.prod%2Fw",
        "endpoint": "s3://b/p?protocol=canal-json",
    }[name]
    return f"{base}&{name}={quote(address, safe='')}"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("claim-check-storage-uri", "s3://b.prod/p?endpoint_override=10.0.0.1:22&scheme=http"),
        ("claim-check-storage-uri", "s3://b.prod/p?endpoint=http%3A%2F%2F10.0.0.1%3A22"),
        ("claim-check-storage-uri", "abfs://c@a.prod/p?blob_storage_authority=10.0.0.1:22"),
        ("claim-check-storage-uri", "abfs://c@a.prod/p?dfs_storage_authority=.evil.example"),
        ("claim-check-storage-uri", "gs://b.prod/p?endpoint_override=10.0.0.1:22"),
        ("claim-check-storage-uri", "s3://b.prod/p?tls_ca_file_path=/etc/shadow"),
        ("claim-check-storage-uri", "hdfs://a.prod/p?kerb_ticket=/etc/shadow"),
        ("store", "s3://b.prod/p?endpoint_override=10.0.0.1:22"),
        ("catalog-uri", "postgresql://a.prod/db?host=10.0.0.1"),
        ("catalog-uri", "mysql+pymysql://a.prod/db?read_default_file=/etc/shadow"),
        ("endpoint", "10.0.0.1:22"),
        ("endpoint", "http://10.0.0.1:22"),
    ],
)
def test_addresses_within_a_uri_call_no_other_host(name: str, address: str) -> None:
    allowed = Permitted((), (), hosts=("*.prod", "0.0.0.0"))
    with pytest.raises(ConfigError, match=r"not among --allow-sink-hosts|the API may name"):
        allowed.check(parse_sink_uri(within(name, address)), STORE)


@pytest.mark.parametrize("endpoint", ["minio.prod:9000", "http://minio.prod:9000", "https://minio.prod/"])
def test_an_endpoint_that_is_allowed_has_a_scheme_or_none(endpoint: str) -> None:
    Permitted((), (), hosts=("*.prod",)).check(parse_sink_uri(within("endpoint", endpoint)), STORE)

"""The parameters of sinks and protocols: name, values, default, the places where it may be given, what it does.

The sink URI, the TOML file and `tidemill config check` use this table. A parameter has its name in the sink URI. Those that TiCDC takes
only from the TOML file may stand in the URI too, so that a complete URI is all that a worker needs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill import tso
from tidemill.config import values as v
from tidemill.config.database import Atomicity
from tidemill.config.lake import LakeMode
from tidemill.config.registry_address import parse_address
from tidemill.errors import ConfigError, TidemillError
from tidemill.protocols.all import PROTOCOLS
from tidemill.protocols.options import BigintUnsignedMode, BinaryEncoding, Compression, DecimalMode, LargeMessageOption
from tidemill.rules.topics import check_topic
from tidemill.secret import ABOUT, SECRETS, Way, command_text, reference


class Scheme(enum.StrEnum):
    """The sinks that are built in, by their sink URIs."""

    KAFKA = "kafka"
    FILE = "file"
    S3 = "s3"
    CANAL = "canal"
    MESSAGES = "messages"
    BLACKHOLE = "blackhole"
    MYSQL = "mysql"
    DELTA = "delta"
    ICEBERG = "iceberg"


class DateSeparator(enum.Enum):
    """sink.date-separator: the folder of a date in a storage sink's paths."""

    NONE = "none"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"


ALL_SCHEMES = frozenset(Scheme)
STORAGE = frozenset({Scheme.FILE, Scheme.S3})
_KAFKA = frozenset({Scheme.KAFKA})
_S3 = frozenset({Scheme.S3})
_CANAL = frozenset({Scheme.CANAL})
_MYSQL = frozenset({Scheme.MYSQL})
LAKE = frozenset({Scheme.DELTA, Scheme.ICEBERG})
_ICEBERG = frozenset({Scheme.ICEBERG})
WITHOUT_PROTOCOL = _MYSQL | LAKE
WITH_MESSAGES = ALL_SCHEMES - WITHOUT_PROTOCOL
_NO_BROKER = WITH_MESSAGES - _KAFKA - _CANAL


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. `default` is as written, empty for none. `keys` are paths in the TOML file, of which one may be given."""

    name: str
    parse: Callable[[str], Any]
    default: str
    about: str
    keys: tuple[str, ...] = ()
    schemes: frozenset[Scheme] = WITH_MESSAGES
    secret: bool = False

    @property
    def protocols(self) -> frozenset[str]:
        """The protocols that use the parameter: those that list it, else all. Those of files of tables: protocols that have such files."""
        if self.schemes == STORAGE:
            return frozenset(f for f, spec in PROTOCOLS.items() if spec.file_extension)
        return frozenset(f for f, spec in PROTOCOLS.items() if self.name in spec.options) or frozenset(PROTOCOLS)


def _secret(name: str, about: str, schemes: frozenset[Scheme], keys: tuple[str, ...] = (), *, section: str = "") -> list[Parameter]:
    """Return the parameter of a secret, and those of references to it. `keys`: of the value; `section`: of the references."""
    return [
        Parameter(name, v.text, "", about, keys, schemes, secret=True),
        *_references(name, schemes, section or keys[0].removesuffix(name)),
    ]


def _references(name: str, schemes: frozenset[Scheme], section: str) -> list[Parameter]:
    return [
        Parameter(
            *(reference(name, way), command_text if way is Way.COMMAND else v.text, ""),
            about=f"{ABOUT[way]} {SECRETS[name]} (Tidemill's own)",
            keys=(section + reference(name, way),),
            schemes=schemes,
            secret=way is Way.COMMAND,  # its arguments may be
        )
        for way in Way
    ]


def _registry(text: str) -> str:
    """Check the address of a schema registry, for any protocol. Empty means none. Raises ConfigError."""
    if text:
        parse_address(text)
    return text


def _start_ts(text: str) -> int:
    """Parse a TSO or a time. Raises ValueError."""
    try:
        return tso.parse(text)
    except TidemillError as error:
        raise ValueError(error.message) from None


_K, _CODEC, _LARGE = "sink.kafka-config.", "sink.kafka-config.codec-config.", "sink.kafka-config.large-message-handle."
_CLOUD = "sink.cloud-storage-config."
_M = "sink.mysql-config."

_ENCODING = [
    Parameter("max-message-bytes", v.integer(1, 1_000_000_000), "10485760", "largest size of a message", (_K + "max-message-bytes",)),
    Parameter(
        *("max-batch-size", v.integer(1, 65_535), "16", "rows of a message", (_CODEC + "max-batch-size",)),
    ),
    Parameter(
        *("enable-tidb-extension", v.parse_bool, "false", "TiDB's own fields; in Canal-JSON also watermarks"),
        keys=(_CODEC + "enable-tidb-extension",),
    ),
    Parameter(
        *("content-compatible", v.parse_bool, "false", "mysqlType as Canal writes it; old holds updated columns only"),
        keys=("sink.content-compatible",),
    ),
    Parameter(
        *("only-output-updated-columns", v.parse_bool, "false", "the old value of an update holds updated columns only"),
        keys=("sink.only-output-updated-columns",),
    ),
    Parameter(
        *("delete-only-output-handle-key-columns", v.parse_bool, "false", "a delete holds the columns of the handle key only"),
        keys=("sink.delete-only-output-handle-key-columns",),
    ),
    Parameter(
        *("open-output-old-value", v.parse_bool, "true", "updates hold the old value"),
        keys=("sink.open.output-old-value",),
    ),
    Parameter(
        *("output-raw-change-event", v.parse_bool, "false", "an update of a handle or unique key is not split into delete and insert"),
        keys=(_K + "output-raw-change-event", _CLOUD + "output-raw-change-event"),
    ),
    Parameter(
        *("large-message-handle-option", v.member(LargeMessageOption), "none", "what is sent for a row larger than max-message-bytes"),
        keys=(_LARGE + "large-message-handle-option",),
    ),
    Parameter(
        *("large-message-handle-compression", v.member(Compression), "none", "compression of each event's value"),
        keys=(_LARGE + "large-message-handle-compression",),
    ),
    Parameter(
        *("claim-check-storage-uri", v.storage_uri, "", "where claim-check puts large rows"),
        keys=(_LARGE + "claim-check-storage-uri",),
        secret=True,
    ),
    Parameter(
        *("claim-check-raw-value", v.parse_bool, "false", "claim-check stores the message's value as it is"),
        keys=(_LARGE + "claim-check-raw-value",),
    ),
    Parameter(
        *("avro-decimal-handling-mode", v.member(DecimalMode), "precise", "DECIMAL as an Avro decimal or as text"),
        keys=(_CODEC + "avro-decimal-handling-mode",),
    ),
    Parameter(
        *("avro-bigint-unsigned-handling-mode", v.member(BigintUnsignedMode), "long", "BIGINT UNSIGNED as long or as text"),
        keys=(_CODEC + "avro-bigint-unsigned-handling-mode",),
    ),
    Parameter(
        *("avro-enable-watermark", v.parse_bool, "false", "DDLs and watermarks too (no other Avro consumer reads them)"),
        keys=(_CODEC + "avro-enable-watermark",),
    ),
    Parameter(
        *("schema-registry", _registry, "", "address of the schema registry"),
        keys=("sink.schema-registry",),
        secret=True,
    ),
    Parameter(
        *("integrity-check-level", v.one_of("none", "correctness"), "none", "messages carry the row's checksum"),
        keys=("integrity.integrity-check-level", "sink.integrity.integrity-check-level"),
    ),
    Parameter(
        *("corruption-handle-level", v.one_of("warn", "error"), "warn", "what a row does whose checksum does not fit it"),
        keys=("integrity.corruption-handle-level", "sink.integrity.corruption-handle-level"),
    ),
    Parameter(
        *("encoding-format", v.one_of("json", "avro"), "json", "how simple writes messages"),
        keys=(_CODEC + "encoding-format",),
    ),
    Parameter(
        *("send-bootstrap-interval-in-sec", v.integer(-(2**63), 2**63 - 1), "120", "a table's description is sent again after so long"),
        keys=("sink.send-bootstrap-interval-in-sec",),
    ),
    Parameter(
        *("send-bootstrap-in-msg-count", v.integer(-(2**31), 2**31 - 1), "10000", "… or after so many row messages"),
        keys=("sink.send-bootstrap-in-msg-count",),
    ),
    Parameter(
        *("send-bootstrap-to-all-partition", v.parse_bool, "true", "… to all partitions, else to the first"),
        keys=("sink.send-bootstrap-to-all-partition",),
    ),
    Parameter(
        *("send-all-bootstrap-at-start", v.parse_bool, "false", "all tables' descriptions are sent when the changefeed starts"),
        keys=("sink.send-all-bootstrap-at-start",),
    ),
    Parameter(
        *("debezium-disable-schema", v.parse_bool, "false", "messages have no schema block"),
        keys=("sink.debezium-disable-schema",),
    ),
    Parameter(
        *("debezium-output-old-value", v.parse_bool, "true", "updates hold the old value"),
        keys=("sink.debezium.output-old-value",),
    ),
    Parameter(
        *("debezium-include-start-ts", v.parse_bool, "false", "messages of rows hold the transaction's start_ts"),
        keys=("sink.debezium.include-start-ts",),
    ),
    Parameter("cluster-id", v.text, "default", "the name in source: that of cdc server --cluster-id (Tidemill's own as a parameter)"),
    Parameter("csv-delimiter", v.csv_delimiter, ",", "between fields", ("sink.csv.delimiter",)),
    Parameter("csv-quote", v.csv_quote, '"', "around fields; empty: none", ("sink.csv.quote",)),
    Parameter("csv-null", v.any_text, "\\N", "NULL", ("sink.csv.null",)),
    Parameter("csv-include-commit-ts", v.parse_bool, "false", "a field with commit_ts", ("sink.csv.include-commit-ts",)),
    Parameter(
        *("csv-binary-encoding-method", v.member(BinaryEncoding), "base64", "binary values", ("sink.csv.binary-encoding-method",)),
    ),
    Parameter(
        *("csv-output-old-value", v.parse_bool, "false", "an update is a line of old values and one of new ones"),
        keys=("sink.csv.output-old-value",),
    ),
    Parameter(
        *("csv-output-handle-key", v.parse_bool, "false", "a field with the handle", ("sink.csv.output-handle-key",)),
    ),
    Parameter(
        *("csv-output-field-header", v.parse_bool, "false", "a first line of names", ("sink.csv.output-field-header",)),
    ),
    Parameter(
        *("terminator", v.any_text, "\r\n", "end of a line or message in a file", ("sink.terminator",)),
    ),
]
_DELIVERY = [
    Parameter(
        *("partition-num", v.integer(1, 100_000), "", "partitions used of a topic, and given to a new one (3)"),
        keys=(_K + "partition-num",),
    ),
    Parameter(
        *("create-tables", v.parse_bool, "false", "CREATE TABLE ahead of the rows of an initial load or a resync (Tidemill's own)"),
        keys=("sink.create-tables",),
        schemes=ALL_SCHEMES,
    ),
    Parameter(
        *("split-on-dispatch-key", v.parse_bool, "false", "an update that changes a dispatched column is split too (Tidemill's own)"),
        keys=("sink.split-on-dispatch-key",),
    ),
    Parameter("topic", check_topic, "tidemill", "the default topic, where there is no broker", schemes=_NO_BROKER),
]
_KAFKA_ONLY = [
    Parameter(
        *("replication-factor", v.integer(1, 32_767), "1", "of topics that are created", (_K + "replication-factor",)), schemes=_KAFKA
    ),
    Parameter(*("auto-create-topic", v.parse_bool, "true", "create topics that are missing", (_K + "auto-create-topic",)), schemes=_KAFKA),
    Parameter(
        *("required-acks", v.acks, "-1", "-1: all in-sync replicas, 1: the leader, 0: none", (_K + "required-acks",)), schemes=_KAFKA
    ),
    Parameter(
        *("compression", v.one_of("none", "gzip", "snappy", "lz4", "zstd"), "none", "of Kafka's record batches", (_K + "compression",)),
        schemes=_KAFKA,
    ),
    Parameter("kafka-client-id", v.client_id, "", "what the broker calls the client", (_K + "kafka-client-id",), _KAFKA),
    Parameter("max-retry", v.integer(1, 2**31 - 1), "", "how often a message is sent again", (), _KAFKA),
    Parameter("dial-timeout", v.parse_duration, "", "of a connection", (_K + "dial-timeout",), _KAFKA),
    Parameter(
        *("write-timeout", v.parse_duration, "", "of a request; mysql: 2m", (_K + "write-timeout", _M + "write-timeout")),
        schemes=_KAFKA | _MYSQL,
    ),
    Parameter(
        *("read-timeout", v.parse_duration, "", "of an answer; mysql: 2m", (_K + "read-timeout", _M + "read-timeout")),
        schemes=_KAFKA | _MYSQL,
    ),
    Parameter("enable-tls", v.parse_bool, "", "TLS to the broker", (_K + "enable-tls",), _KAFKA),
    Parameter("ca", v.text, "", "file of the authorities' certificates", (_K + "ca",), _KAFKA),
    Parameter("cert", v.text, "", "file of the client's certificate", (_K + "cert",), _KAFKA),
    Parameter("key", v.text, "", "file of the client's key", (_K + "key",), _KAFKA),
    *_secret("key-password", "password of that file (Tidemill's own)", _KAFKA, (_K + "key-password",)),
    Parameter(
        *("insecure-skip-verify", v.parse_bool, "", "take any certificate", (_K + "insecure-skip-verify",)),
        schemes=_KAFKA,
    ),
    Parameter("sasl-user", v.text, "", "user name", (_K + "sasl-user",), _KAFKA, secret=True),
    *_secret("sasl-password", "password", _KAFKA, (_K + "sasl-password",)),
    Parameter(
        *("sasl-mechanism", v.one_of("plain", "scram-sha-256", "scram-sha-512"), "plain", "how to log in", (_K + "sasl-mechanism",)),
        schemes=_KAFKA,
    ),
]
_STORAGE_ONLY = [
    Parameter(
        *("date-separator", v.member(DateSeparator), "day", "folders by date: none, year, month, day", ("sink.date-separator",)),
        schemes=STORAGE,
    ),
    Parameter(
        *("enable-partition-separator", v.parse_bool, "true", "a folder for each partition", ("sink.enable-partition-separator",)),
        schemes=STORAGE,
    ),
    Parameter(
        *("file-index-digit", v.file_index_digits, "20", "digits in the names of files; 20 outside of 6 to 20"),
        keys=("sink.file-index-digit",),
        schemes=STORAGE,
    ),
    Parameter(
        *("flush-interval", v.bounded(v.duration(), (100, "100ms"), (600_000, "10m")), "5s", "a file is finished after so long"),
        keys=(_CLOUD + "flush-interval",),
        schemes=STORAGE | LAKE,
    ),
    Parameter(
        *("file-size", v.bounded(v.integer(1, 2**62), (1024, "1024"), (512 << 20, "536870912")), "67108864", "… or with so many bytes"),
        keys=(_CLOUD + "file-size",),
        schemes=STORAGE,
    ),
    Parameter(
        *("use-table-id-as-path", v.parse_bool, "false", "the table's id in paths, not its name", (_CLOUD + "use-table-id-as-path",)),
        schemes=STORAGE,
    ),
    Parameter(
        *("output-column-id", v.parse_bool, "false", "schema files hold the ids of columns", (_CLOUD + "output-column-id",)),
        schemes=STORAGE,
    ),
    Parameter("region", v.text, "", "of the bucket", (), _S3 | LAKE),
    Parameter("endpoint", v.text, "", "of the store, if it is not AWS's", (), _S3 | LAKE),
    *_secret("access-key", "whose key", _S3 | LAKE, section=_CLOUD),
    *_secret("secret-access-key", "the key", _S3 | LAKE, section=_CLOUD),
    *_secret("session-token", "of temporary keys", _S3 | LAKE, section=_CLOUD),
    Parameter("force-path-style", v.parse_bool, "true", "the bucket stands in the path, not in the host name", (), _S3 | LAKE),
    Parameter("role-arn", v.text, "", "the role that is taken to write", (), _S3),
    *_secret("external-id", "what the role's owner asks for beside it", _S3, section=_CLOUD),
]
_CANAL_ONLY = [
    Parameter("store", v.text, "", "folder or URL of the entry store; without it DATA-DIR/canal", (), _CANAL),
    Parameter("start-ts", _start_ts, "", "where a client's first subscription begins: a TSO or a time", (), _CANAL),
    Parameter(
        *("get.wait", v.one_of("all", "any"), "all", "a client's GET waits for a full batch, or until there is any entry"),
        schemes=_CANAL,
    ),
    Parameter("server-id", v.integer(1, 2**32 - 1), "", "serverId in the entries' headers; empty: made of the cluster's id", (), _CANAL),
    Parameter("enum-set-as-text", v.parse_bool, "false", "ENUM and SET are the texts of their elements, not numbers", (), _CANAL),
    Parameter("store-age", v.duration(1, 366 * 86_400_000), "", "entries are kept for so long at most; empty: no limit", (), _CANAL),
    Parameter("store-size", v.integer(1, 2**62), "", "bytes of entries that are kept at most; empty: no limit", (), _CANAL),
]
_MYSQL_ONLY = [
    Parameter(
        *(
            "worker-count",
            v.bounded(v.integer(1, 2**31), (1, "1"), (1024, "1024")),
            "16",
            "connections that write rows, of all tasks; tidb://: 64",
        ),
        keys=(_M + "worker-count",),
        schemes=_MYSQL,
    ),
    Parameter(
        *("max-txn-row", v.bounded(v.integer(1, 2**31), (1, "1"), (2048, "2048")), "256", "rows of a transaction downstream"),
        keys=(_M + "max-txn-row",),
        schemes=_MYSQL,
    ),
    Parameter(
        *("max-multi-update-row", v.bounded(v.integer(1, 2**31), (1, "1"), (256, "256")), "40", "updated rows of a statement"),
        keys=(_M + "max-multi-update-row",),
        schemes=_MYSQL,
    ),
    Parameter(
        *("max-multi-update-row-size", v.bounded(v.integer(0, 2**31), (0, "0"), (8192, "8192")), "1024"),
        "updates of rows that are larger on average (bytes) are statements of their own",
        keys=(_M + "max-multi-update-row-size",),
        schemes=_MYSQL,
    ),
    Parameter(
        *("tidb-txn-mode", v.one_of("optimistic", "pessimistic"), "optimistic", "tidb_txn_mode of a TiDB downstream"),
        keys=(_M + "tidb-txn-mode",),
        schemes=_MYSQL,
    ),
    Parameter("ssl-ca", v.text, "", "file of the authorities' certificates", (_M + "ssl-ca",), _MYSQL),
    Parameter("ssl-cert", v.text, "", "file of the client's certificate", (_M + "ssl-cert",), _MYSQL),
    Parameter("ssl-key", v.text, "", "file of the client's key", (_M + "ssl-key",), _MYSQL),
    *_secret("ssl-key-password", "password of that file (Tidemill's own)", _MYSQL, (_M + "ssl-key-password",)),
    Parameter(
        *(
            "get-server-public-key",
            v.parse_bool,
            "false",
            "without TLS, take the key that the server sends for the password (Tidemill's own)",
        ),
        keys=(_M + "get-server-public-key",),
        schemes=_MYSQL,
    ),
    Parameter("time-zone", v.any_text, "", "time_zone of the sessions; empty: the changefeed's", (_M + "time-zone",), _MYSQL),
    Parameter("timeout", v.parse_duration, "2m", "of a connection that is opened", (_M + "timeout",), _MYSQL),
    Parameter("safe-mode", v.parse_bool, "false", "rows always replace what is there", ("sink.safe-mode",), _MYSQL),
    Parameter(
        *("batch-dml-enable", v.parse_bool, "true", "statements of many rows", (_M + "enable-batch-dml",)),
        schemes=_MYSQL,
    ),
    Parameter(
        *("multi-stmt-enable", v.parse_bool, "true", "a packet holds the statements of a transaction", (_M + "enable-multi-statement",)),
        schemes=_MYSQL,
    ),
    Parameter(
        *(
            "transaction-atomicity",
            v.member(Atomicity),
            "none",
            "table: a transaction stays whole in one table; global: in all",
        ),
        keys=("sink.transaction-atomicity",),
        schemes=_MYSQL,
    ),
    Parameter("async-ddl-timeout", v.duration(), "2m", "rows wait for ADD INDEX for so long", (_M + "async-ddl-timeout",), _MYSQL),
    Parameter(
        *("enable-sync-point", v.parse_bool, "false", "moments at which the tables are those of one ts are noted"),
        keys=("enable-sync-point",),
        schemes=_MYSQL,
    ),
    Parameter(
        *("sync-point-interval", v.duration(30_000, 366 * 86_400_000), "10m", "of the upstream's clock between two sync points"),
        keys=("sync-point-interval",),
        schemes=_MYSQL,
    ),
    Parameter(
        *("sync-point-retention", v.duration(3_600_000, 366 * 86_400_000), "24h", "sync points are kept for so long"),
        keys=("sync-point-retention",),
        schemes=_MYSQL,
    ),
    *_references("password", _MYSQL, _M),
]
_LAKE_ONLY = [
    Parameter("mode", v.member(LakeMode), "upsert", "upsert: tables as they are upstream; changes: a row for each change", (), LAKE),
    Parameter("target-file-size", v.integer(1 << 20, 2**40), "134217728", "bytes of a table's data file, about", (), LAKE),
    Parameter("compact-every", v.integer(0, 2**31), "32", "small files are joined after so many commits of a table; 0: never", (), LAKE),
    Parameter("catalog-uri", v.text, "", "address of the catalog; empty: pyiceberg's own configuration", (), _ICEBERG, secret=True),
    Parameter("warehouse", v.text, "", "folder or URL of the catalog's tables", (), _ICEBERG),
]
PARAMETERS = {p.name: p for p in [*_ENCODING, *_DELIVERY, *_KAFKA_ONLY, *_STORAGE_ONLY, *_CANAL_ONLY, *_MYSQL_ONLY, *_LAKE_ONLY]}
"""All parameters except `protocol`, which is in `uri`."""

NOT_OF_LAKES = {"role-arn": "the environment's AWS_ROLE_ARN", "external-id": "the environment"}
NOT_OF_LAKES |= {reference("external-id", way): "the environment" for way in Way}
"""Parameters of s3:// that a lake table on a bucket has not, and what says it there."""

UNUSED = {
    "kafka-version": "the client asks the broker",
    "worker-count": "Spark's cores are used: --master local[N]",
    "cache-prep-stmts": "statements are sent as text",
    "flush-concurrency": "Spark's cores are used: --master local[N]",
    "spool-disk-quota": "nothing is spooled: the change log is read again",
    "spool-base-dir": "nothing is spooled: the change log is read again",
    "spool-dir": "nothing is spooled: the change log is read again",
    "sasl-gssapi-disable-pafxfast": "GSSAPI is not supported",
    "has-vector-type": "a TiDB downstream keeps VECTOR columns, any other one gets their text",
    "enable-ddl-ts": "the changefeed's own table downstream says which DDLs have run",
    "where-clause": "rows are found by their keys, in the form that is fastest for the sink",
}
"""Parameters of TiCDC that have no meaning here, and why."""

_NO_GSSAPI = "use sasl-mechanism=plain or scram-sha-256, scram-sha-512, or TLS with client certificates"
_BUCKET = "set it as a default of the bucket"
_GSSAPI = ("auth-type", "keytab-path", "kerberos-config-path", "service-name", "user", "password", "realm")
_OAUTH = ("client-id", "client-secret", "token-url", "scopes", "grant-type", "audience")


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A parameter of TiCDC that is refused. `nothing`: the value that asks for what is done anyway. `instead`: the way round it."""

    nothing: str
    instead: str


UNSUPPORTED: dict[str, Unsupported] = {
    "avro-include-before-value": Unsupported("false", "take a protocol whose updates have the old value: canal-json, debezium"),
    "output-row-key": Unsupported("false", "keys are in the messages: take index-value or columns as partition of a dispatcher"),
    "transaction-atomicity": Unsupported("none", "only databases have transactions: mysql://, tidb://"),
    "enable-sync-point": Unsupported("false", "only databases have sync points: mysql://, tidb://"),
    **{f"sasl-gssapi-{name}": Unsupported("", _NO_GSSAPI) for name in _GSSAPI},
    **{f"sasl-oauth-{name}": Unsupported("", _NO_GSSAPI) for name in _OAUTH},
    "dry-run": Unsupported("false", "blackhole:// encodes and delivers to nobody"),
    "dry-run-delay": Unsupported("0", "it belongs to dry-run"),
    "dry-run-block-interval": Unsupported("0", "it belongs to dry-run"),
    "storage-class": Unsupported("standard", "a lifecycle rule of the bucket moves objects to another class"),
    "acl": Unsupported("private", "the bucket's policy, or its owner as owner of all objects, says who may read them"),
    "sse": Unsupported("", _BUCKET),
    "sse-kms-key-id": Unsupported("", _BUCKET),
    "use-accelerate-endpoint": Unsupported("false", "endpoint=https://s3-accelerate.amazonaws.com&force-path-style=false names it"),
    "profile": Unsupported("", "AWS_PROFILE in the environment of the processes that write names it"),
    "provider": Unsupported("aws", "endpoint, and force-path-style=false where the bucket belongs into the host name, say all of it"),
}
"""Parameters that would change what or where is delivered."""


def asks_for_nothing(name: str, value: str) -> bool:
    """Whether an unsupported parameter may stand there with this value."""
    return name not in UNSUPPORTED or value.lower() in (UNSUPPORTED[name].nothing, "")


def not_supported(where: str, name: str) -> ConfigError:
    """Return the error for a parameter that would change what is delivered."""
    return ConfigError(f"{where}: {name} is not supported yet", hint=f"Leave it out; {UNSUPPORTED[name].instead}.")

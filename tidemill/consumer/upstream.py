"""The consumer's source: brokers and topics, from flags or from a kafka:// URI as in TiCDC's consumers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from tidemill.config.kafka import KafkaOptions
from tidemill.config.uri import parse_sink_uri
from tidemill.consumer.reading import AUTO, parse_protocol
from tidemill.errors import ConfigError, redact
from tidemill.protocols.options import MessageFormat
from tidemill.rules.topics import check_topic

_SCHEMES = ("kafka", "kafka+ssl")
_PLACEHOLDERS = re.compile(r"\{(?:schema|table)\}", re.IGNORECASE)
_ANY_TOPIC = "tidemill-consumer"


@dataclass(frozen=True, slots=True)
class Upstream:
    """The source. `topics` are names; `patterns` also match topics that appear later.

    `protocol`: None if it is decided for each message. `partition_num`: read only the first partitions of each topic, because the writer
    uses no others. `claim_check_uri`: the storage of messages that were too large.
    """

    kafka: KafkaOptions
    topics: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    protocol: MessageFormat | None = None
    partition_num: int | None = None
    max_message_bytes: int = 10 << 20
    claim_check_uri: str = ""
    warnings: tuple[str, ...] = ()

    def wants(self, topic: str) -> bool:
        """Return whether a topic is read."""
        return topic in self.topics or any(pattern.fullmatch(topic) for pattern in self.patterns)

    def absent(self, there: Set[str]) -> tuple[str, ...]:
        """Return the named topics that are missing, and the patterns that match no topic."""
        patterns = (pattern for pattern in self.patterns if not any(pattern.fullmatch(topic) for topic in there))
        return (*(topic for topic in self.topics if topic not in there), *(pattern.pattern for pattern in patterns))

    @property
    def names(self) -> str:
        """The topics and patterns in one text."""
        return ",".join([*self.topics, *(pattern.pattern for pattern in self.patterns)])

    def __str__(self) -> str:
        return f"{self.names} at {','.join(self.kafka.hosts)}"


def topic_pattern(text: str) -> re.Pattern[str] | None:
    """Return the pattern for `^…` (a regular expression) or `{schema}_{table}` (a topic expression), or None for a plain name.

    Raises ConfigError.
    """
    if text.startswith("^"):
        try:
            return re.compile(text)
        except re.error as error:
            raise ConfigError(f"--topic {text}: it is not a regular expression: {error}") from None
    if _PLACEHOLDERS.search(text):
        pieces = _PLACEHOLDERS.split(text)
        return re.compile("[A-Za-z0-9._-]+".join(map(re.escape, pieces)))
    try:
        check_topic(text)
    except ValueError as error:
        raise ConfigError(f"--topic {text}: {error}", hint="A pattern begins with ^, or has {schema} or {table} in it.") from None
    return None


def upstream(uri: str, topics: Sequence[str], *, to_show: bool = False) -> Upstream:
    """Return the source for `kafka://HOST:PORT[,…]/[TOPIC[,TOPIC…]]?protocol=…` and more topics. Raises ConfigError.

    `to_show`: protocols that can only be shown are taken, too.
    """
    try:
        parts = urlsplit(uri.strip())
    except ValueError as error:
        raise ConfigError(f"upstream {redact(uri)}: {error}") from None
    if parts.scheme not in _SCHEMES:
        raise ConfigError(f"upstream {redact(uri)}: it has to begin with kafka:// or kafka+ssl://")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    protocol = parse_protocol(given.pop("protocol", AUTO), to_show=to_show)
    for name in ("version", "consumer-group-id"):  # TiCDC's consumers take them; they have no effect here
        given.pop(name, None)
    claim_check_uri = given.pop("claim-check-storage-uri", "")
    # All other parameters are also those of a sink: the connection to the brokers.
    query = urlencode({**given, "protocol": "open-protocol"}, quote_via=quote)
    sink = parse_sink_uri(f"{parts.scheme}://{parts.netloc}/{_ANY_TOPIC}?{query}")
    return _with_topics(
        [*filter(None, unquote(parts.path).lstrip("/").split(",")), *topics],
        Upstream(
            sink.broker, (), (), protocol, sink.partition_num, sink.max_message_bytes, claim_check_uri, sink.warnings
        ),
    )  # fmt: skip


def _with_topics(names: Iterable[str], made: Upstream) -> Upstream:
    topics: list[str] = []
    patterns: list[re.Pattern[str]] = []
    for name in names:
        pattern = topic_pattern(name)
        if pattern is None:
            topics.append(name)
        else:
            patterns.append(pattern)
    if not topics and not patterns:
        raise ConfigError("no topic to read", hint="Give --topic, or name topics in the path of --upstream-uri.")
    return Upstream(
        made.kafka, tuple(dict.fromkeys(topics)), tuple(patterns), made.protocol, made.partition_num, made.max_message_bytes,
        made.claim_check_uri, made.warnings,
    )  # fmt: skip

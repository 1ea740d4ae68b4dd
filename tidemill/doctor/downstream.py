"""The sink: whether it answers, takes the credentials, and has what a delivery needs. Nothing is made there. Does IO."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tidemill.config.parameters import Scheme
from tidemill.config.uri import SinkUri
from tidemill.doctor.findings import Finding, bad, doubtful, good, of_error
from tidemill.errors import TidemillError
from tidemill.protocols.all import spec_of

_RIGHTS = ("INSERT", "UPDATE", "DELETE", "SELECT", "CREATE", "DROP", "ALTER", "INDEX")


def downstream(sink: SinkUri) -> Iterator[Finding]:
    """Look at a sink."""
    for warning in sink.warnings:
        yield doubtful("sink uri", warning, "See `tidemill config check`.")
    if sink.protocol is not None and spec_of(sink.protocol).uses_registry:
        yield _registry(sink)
    try:
        if sink.spec.doctor:
            yield from sink.spec.load(sink.spec.doctor)(sink)
        else:
            yield good("sink", f"{sink.scheme}:// needs nothing")
    except (TidemillError, OSError) as error:
        yield of_error("sink", error, "Are address and credentials right, and is the way there open?")


def _registry(sink: SinkUri) -> Finding:
    from tidemill.registry.registrar import open_registrar

    try:
        with closing(open_registrar(sink.encoding)) as registrar:
            registrar.meet()
    except (TidemillError, OSError) as error:
        return of_error("schema registry", error, "Is schema-registry the address of a registry with Confluent's API?")
    return good("schema registry", "answers")


def kafka(sink: SinkUri) -> Iterator[Finding]:
    """Look at the broker and the topic."""
    from tidemill.sinks.kafka.driver import KafkaDriverSink

    assert sink.kafka is not None
    with closing(KafkaDriverSink(sink)) as driver:
        there = driver.existing({sink.topic})
        yield good("kafka", "answers and takes the credentials")
        count = there.get(sink.topic)
        if count is None:
            if sink.kafka.auto_create_topic:
                yield good("topic", f"{sink.topic} is not there yet; a changefeed makes it")
            else:
                yield bad("topic", f"{sink.topic} is not there", "Make it, or leave out auto-create-topic=false.")
            return
        wanted = sink.partition_num or count
        if wanted > count:
            yield bad("topic", f"{sink.topic} has {count} partitions, partition-num is {wanted}", "Lower partition-num, or add partitions.")
        else:
            yield good("topic", f"{sink.topic} with {count} partitions")
        limit = driver.message_limits({sink.topic}).get(sink.topic)
        if limit is not None and limit < sink.max_message_bytes:
            yield doubtful(
                "message size",
                f"the topic takes {limit:,} bytes, max-message-bytes is {sink.max_message_bytes:,}: the smaller one counts",
                "Raise max.message.bytes of the topic, or set large-message-handle-option.",
            )


def database(sink: SinkUri) -> Iterator[Finding]:
    """Look at the database, and at what the user may do there."""
    from tidemill.sinks.mysql.connection import Connection, ServerFault

    options = sink.database
    try:
        with closing(Connection(options)) as connection:
            ((version, packet, read_only, user),) = connection.rows(
                "SELECT VERSION(), @@GLOBAL.max_allowed_packet, @@GLOBAL.read_only, CURRENT_USER()"
            )
            yield good("database", f"{version} takes {user}")
            if str(read_only).upper() in ("1", "ON"):
                yield bad("database", "it is read-only", "Name the primary server, or SET GLOBAL read_only = OFF.")
            if int(packet) < 1 << 20:
                yield doubtful("max_allowed_packet", f"{packet} bytes", "Set it to 16 MiB or more, or long rows are refused.")
            yield _rights([str(row[0]) for row in connection.rows("SHOW GRANTS")])
    except ServerFault as fault:
        yield of_error("database", fault.error(f"{options.host}:{options.port}"), "Are address, user and password right?")


def _rights(grants: list[str]) -> Finding:
    """Whether the user may do what is needed somewhere: rights on single databases are not added up."""
    told = " ".join(grants).upper()
    lacking = [] if "ALL PRIVILEGES" in told else [right for right in _RIGHTS if right not in told]
    if lacking:
        return doubtful("rights", f"no grant names {', '.join(lacking)}", "GRANT them on the replicated databases and on tidb_cdc.*.")
    return good("rights", "rows and DDLs may be written")


def folder_or_bucket(sink: SinkUri) -> Iterator[Finding]:
    """Look at a folder, or a bucket."""
    if sink.storage is not None and sink.storage.s3 is not None:
        from tidemill.sinks.storage.store import S3Store

        S3Store(sink.storage.s3, sink.path).read("metadata")
        yield good("sink", "the bucket answers")
    else:
        yield _folder(Path(sink.path))


def _folder(path: Path) -> Finding:
    existing = next(one for one in (path, *path.parents) if one.exists())
    if os.access(existing, os.W_OK):
        return good("sink", f"{existing} can be written")
    return bad("sink", f"{existing} cannot be written by this user", "Name another folder, or give this user the right to write there.")


def lake(sink: SinkUri) -> Iterator[Finding]:
    """Look at a folder or a bucket of tables, or at their catalog."""
    if sink.scheme != Scheme.ICEBERG:
        yield from folder_or_bucket(sink)
        return
    from tidemill.sinks.lake.open import store_of, tables_of

    tables = tables_of(sink, store_of(sink))
    tables.exists(tables.place("tidemill", "doctor"))
    yield good("sink", "the catalog answers")

"""Options of verbs that read topics: which ones, where, and how their messages are read."""

from __future__ import annotations

from typing import Annotated

import typer

TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", help="A topic, an expression such as {schema}_{table}, or a regular expression ^…. May be repeated."),
]
KafkaOption = Annotated[str | None, typer.Option("--kafka", help="Brokers: HOST:PORT[,HOST:PORT…].")]
UpstreamOption = Annotated[
    str | None,
    typer.Option("--upstream-uri", help="Instead of --kafka: kafka://HOST:PORT/TOPIC?protocol=…, with TLS and SASL as in a sink."),
]
ProtocolOption = Annotated[str, typer.Option("--protocol", help="open-protocol, canal-json, or auto: look at each message.")]
PartitionNumOption = Annotated[
    int | None,
    typer.Option("--partition-num", min=1, help="Read only the first N partitions of each topic: the partition-num of the changefeed."),
]
ClaimCheckOption = Annotated[
    str | None, typer.Option("--claim-check-storage-uri", help="Where messages lie that were too large for the topic.")
]

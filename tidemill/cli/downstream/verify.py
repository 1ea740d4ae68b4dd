"""`tidemill verify topic`: check a topic against the guarantees of its protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemill.cli.shared.terminal import echo
from tidemill.cli.shared.topics import ClaimCheckOption, KafkaOption, PartitionNumOption, ProtocolOption, TopicOption, UpstreamOption

app = typer.Typer(help="Check what was delivered against the guarantees.", no_args_is_help=True)


@app.callback()
def _verify() -> None:
    """Check what was delivered against the guarantees."""


@app.command("topic")
def topic_command(
    topic: TopicOption = None,
    kafka: KafkaOption = None,
    upstream_uri: UpstreamOption = None,
    protocol: ProtocolOption = "auto",
    partition_num: PartitionNumOption = None,
    claim_check: ClaimCheckOption = None,
    by_ts: Annotated[bool, typer.Option("--by-ts", help="Rows are dispatched by ts: a row's events may be in any partition.")] = False,
) -> None:
    """Read topics to their present ends and check five guarantees. Ends with 1 if one is broken.

    They are: first deliveries in commit order; DDLs and resolved ts in all partitions; all events of a row in one partition; nothing new
    at or below a resolved ts; one event for each row and transaction.
    """
    from tidemill.cli.downstream.consume import fetch_of, upstream_of
    from tidemill.verify.guarantees import Guarantee
    from tidemill.verify.topics import check_topics

    upstream = upstream_of(upstream_uri, kafka, topic or [], protocol, partition_num, claim_check)
    found = check_topics(upstream, fetch_of(upstream.claim_check_uri), homes=not by_ts)
    echo(f"{found.rows} rows, {found.ddls} DDLs and {found.resolved} resolved events, {found.repeats} repeats")
    for problem in found.problems:
        echo(str(problem))
    for guarantee in Guarantee:
        word = f"broken {found.broken[guarantee]} times" if found.broken[guarantee] else "holds"
        echo(f"{guarantee.value}. {guarantee.name.lower().replace('_', '-')}: {word}")
    if found.broken:
        raise typer.Exit(1)

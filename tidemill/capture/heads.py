"""The heads of a log as a capture finds them when it begins."""

from __future__ import annotations

from tidemill import tso
from tidemill.changelog.log_format import HEAD, folders
from tidemill.changelog.reader import LogReader, read_head
from tidemill.errors import LogCorrupt, redact


def durable_heads(reader: LogReader) -> list[int]:
    """Return the durable heads of the schema stream and of all partitions."""
    return [reader.durable_head(folder) for folder in folders(reader.partitions)]


def check_heads(reader: LogReader, now: int) -> None:
    """Check that no head is beyond `now` (a TSO): changes that are still to come would count as delivered. Raises LogCorrupt."""
    for folder in folders(reader.partitions):
        head = read_head(reader.storage, folder) or 0
        if head > now:
            raise LogCorrupt(
                f"{redact(reader.storage.path(folder))}/{HEAD} is complete up to {tso.describe(head)}, in the cluster's future: "
                f"it is {tso.describe(now)} there",
                hint="The file was changed by hand, or the cluster was restored to an older state: start a new log.",
            )

"""What Open Protocol says besides rows: DDLs and resolved events, on every partition."""

from __future__ import annotations

from tidemill.events import DdlEvent
from tidemill.protocols.open import encode
from tidemill.protocols.options import EncodingOptions


class OpenWords:
    """See `protocols.messages.Words`."""

    ddl_on_first_partition = False

    def ddl_message(self, event: DdlEvent) -> tuple[bytes, bytes | None] | None:
        return encode.ddl_message(event)

    def resolved_message(self, ts: int) -> tuple[bytes, bytes | None] | None:
        return encode.resolved_message(ts)


def words(options: EncodingOptions) -> OpenWords:
    """The words of a changefeed."""
    return OpenWords()

"""The protocol `tabs`: a row is its operation and its values with tabs between them, a DDL its text, a resolved ts its number.

The row encoder has a program without steps, so each row is encoded by `value_of`, in Python. A program that the kernels run makes it fast;
`tidemill/kernels/canal_json/program.py` shows one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord
from tidemill.kernels.templates.encoder import TextRowEncoder, Texts
from tidemill.kernels.templates.program import TextProgram
from tidemill.protocols.common.messages import KeyValue
from tidemill.protocols.options import EncodingOptions
from tidemill.protocols.spec import ProtocolSpec
from tidemill.tidb.rows.reader import RowReader
from tidemill.tidb.schema.events import DdlEvent

TABS = ProtocolSpec(
    format="tabs",
    spellings=("tabs",),
    options=(),
    encoder="tidemill_sink_example.protocol:TabsEncoder",
    reference="tidemill_sink_example.protocol",
    control="tidemill_sink_example.protocol:TabsControl",
    decoder="tidemill_sink_example.protocol:decode",
    no_columns="its values have no types",
)


class TabsEncoder(TextRowEncoder):
    """A message for each row."""

    def __init__(self, programs: Sequence[TableProgram], options: EncodingOptions) -> None:
        super().__init__(programs, options, [TextProgram(program) for program in programs], Texts())
        self._readers = [RowReader(program.info, program.zone, json=program.json) for program in programs]

    def value_of(self, record: RawRecord, now_ms: int) -> bytes:
        image = record.value or record.old_value or b""
        cells = self._readers[record.table].read(record.key, image)
        op = "-" if not record.value else "+" if not record.old_value else "="
        texts = [cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell) for cell in cells]
        return "\t".join([op, *texts]).encode()


class TabsControl:
    """The messages besides rows."""

    ddl_on_first_partition = True

    def __init__(self, options: EncodingOptions) -> None: ...

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        return None, f"! {event.query}".encode()

    def resolved_message(self, ts: int) -> KeyValue | None:
        return None, f"@ {ts}".encode()


def decode(key: bytes | None, value: bytes) -> list[str]:
    """Return the fields of a message."""
    return value.decode().split("\t")

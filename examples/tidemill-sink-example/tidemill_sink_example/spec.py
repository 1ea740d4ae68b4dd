"""The sink's spec. It is loaded with the first sink URI of its scheme, so it imports nothing that the sink needs."""

from __future__ import annotations

from tidemill.config import values
from tidemill.config.parameters import Parameter
from tidemill.config.sinks import SinkSpec

JOURNAL = SinkSpec(
    name="journal",
    schemes=frozenset({"journal"}),
    task="tidemill_sink_example.sink:JournalTask",
    driver="tidemill_sink_example.sink:JournalDriver",
    parameters=(Parameter("mark", values.any_text, "-", "what each line begins with"),),
    doctor="tidemill_sink_example.sink:look",
    keeps_parts=False,
)

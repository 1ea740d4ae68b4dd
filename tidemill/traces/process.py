"""The traces of this process: begun once, beside the log, ended with the process. What is traced asks `tracer` for where spans go.

Nothing of OpenTelemetry is imported unless the environment asks for traces. What is wrong with its settings is a warning and no error: they
are often given to all programs of a machine, and no changefeed ends for them.
"""

from __future__ import annotations

import atexit
import logging
import os
from typing import Protocol

from tidemill.errors import redact
from tidemill.extras import ExtraMissing
from tidemill.traces.settings import PROTOCOL, Asked, asked
from tidemill.traces.span import Parent, Span

log = logging.getLogger(__name__)


class Tracer(Protocol):
    """Where spans go."""

    def send(self, span: Span, parent: Parent | None = None) -> None:
        """Take a span that has ended, with all below it. Returns at once, and raises nothing: a span may be dropped."""

    def close(self) -> None:
        """Send what waits, for a short while."""


_tracer: Tracer | None = None


def tracer() -> Tracer | None:
    """Return where this process sends spans; None: nowhere."""
    return _tracer


def begin(part: str) -> None:
    """Begin to trace if the environment asks for it. `part`: what this process is, as in the log. To be called after `logs.setup`."""
    global _tracer
    found, setting = asked(os.environ)
    if found is Asked.OFF or _tracer is not None:
        return
    if found is Asked.UNKNOWN:
        log.warning("no traces are sent: of exporters there is otlp with %s, and the environment has %s", PROTOCOL, redact(setting))
        return
    try:
        from tidemill.traces.otlp import OtlpTracer

        _tracer = OtlpTracer(part)
    except (ExtraMissing, ValueError, OSError) as error:
        log.warning("no traces are sent, although the environment asks for them: %s", redact(str(error)))
        return
    atexit.register(end)


def end() -> None:
    """Send what waits, for a short while. For processes that end without Python's own end; a second call does nothing."""
    global _tracer
    ending, _tracer = _tracer, None
    if ending is not None:
        ending.close()

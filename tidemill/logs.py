"""Logging for all processes: one format, to stderr or a file, without secrets."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from types import TracebackType

from tidemill.errors import ConfigError, redact
from tidemill.visible import printable

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "warning": logging.WARNING, "error": logging.ERROR}

_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}
"""Levels as TiDB's programs write them."""
_LONGEST = 64 << 10
"""Characters of what is logged at once, with its traceback. Of a longer text the middle is left out."""


_thread = threading.local()


class _Formatter(logging.Formatter):
    """`[2026/11/21 10:01:41.108 +00:00] [INFO] [capture.regions] message`, with addresses redacted."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone()
        offset = f"{moment:%z}"
        return f"{moment:%Y/%m/%d %H:%M:%S}.{moment.microsecond // 1000:03d} {offset[:3]}:{offset[3:]}"

    def format(self, record: logging.LogRecord) -> str:
        record.level = _NAMES.get(record.levelname, record.levelname)
        record.thread_name = getattr(_thread, "shown", "")
        text = super().format(record)
        if len(text) > _LONGEST:
            half = _LONGEST // 2
            text = f"{text[:half]} … {len(text) - 2 * half} characters are left out … {text[-half:]}"
        return printable(redact(text))


def setup(level: str = "info", file: str | Path | None = None, *, part: str = "") -> None:
    """Send Tidemill's log to a file or stderr. `part` names the process, for log files that several processes share.

    A file is appended to, one write per line, so processes may share it. A file that was moved away (rotated) is opened again.

    Raises ConfigError for an unknown level or a file that cannot be opened.
    """
    if level.lower() not in LEVELS:
        raise ConfigError(f"log level {level!r} is unknown", hint=f"Use one of {', '.join(LEVELS)}.")
    try:
        handler: logging.Handler = WatchedFileHandler(file, encoding="utf-8") if file else logging.StreamHandler(sys.stderr)
    except OSError as error:
        raise ConfigError(f"log file {file}: {error.strerror}") from error
    where = f"[{part}] " if part else ""
    handler.setFormatter(_Formatter(f"[%(asctime)s] [%(level)s] {where}%(thread_name)s[%(name)s] %(message)s"))
    logger = logging.getLogger("tidemill")
    logger.handlers[:] = [handler]
    logger.setLevel(LEVELS[level.lower()])
    logger.propagate = False
    sys.excepthook = _note_exception if file else sys.__excepthook__


def set_level(level: str) -> None:
    """Change the level. Raises ConfigError for an unknown one."""
    if level.lower() not in LEVELS:
        raise ConfigError(f"log level {level!r} is unknown", hint=f"Use one of {', '.join(LEVELS)}.")
    logging.getLogger("tidemill").setLevel(LEVELS[level.lower()])


class _Listener(logging.Handler):
    """Gives each line of the log to somebody."""

    def __init__(self, heard: Callable[[str], None], formatter: logging.Formatter | None) -> None:
        super().__init__()
        self.heard = heard
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        self.heard(self.format(record))


def listen(heard: Callable[[str], None]) -> None:
    """Call something with each line of this process's log from now on, in the thread that logs, and with what `relay` passes on. Lines come
    as in the log: redacted. Call it after `setup`, which ends it."""
    logger = logging.getLogger("tidemill")
    logger.addHandler(_Listener(heard, next((handler.formatter for handler in logger.handlers), None)))


def relay(lines: Sequence[str]) -> None:
    """Write lines of another process's log to stderr, and give them to whoever listens."""
    for line in lines:
        sys.stderr.write(line + "\n")
    sys.stderr.flush()
    for handler in logging.getLogger("tidemill").handlers if lines else ():
        if isinstance(handler, _Listener):
            handler.heard(redact("\n".join(lines)))


def name_thread(name: str) -> None:
    """Show a name in each line that the calling thread logs."""
    _thread.shown = f"[{name}] "


def note_in_file(text: str) -> None:
    """Write text that went to stderr to the log too, if the log is a file: it must not end without a reason."""
    if any(isinstance(handler, WatchedFileHandler) for handler in logging.getLogger("tidemill").handlers):
        logging.getLogger("tidemill").error("%s", text)


def _note_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report an unexpected exception in the log and on stderr."""
    if not issubclass(kind, KeyboardInterrupt):
        logging.getLogger("tidemill").error("ends with an unexpected error", exc_info=(kind, error, trace))
    sys.__excepthook__(kind, error, trace)

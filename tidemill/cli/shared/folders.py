"""Folders that flags name."""

from __future__ import annotations

import os
from pathlib import Path

from tidemill.changelog.storage.durable import make_folder
from tidemill.errors import ConfigError, SystemFailed

_HINT = "Name a folder that this user can make and write."


def made_folder(flag: str, folder: Path) -> None:
    """Make the folder of a flag. One whose disk is away for the moment is left to those who wait for it. Raises ConfigError naming the
    flag."""
    try:
        make_folder(folder)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or not SystemFailed.of(error).retryable:  # its parents were made: nothing else can make it
            why = f"{error.filename} is a file" if isinstance(error, FileExistsError) else error.strerror
            raise ConfigError(f"{flag} {folder} cannot be made: {why}", hint=_HINT) from error
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{flag} {folder} cannot be written by this user", hint=_HINT)

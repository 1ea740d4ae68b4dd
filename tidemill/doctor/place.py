"""The place of the change log: free or ours, writable, with room. Does IO."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage

from tidemill.changelog.log_format import IDENTITY
from tidemill.changelog.options import LogOptions
from tidemill.changelog.ownership import check_free
from tidemill.changelog.place import check_place
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import RemoteStorage, Storage, open_storage
from tidemill.doctor.findings import Finding, bad, doubtful, good, of_error
from tidemill.errors import TidemillError

_ROOM = 10 << 30


def place(location: str) -> Iterator[Finding]:
    """Look at --log."""
    try:
        storage = open_storage(location)
        if storage.read(IDENTITY) is None:
            check_place(storage)
            yield good("log", "there is none yet; the place can be written")
        else:
            reader = LogReader(storage)
            yield good("log", f"of cluster {reader.identity.cluster_id}, {reader.partitions} partitions")
            check_free(storage)
    except (TidemillError, OSError) as error:
        yield of_error("log", error, "Name a folder, or a URL such as s3://BUCKET/FOLDER, that this user may write to.")
        return
    if isinstance(storage, RemoteStorage):
        yield _conditional(storage)
    if storage.local:
        yield room("disk of --log", Path(storage.location))


def _conditional(storage: Storage) -> Finding:
    try:
        if storage.can_swap:
            return good("object store", "takes conditional writes: writers are kept apart")
    except (TidemillError, OSError) as error:
        return of_error("object store", error)
    return doubtful(
        "object store", "takes no conditional writes", "Never start a second capture of this log before the first one is stopped."
    )


def room(subject: str, folder: Path) -> Finding:
    """Whether there is space. The folder need not be there yet."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = disk_usage(existing).free
    least = LogOptions().low_water_bytes
    text = f"{free / (1 << 30):.1f} GiB free at {existing}"
    if free < least:
        return bad(subject, text, f"Below {least >> 20} MiB a capture pauses. Make room, or choose another place.")
    return good(subject, text) if free >= _ROOM else doubtful(subject, text, "A log of a busy cluster grows by gigabytes an hour.")

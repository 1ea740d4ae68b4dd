"""How far a batch with DDLs is: `.tidemill/batch.json`. With it a batch that is run again repeats no step, and one of the past takes none.

    {"format":1,"epoch":…,"ts":…,"done":…,"tables":[…],"gone":[…]}

A driver of `epoch` has taken the tables over. The rows up to `ts` are in the tables, and so are `done` steps of the DDLs there. `tables`
and `gone` are what differs from the newest manifest. Without `ts` nothing is known of a batch. Invariants:

 1. The note changes by compare-and-swap, and its epoch never falls. A driver writes it first and checks the fence then, so whoever was
    replaced writes no more.
 2. It says that the rows are there before the first DDL begins, and names the versions that the tables have then. So a step reads what was
    there before it, however far an earlier driver has come with it, or still comes.
 3. A step may be taken again until the note counts it (`Tables`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace

from tidemill import statefile
from tidemill.errors import SinkUnavailable
from tidemill.sinks import owner
from tidemill.sinks.base import FenceCheck
from tidemill.sinks.lake.base import Stamp
from tidemill.sinks.lake.manifest import Name, TableAt
from tidemill.sinks.storage import paths
from tidemill.sinks.storage.store import Store

NOTE = f"{paths.FOLDER}/batch.json"


@dataclass(frozen=True, slots=True)
class _Note:
    epoch: int = 0
    ts: int = 0
    done: int = 0
    tables: tuple[TableAt, ...] = ()
    gone: tuple[Name, ...] = ()

    def to_json(self) -> bytes:
        batch = {"ts": self.ts, "done": self.done, "tables": [asdict(at) for at in self.tables], "gone": self.gone} if self.ts else {}
        return json.dumps({"format": 1, "epoch": self.epoch, **batch}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes | None, where: str) -> _Note:
        if data is None:
            return cls()
        fields = statefile.read(data, where, owner.NOTE)
        note = cls(fields.integer("epoch", 0, 1 << 62))
        if "ts" not in fields:
            return note
        tables = tuple(TableAt.of(entry) for entry in fields.parts("tables"))
        return replace(note, ts=fields.integer("ts"), done=fields.integer("done"), tables=tables, gone=tuple(fields.text_pairs("gone")))


@dataclass
class BatchProgress:
    """Reads and writes the note. Its calls raise SinkError, SinkUnavailable, Fenced. `done`: steps of the batch's DDLs that are done."""

    store: Store
    done: int = 0
    _base: Mapping[Name, TableAt] = field(default_factory=dict)
    _note: _Note = field(default_factory=_Note)

    def claim(self, epoch: int, check_fence: FenceCheck) -> None:
        """Take the tables over: drivers of earlier epochs begin no DDL any more."""
        self._note = self._change(epoch, check_fence, lambda note: replace(note, epoch=epoch))
        check_fence(now=True)

    def begin(self, ts: int, base: Mapping[Name, TableAt]) -> dict[Name, TableAt] | None:
        """Begin a batch up to a ts over the tables of the newest manifest. Returns the tables as they are now if its rows are in them."""
        self._base, self.done = dict(base), 0
        if self._note.ts != ts:
            return None
        self.done = self._note.done
        kept = {name: at for name, at in base.items() if name not in self._note.gone}
        return kept | {at.name: at for at in self._note.tables}

    def note(self, stamp: Stamp, done: int, tables: Mapping[Name, TableAt]) -> None:
        """Note that the batch's rows and so many steps of its DDLs are in the tables."""
        changed = tuple(at for name, at in tables.items() if self._base.get(name) != at)
        gone = tuple(sorted(self._base.keys() - tables.keys()))
        note = _Note(stamp.epoch, stamp.resolved_ts, done, changed, gone)
        self._note = self._change(stamp.epoch, stamp.check_fence, lambda known: note)
        self.done = done

    def forget(self) -> None:
        """Forget a batch of an earlier replay."""
        self._note = _Note()
        self.store.delete(NOTE)

    def _change(self, epoch: int, check_fence: FenceCheck, change: Callable[[_Note], _Note]) -> _Note:
        where = f"{self.store}/{NOTE}"

        def changed(data: bytes | None) -> bytes:
            known = _Note.from_json(data, where)
            if known.epoch > epoch:
                check_fence(now=True)
                raise SinkUnavailable(
                    f"{self.store}: another driver, of epoch {known.epoch}, has taken the tables over; this is epoch {epoch}"
                )
            return change(known).to_json()

        return _Note.from_json(self.store.change(NOTE, changed), where)

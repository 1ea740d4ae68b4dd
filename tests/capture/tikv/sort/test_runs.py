"""A catch-up many times larger than memory: its scratch files need no descriptors, and many of them are merged."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.support.capture.captures import partition_changes
from tests.support.capture.eventfeeds import Row, message, resolved
from tidemill.capture.tikv.receive.ingest import Options, Receiver
from tidemill.capture.tikv.sort import partition
from tidemill.capture.tikv.sort.partition import PartitionLog
from tidemill.capture.tikv.sort.runs import BOUNCE, Merger, merge_runs, write_run
from tidemill.capture.tikv.sort.sorter import Sorter
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.writer import LogWriter
from tidemill.kernels.address import address
from tidemill.kernels.receive.layout import COMMIT, COMMITTED, INITIALIZED, PREWRITE, PUT, ROW, X_COUNT
from tidemill.process.descriptors import raise_limit
from tidemill.tidb.keys import record_key

START = 10
INIT = Row(type=INITIALIZED)


class CatchUp:
    """A receiver of two partitions, whose two regions are scanned."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder = folder
        self.writer = LogWriter.create(folder / "log", LogIdentity("1", START, 2), snapshot={})
        logs = [PartitionLog(self.writer.partition(p), folder, slice_rows=500) for p in range(2)]
        self.receiver = Receiver(logs, folder, lambda events: None, options=options)
        self.receiver._next_seal = float("inf")
        for region in (1, 2):
            self.receiver.place(region, START, region - 1)
            self.receiver.subscribe(region, 0, region, 7, START, b"", b"", region - 1)

    def step(self, *messages: bytes) -> None:
        self.receiver.step([0] * len(messages), list(messages))

    def finish(self, ts: int) -> list[list[tuple[int, bytes, bytes | None]]]:
        """Seal up to `ts` and end. The rows of both partitions."""
        self.step(resolved(ts, 7, 1, 2))
        self.receiver._finish_spills(wait_for=True)
        self.receiver._seal(force=True)
        self.receiver._finish_seals(wait=True)
        matcher = self.receiver.matcher
        assert [log.head for log in self.receiver.logs] == [ts, ts]
        assert [log.runs for log in self.receiver.logs] == [0, 0]
        assert (matcher.count(X_COUNT), matcher.chunks.held()) == (0, 0)
        self.receiver.stop()
        self.writer.close()
        reader = LogReader(self.folder / "log")
        return [[(r.commit_ts, r.key, r.value) for r in partition_changes(reader, p, START, ts)] for p in range(2)]


def rows_of(random_: random.Random, n: int) -> list[Row]:
    """Committed rows in no order, in two tables, some twice."""
    made = [
        Row(type=COMMITTED, op_type=PUT, start_ts=ts - 1, commit_ts=ts, key=record_key(5, i), value=random_.randbytes(ts % 300 + 1))
        for i, ts in enumerate(random_.randrange(20, 2000) for _ in range(n))
    ]
    return made + random_.sample(made, n // 10)


@pytest.mark.parametrize("seed", range(4))
def test_what_went_to_disk_in_many_pieces_and_was_merged_is_in_the_log_once(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    options = Options(row_budget=1 << 14, most_runs=6, fan_in=random_.choice((2, 3, 5)))
    made = CatchUp(tmp_path, options)
    sent = {region: rows_of(random_, 1500) for region in (1, 2)}
    for rows in sent.values():
        random_.shuffle(rows)
    most = 0
    for at in range(0, 1650, 30):
        made.step(message(1, 7, sent[1][at : at + 30]), message(2, 7, sent[2][at : at + 30]))
        made.receiver.workers.wait(made.receiver.spilling.futures())
        most = max(most, sum(log.runs for log in made.receiver.logs))
        if at == 900:  # some of it is sealed in between
            made.step(message(1, 7, [INIT]), message(2, 7, [INIT]))
    assert made.receiver.spilling.merges > 0
    assert most <= options.most_runs + 4, "a merge is under way while others are written"
    found = made.finish(3000)
    for region, rows in sent.items():
        assert found[region - 1] == sorted({(r.commit_ts, r.key, r.value) for r in rows})


def test_runs_that_there_is_no_room_to_merge_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(partition, "merge_runs", full)
    made = CatchUp(tmp_path, Options(row_budget=1 << 14, most_runs=6, fan_in=3))
    sent = rows_of(random.Random(1), 1500)
    for at in range(0, 1650, 30):
        made.step(message(1, 7, sent[at : at + 30]))
        made.receiver.workers.wait(made.receiver.spilling.futures())
    assert made.receiver.spilling.merges > 0
    assert made.receiver.logs[0].runs > 6
    made.step(message(1, 7, [INIT]), message(2, 7, [INIT]))
    assert made.receiver.withheld == "", "memory has not run out"
    assert made.finish(3000)[0] == sorted({(r.commit_ts, r.key, r.value) for r in sent})


@pytest.mark.parametrize("seed", range(5))
def test_merging_is_sorting(tmp_path: Path, seed: int) -> None:
    """Rows at any addresses, against a plain sort."""
    random_ = random.Random(seed)
    keep = []

    def rows(n: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        made = np.zeros(n, ROW)
        for i in range(n):
            key = np.frombuffer(random_.randbytes(random_.randrange(1, 40)), np.uint8)
            keep.append(key)
            made[i]["key"], made[i]["key_len"] = address(key), len(key)
            made[i]["commit_ts"], made[i]["start_ts"] = random_.randrange(1, 50), random_.randrange(3)
        return made

    runs, expected = [], list[tuple[int, int, bytes]]()
    for chunk in range(random_.randrange(1, 9)):
        plan = Sorter(max_bytes=random_.choice((1 << 10, 1 << 20))).plan(rows(random_.randrange(1, 400)))
        run = write_run(tmp_path, plan, chunk)
        expected += told(run.rows)
        run.at = random_.randrange(len(run.rows) + 1)
        expected = expected[: len(expected) - len(run.rows)] + told(run.rows[run.at :])
        runs.append(run)
    merged = merge_runs(tmp_path, runs, 99)
    assert told(merged.rows) == sorted(expected)
    assert set(merged.rows["chunk"].tolist()) <= {99}
    assert list(tmp_path.iterdir()) == [], "scratch files have no name"
    merger = Merger([run.rows[run.at :] for run in runs])
    out, up_to, more = np.empty(7, ROW), list[tuple[int, int, bytes]](), True
    while more:
        part = out[: merger.next(25, out)]
        assert merger.bytes == sum(int(r["key_len"]) + int(r["value_len"]) + int(r["old_len"]) for r in part)
        up_to, more = up_to + told(part), len(part) == len(out)
    assert up_to == sorted(one for one in expected if one[0] <= 25)
    assert sum(merger.taken()) == len(up_to)


def told(rows: np.ndarray[tuple[int], np.dtype[np.void]]) -> list[tuple[int, int, bytes]]:
    import ctypes

    return [(int(r["commit_ts"]), int(r["start_ts"]), ctypes.string_at(int(r["key"]), int(r["key_len"]))) for r in rows]


MANY = """
import resource, sys
from pathlib import Path
from tests.capture.tikv.sort.test_runs import catch_up_in_small_pieces
catch_up_in_small_pieces(Path(sys.argv[1]))
"""


def catch_up_in_small_pieces(folder: Path) -> None:
    """Hundreds of scratch files, of rows and of prewrites, with only a few descriptors."""
    made = CatchUp(folder, Options(row_budget=1 << 12, prewrite_budget=1 << 13, most_runs=1 << 20))
    made.step(message(1, 7, [Row(type=COMMITTED, op_type=PUT, start_ts=11, commit_ts=12, key=record_key(4, 0), value=b"w")]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    n, value = 6000, b"v" * 100
    for at in range(0, n, 30):
        committed = [
            Row(type=COMMITTED, op_type=PUT, start_ts=20, commit_ts=30, key=record_key(5, i), value=value) for i in range(at, at + 30)
        ]
        prewrites = [Row(type=PREWRITE, op_type=PUT, start_ts=40, key=record_key(6, i), value=value) for i in range(at, at + 30)]
        made.step(message(1, 7, committed), message(2, 7, prewrites))
        made.receiver.workers.wait(made.receiver._on_the_way())
    assert made.receiver.logs[0].runs > 150
    assert len(made.receiver.prewrites._runs) > 50
    commits = [Row(type=COMMIT, op_type=PUT, start_ts=40, commit_ts=50, key=record_key(6, i)) for i in range(n)]
    for at in range(0, n, 300):
        made.step(message(2, 7, commits[at : at + 300]))
    made.step(message(1, 7, [INIT]), message(2, 7, [INIT]))
    found = made.finish(100)
    assert found[0] == [(12, record_key(4, 0), b"w"), *((30, record_key(5, i), value) for i in range(n))]
    assert found[1] == [(50, record_key(6, i), value) for i in range(n)]


@pytest.mark.slow
def test_scratch_files_need_no_descriptors(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MANY, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_scratch_folder_that_is_full_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    plan = Sorter().plan(np.zeros(1, ROW))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(write_run, tmp_path, plan, 1).result()
        before = len(list(Path("/proc/self/fd").iterdir()))
        monkeypatch.setattr("os.pwrite", full)
        for _ in range(20):
            with pytest.raises(OSError, match="No space left"):
                pool.submit(write_run, tmp_path, plan, 1).result()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


LIMIT = """
import logging, resource
from tidemill.process.descriptors import raise_limit
logging.basicConfig(level="INFO")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 300))
print(raise_limit(), raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_capture_takes_the_descriptors_that_it_may_have() -> None:
    done = subprocess.run([sys.executable, "-c", LIMIT], capture_output=True, text=True, check=True)
    assert done.stdout == "300 300 (300, 300)\n"
    assert done.stderr.count("up to 300 files and sockets may be open, not 64") == 1
    assert raise_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_what_lies_behind_the_last_row_on_disk_may_be_read(rows: int, tmp_path: Path) -> None:
    """Kernels copy in steps of 32 bytes: without padding, the last row of a file that ends with a page could not be read."""
    value = b"v" * 100
    data = np.frombuffer(b"k" * rows + value + bytes(64), np.uint8)
    records = np.zeros(rows, ROW)
    records["key"], records["value_d"] = address(data) + np.arange(rows), rows - np.arange(rows)
    records["commit_ts"], records["key_len"], records["value_len"] = 1 + np.arange(rows), 1, len(value)
    first = write_run(tmp_path, Sorter(max_bytes=BOUNCE).plan(records), 0)
    for run in (first, merge_runs(tmp_path, [first], 0)):
        assert np.asarray(run.files).nbytes >= rows * (ROW.itemsize + 1 + len(value)) + 31

"""A writer that was suspended in the middle of a request to an object store and given up, and what becomes of its request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.changelog.actors import Actor, at_gate
from tests.support.changelog.logs import START, Change, batch_of, changes_of, put
from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tidemill.changelog.log_format import LogIdentity, SegmentName
from tidemill.changelog.options import LogOptions
from tidemill.changelog.ownership import Owner
from tidemill.changelog.reader import LogReader, read_head
from tidemill.changelog.storage.conditional import Outcome
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter, Share
from tidemill.errors import LogError, LogFenced, LogUnavailable
from tidemill.tso import compose

OPTIONS = LogOptions(compact_rows=4, grace_s=0, low_water_bytes=0, retention_ms=0)
GROUP = Share(schema=False, partitions=frozenset({0}))
COORDINATOR = Share(schema=True, partitions=frozenset())
ROWS = [put(70, h, START + h) for h in range(1, 100)]


@pytest.fixture
def bucket() -> Bucket:
    bucket = Bucket()
    LogWriter.create(MemoryStorage(bucket), LogIdentity("1", START, 1), snapshot={}, options=OPTIONS).close()
    return bucket


def opened(bucket: Bucket, share: Share = GROUP) -> LogWriter:
    return LogWriter.open(MemoryStorage(bucket, at_gate), share=share, options=OPTIONS)


def publish(writer: LogWriter, end: int) -> None:
    """All rows up to START + `end`."""
    one = writer.partition(0)
    rows = [r for r in ROWS if one.head < r.commit_ts <= START + end]
    one.publish(START + end, [batch_of(rows)])


def stopped_before(what: str, work: Callable[[], Any]) -> Actor:
    """The work, up to the first request whose name begins like this."""
    actor = Actor(work)
    while not actor.stands_at.startswith(what):
        actor.step()
        assert not actor.is_over, actor.error
    return actor


def segment(from_ts: int, to_ts: int) -> str:
    return f"rows/0/{SegmentName(START + from_ts, START + to_ts)}"


def read(bucket: Bucket) -> list[Change]:
    reader = LogReader(MemoryStorage(bucket))
    chain = reader.chain(0, reader.start_ts, reader.head(0))
    return [c for i in chain for p in i.parts for c in changes_of(reader.open_segment(p).read_all())]


def faults(bucket: Bucket) -> list[str]:
    return [str(p) for p in verify(MemoryStorage(bucket)).problems if "schema history does not know" not in p.text]


def test_a_segment_that_was_announced_is_published_by_the_successor_and_its_late_put_changes_nothing(bucket: Bucket) -> None:
    old = opened(bucket)
    publish(old, 10)
    late = stopped_before("create", lambda: publish(old, 25))
    new = opened(bucket).partition(0)
    assert (new.last_to, new.pledged_to) == (START + 10, START + 25)
    with pytest.raises(LogError, match=f"has to end at {START + 25}, not {START + 30}"):
        new.publish(START + 30, [batch_of(ROWS[10:30])])
    new.set_head(START + 10)
    assert new.pledged_to == START + 25
    new.publish(START + 25, [batch_of([r]) for r in ROWS[10:25]])
    assert new.pledged_to is None
    content = bucket.content[segment(10, 25)]
    new.publish(START + 40, [batch_of(ROWS[25:40])])
    late.step()  # the request itself
    assert bucket.content[segment(10, 25)] == content
    with pytest.raises(LogFenced):
        late.finish()
    assert read(bucket) == ROWS[:40]
    assert faults(bucket) == []


def test_a_late_put_that_comes_before_the_successors_is_the_same_segment(bucket: Bucket) -> None:
    old = opened(bucket)
    late = stopped_before("create", lambda: publish(old, 25))
    new = opened(bucket)
    late.step()
    publish(new, 25)
    publish(new, 30)
    with pytest.raises(LogFenced):
        late.finish()
    assert read(bucket) == ROWS[:30]


def test_a_segment_that_is_there_binds_nobody(bucket: Bucket) -> None:
    old = opened(bucket)
    publish(old, 25)
    new = opened(bucket)
    assert new.partition(0).pledged_to is None
    publish(new, 26)


def test_a_crash_between_announcement_and_put_binds_all_successors(bucket: Bucket) -> None:
    first = opened(bucket)
    stopped_before("create", lambda: publish(first, 25)).kill()
    second = opened(bucket)
    late = stopped_before("create", lambda: publish(second, 25))
    third = opened(bucket).partition(0)
    assert third.pledged_to == START + 25
    third.publish(START + 25, [batch_of(ROWS[:25])])
    late.step()
    assert read(bucket) == ROWS[:25]
    assert faults(bucket) == []


def test_a_put_that_failed_binds_its_own_writer_too(bucket: Bucket) -> None:
    """It is unknown whether the request is done yet."""
    writer = opened(bucket)
    stopped_before("create", lambda: publish(writer, 25)).kill()
    assert writer.partition(0).pledged_to == START + 25
    with pytest.raises(LogError, match="has to end"):
        publish(writer, 26)
    publish(writer, 25)
    publish(writer, 26)
    assert read(bucket) == ROWS[:26]


def test_an_announced_interval_in_which_nothing_happened_is_published_empty_when_the_head_passes_it(bucket: Bucket) -> None:
    old = opened(bucket)
    publish(old, 10)
    late = stopped_before("create", lambda: old.partition(0).publish(START + 25, []))
    new = opened(bucket).partition(0)
    new.set_head(START + 24)
    assert (new.last_to, new.pledged_to) == (START + 10, START + 25)
    new.set_head(START + 60)
    assert (new.last_to, new.head, new.pledged_to) == (START + 25, START + 60, None)
    late.step()
    new.publish(START + 99, [batch_of(ROWS[60:])])
    assert read(bucket) == ROWS[:10] + ROWS[60:]
    assert faults(bucket) == []


def test_a_late_put_after_compaction_and_retention(bucket: Bucket) -> None:
    old = opened(bucket)
    late = stopped_before("create", lambda: publish(old, 2))
    new, coordinator = opened(bucket), opened(bucket, COORDINATOR)
    for end in (2, 4, 6, 8):
        publish(new, end)
    new.maintain(0)
    assert segment(0, 2) not in bucket.content
    late.step()  # inside what the successor joined
    assert segment(0, 2) in bucket.content
    assert read(bucket) == ROWS[:8]
    coordinator.schema.set_head(START + 20)
    coordinator.maintain(START + compose(1))
    assert LogReader(MemoryStorage(bucket)).start_ts == START + 8
    assert [n for n in bucket.content if n.startswith("rows/0/0")] == []
    publish(new, 12)
    bucket.put(segment(0, 2), b"whatever a late request brings")  # and once more, at or below the start
    assert read(bucket) == ROWS[8:12]
    assert opened(bucket).partition(0).last_to == START + 12
    assert faults(bucket) == []
    coordinator.maintain(START + compose(1))
    assert segment(0, 2) not in bucket.content


def test_a_join_that_was_announced_is_made_by_the_successor_before_it_makes_others(bucket: Bucket) -> None:
    old = opened(bucket)
    for end in (1, 3, 5, 7):
        publish(old, end)
    late = stopped_before("create rows/0", lambda: old.maintain(0))  # (0, 5]: five rows are enough
    assert late.stands_at == f"create {segment(0, 5)}"
    new = opened(bucket)
    for end in (9, 11):
        publish(new, end)
    new.maintain(0)
    assert {n for n in bucket.content if n.startswith("rows/0/0")} == {segment(0, 5), segment(5, 9), segment(9, 11)}
    late.step()
    assert read(bucket) == ROWS[:11]
    assert faults(bucket) == []
    with pytest.raises(LogFenced):
        publish(old, 13)


def test_while_an_announced_join_cannot_be_made_nothing_is_joined(bucket: Bucket) -> None:
    old = opened(bucket)
    for end in (1, 3, 5):
        publish(old, end)
    late = stopped_before("create rows/0", lambda: old.maintain(0))
    new = opened(bucket)
    bucket.content.pop(segment(0, 1))  # as retention does, when the log begins in the middle of the join
    coordinator = opened(bucket, COORDINATOR)
    coordinator.schema.set_head(START + 11)
    coordinator.schema.snapshot(START + 1, {})
    coordinator.set_identity(coordinator.identity.moved_to(START + 1))
    for end in (7, 9, 11):
        publish(new, end)
    segments = {segment(1, 3), segment(3, 5), segment(5, 7), segment(7, 9), segment(9, 11)}
    for _ in range(2):
        new.maintain(0)
        assert {n for n in bucket.content if n.startswith("rows/0/0")} == segments
    late.step()
    assert read(bucket)[-10:] == ROWS[1:11]
    new.maintain(0)
    assert {n for n in bucket.content if n.startswith("rows/0/0")} == {segment(0, 5), segment(5, 9), segment(9, 11)}
    assert faults(bucket) == []


def test_once_the_log_begins_behind_an_announced_join_others_are_made(bucket: Bucket) -> None:
    old = opened(bucket)
    for end in (1, 3, 5):
        publish(old, end)
    stopped_before("create rows/0", lambda: old.maintain(0)).kill()
    new, coordinator = opened(bucket), opened(bucket, COORDINATOR)
    for end in (7, 9, 11):
        publish(new, end)
    coordinator.schema.set_head(START + 11)
    coordinator.schema.snapshot(START + 5, {})
    coordinator.set_identity(coordinator.identity.moved_to(START + 5))
    for end in (1, 3, 5):
        bucket.content.pop(segment(max(end - 2, 0), end))
    new.maintain(0)
    assert {n for n in bucket.content if n.startswith("rows/0/0")} == {segment(5, 9), segment(9, 11)}
    assert read(bucket) == ROWS[5:11]


def test_a_head_does_not_go_back(bucket: Bucket) -> None:
    old = opened(bucket)
    late = stopped_before("swap rows/0/head.json", lambda: publish(old, 25))
    new = opened(bucket)
    publish(new, 40)
    with pytest.raises(LogFenced):
        late.finish()
    assert read_head(MemoryStorage(bucket), "rows/0") == START + 40


def test_a_late_head_is_true_and_a_lower_one_is_not_put_over_it(bucket: Bucket) -> None:
    old = opened(bucket)
    late = stopped_before("swap rows/0/head.json", lambda: old.partition(0).set_head(START + 40))
    new = opened(bucket).partition(0)
    late.step()
    new.set_head(START + 20)
    assert new.head == START + 40
    assert read_head(MemoryStorage(bucket), "rows/0") == START + 40
    new.set_head(START + 41)
    assert read_head(MemoryStorage(bucket), "rows/0") == START + 41


def test_log_json_does_not_go_back(bucket: Bucket) -> None:
    old = opened(bucket, COORDINATOR)
    late = stopped_before("swap log.json", lambda: old.declare(split_tables=[1]))
    new = opened(bucket, COORDINATOR)
    new.declare(split_tables=[2])
    with pytest.raises(LogFenced):
        late.finish()
    assert LogReader(MemoryStorage(bucket)).identity.split_tables == (2,)


def test_what_a_late_coordinator_wrote_is_read_by_the_one_that_takes_over(bucket: Bucket) -> None:
    old = opened(bucket, COORDINATOR)
    late = stopped_before("swap log.json", lambda: old.declare(split_tables=[1]))
    opening = stopped_before("get log.json", lambda: opened(bucket, COORDINATOR))
    late.step()
    opening.finish()
    opening.result.set_identity(opening.result.identity.moved_to(START + 1))
    identity = LogReader(MemoryStorage(bucket)).identity
    assert (identity.split_tables, identity.start_ts) == ((1,), START + 1)


@pytest.mark.parametrize("where", ["get schema/owner.json", "swap log.json"])
def test_a_coordinator_that_was_stopped_while_it_opened_does_not_get_log_json(bucket: Bucket, where: str) -> None:
    first = stopped_before("swap schema/owner.json", lambda: opened(bucket, COORDINATOR))
    while not first.stands_at.startswith(where):
        first.step()
    new = opened(bucket, COORDINATOR)
    with pytest.raises(LogFenced):
        first.finish()
    new.declare(split_tables=[2])


def test_an_answer_that_gets_lost_is_no_fence(bucket: Bucket) -> None:
    writer = opened(bucket)
    lost: list[str] = []

    def lose(what: str, name: str) -> Outcome | None:
        lost.append(name)
        return Outcome.UNKNOWN if len(lost) % 2 else None

    storage = writer.storage
    assert isinstance(storage, MemoryStorage)
    storage.objects.after = lose
    publish(writer, 10)
    publish(writer, 20)
    writer.partition(0).set_head(START + 30)
    assert set(lost) == {"rows/0/owner.json", "rows/0/head.json"}
    assert read(bucket) == ROWS[:20]


def test_an_announcement_that_failed_and_came_late_is_this_writers_own(bucket: Bucket) -> None:
    writer = opened(bucket)
    with pytest.raises(LogUnavailable, match="does not say"):
        _without_answers(writer, lambda: publish(writer, 10))
    owner = Owner.from_json(bucket.content["rows/0/owner.json"], "owner.json")
    bucket.put("rows/0/owner.json", Owner(owner.epoch, owner.writer, START + 10).to_json())  # now it comes
    publish(writer, 20)
    publish(writer, 30)
    assert read(bucket) == ROWS[:30]


def _without_answers(writer: LogWriter, work: Callable[[], None]) -> None:
    storage = writer.storage
    assert isinstance(storage, MemoryStorage)
    put, storage.objects.put = storage.objects.put, lambda *request: Outcome.UNKNOWN  # type: ignore[method-assign]
    try:
        work()
    finally:
        storage.objects.put = put  # type: ignore[method-assign]


def test_an_interval_in_parts_is_refused_where_it_cannot_be_announced(bucket: Bucket) -> None:
    with pytest.raises(LogError, match="one file"):
        opened(bucket).partition(0).publish_parts(START + 10, [[batch_of(ROWS[:5])], [batch_of(ROWS[5:10])]])


def test_an_owner_file_that_is_gone_fences(bucket: Bucket) -> None:
    writer = opened(bucket)
    bucket.content.pop("rows/0/owner.json")
    with pytest.raises(LogFenced, match=r"owner\.json is gone"):
        publish(writer, 10)

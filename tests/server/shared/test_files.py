"""What servers share: the lease, the list of servers, the changefeeds. On a file system, and where conditional writes decide."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tests.support.delivery.runs import await_that
from tests.support.delivery.saved import plan
from tests.support.servers.certificates import Authority, encrypt
from tests.support.servers.etcds import Etcd
from tidemill.capture.tikv.client.tls import Security
from tidemill.changelog.storage.open import LocalStorage, Storage
from tidemill.delivery.epoch_fence import Fence
from tidemill.errors import ConfigError, Fenced, LogCorrupt, LogFenced, UpstreamUnavailable
from tidemill.server.errors import NotOwner
from tidemill.server.feeds import FeedFiles
from tidemill.server.settings import FeedSettings
from tidemill.server.shared.etcd import EtcdKey, etcd_security
from tidemill.server.shared.file import SharedFile
from tidemill.server.shared.lease import Leases
from tidemill.server.shared.members import Member, Members
from tidemill.server.shared.records import FORMAT, NewerState, Record, Records


@pytest.fixture(params=("file system", "object store"))
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path / "log") if request.param == "file system" else MemoryStorage(Bucket())


def leases(storage: Storage, name: str) -> Leases:
    return Leases(SharedFile(storage, "lease.json"), name, f"{name}:8300", 5.0)


def test_one_of_two_takes_the_lease(storage: Storage) -> None:
    one, other = leases(storage, "one"), leases(storage, "other")
    assert one.look() is None
    mine = one.take(None)
    assert mine is not None
    assert (mine.term, mine.holder, mine.address) == (1, "one", "one:8300")
    assert other.take(None) is None
    seen = other.look()
    assert seen == mine
    renewed = one.renew(mine)
    assert renewed is not None
    assert other.take(seen) is None, "the holder was heard of since"
    taken = other.take(other.look())
    assert taken is not None
    assert taken.term == 2
    assert one.renew(renewed) is None
    one.free(renewed)
    assert one.look() == taken


@pytest.mark.slow
def test_a_real_etcd_keeps_the_lease(tmp_path: Path) -> None:
    etcd = Etcd(tmp_path)
    etcd.start()
    try:
        one, other = (Leases(EtcdKey(["127.0.0.1:9", etcd.address], "/tidemill/x", None), name, "", 5.0) for name in ("one", "other"))
        await_that(lambda: answers(one), "etcd answers")
        mine = one.take(None)
        assert mine is not None
        assert other.take(None) is None
        assert one.renew(mine) == replace(mine, beat=2)
        assert other.take(mine) is None
        taken = other.take(other.look())
        assert taken is not None
        assert (taken.term, one.renew(mine), one.look()) == (2, None, taken)
        etcd.kill()
        with pytest.raises(UpstreamUnavailable, match="does not answer"):
            one.look()
    finally:
        etcd.kill()


@pytest.mark.slow
def test_an_etcd_with_tls_is_reached_with_pds_certificates_as_they_are_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    own = authority.sign("etcd").write(tmp_path, "etcd")
    of_pd = Security(tmp_path / "ca.pem", *authority.sign("tidemill").write(tmp_path, "client"))
    etcd = Etcd(tmp_path, (*own, tmp_path / "ca.pem"))
    etcd.start()
    try:

        def key(address: str, security: Security | None) -> EtcdKey:
            return EtcdKey([address], "/tidemill/x", etcd_security([address], security))

        reached = Leases(key(etcd.address, of_pd), "one", "", 5.0)
        await_that(lambda: answers(reached), "etcd answers")
        assert answers(Leases(key(f"https://{etcd.address}", of_pd), "one", "", 5.0))
        assert not answers(Leases(key(f"http://{etcd.address}", of_pd), "one", "", 5.0))
        nameless = Security(tmp_path / "ca.pem")
        assert not answers(Leases(key(f"https://{etcd.address}", nameless), "one", "", 5.0)), "etcd wants a certificate"
        Authority("another").sign("tidemill").write(tmp_path, "client")
        assert not answers(reached), "the certificate was replaced"
        authority.sign("tidemill").write(tmp_path, "client")
        assert answers(reached)
        encrypt(tmp_path / "client.key", b"zq7")
        assert not answers(reached), "the key has a password now"
        (tmp_path / "password").write_text("zq7\n")
        monkeypatch.setenv("TIDEMILL_KEY_PASSWORD_FILE", str(tmp_path / "password"))
        assert answers(Leases(key(etcd.address, of_pd), "one", "", 5.0))
        assert answers(reached)
    finally:
        etcd.kill()


def test_how_an_etcd_is_reached() -> None:
    of_pd = Security(Path("ca.pem"))
    assert [etcd_security(["a:1", "b:1"], one) for one in (of_pd, None)] == [of_pd, None]
    assert [etcd_security(["https://a:1", "HTTPS://b:1"], one) for one in (of_pd, None)] == [of_pd, Security()]
    assert [etcd_security(["http://a:1"], one) for one in (of_pd, None)] == [None, None]
    for wrong in (["a:1", "https://b:1"], ["http://a:1", "https://b:1"], ["tls://a:1"]):
        with pytest.raises(ConfigError, match="--etcd"):
            etcd_security(wrong, of_pd)


def answers(found: Leases) -> bool:
    try:
        return found.look() is None
    except UpstreamUnavailable:
        return False


def test_a_beat_whose_answer_got_lost_is_followed_by_the_next(storage: Storage) -> None:
    one = leases(storage, "one")
    mine = one.take(None)
    assert mine is not None
    one.renew(mine)
    assert one.renew(mine) == replace(mine, beat=2)


def test_servers_are_there_while_their_beat_rises(storage: Storage) -> None:
    one, other = (Members(storage, Member(name, f"{name}:8300", "1.0", FORMAT), 5.0) for name in ("one", "other"))
    one.beat()
    other.beat()
    one.look(100.0)
    assert [member.id for member in one.present] == ["one", "other"]
    one.look(106.0)
    assert [member.id for member in one.present] == ["one"]
    other.beat()
    one.look(107.0)
    assert [member.address for member in one.present] == ["one:8300", "other:8300"]
    other.leave()
    one.look(108.0)
    assert [member.id for member in one.present] == ["one"]


def test_only_the_newest_term_changes_changefeeds(storage: Storage) -> None:
    old, new = Records(storage), Records(storage)
    assert old.take(1, "one") == (1, None)
    old.put("f", Record({"changefeed": "f"}, "normal"))
    assert new.take(1, "other") == (2, {"f": Record({"changefeed": "f"}, "normal")})
    with pytest.raises(NotOwner, match="term 2, this server led in term 1"):
        old.put("f", Record({"changefeed": "f"}, "stopped"))
    with pytest.raises(NotOwner):
        old.drop("f")
    with pytest.raises(NotOwner):
        old.flush()
    new.put("g", Record({"changefeed": "g"}, "failed", {"code": "x", "message": "y"}))
    assert sorted(Records(storage).read() or ()) == ["f", "g"]


def test_a_state_of_a_newer_format_is_refused_and_left_as_it_is(storage: Storage) -> None:
    Records(storage).take(1, "one")
    file = SharedFile(storage, "state.json")
    newer = json.dumps({"format": FORMAT + 1, "term": 7, "feeds": "otherwise"}).encode()
    file.change(lambda data: newer)
    for call in (Records(storage).read, lambda: Records(storage).take(9, "one")):
        with pytest.raises(NewerState, match=f"format {FORMAT + 1}: a newer version of Tidemill"):
            call()
    assert file.read() == newer


def test_fields_of_a_later_version_with_the_same_format_stay(storage: Storage) -> None:
    """Versions N and N+1 side by side: each may lead, and loses nothing of the other's."""
    one = Records(storage)
    one.take(1, "one")
    one.put("f", Record({"changefeed": "f", "later": 1}, "normal"))
    file = SharedFile(storage, "state.json")

    def later(data: bytes | None) -> bytes:
        found = json.loads(data or b"{}")
        found["balance"] = "even"
        found["feeds"]["f"]["place"] = "here"
        return json.dumps(found).encode()

    file.change(later)
    again = Records(storage)
    _, found = again.take(1, "one")
    assert found is not None
    again.put("f", replace(found["f"], state="stopped"))
    kept = json.loads(file.read() or b"")
    assert (kept["balance"], kept["feeds"]["f"]["place"], kept["feeds"]["f"]["state"]) == ("even", "here", "stopped")
    assert kept["feeds"]["f"]["settings"]["later"] == 1


def test_what_a_later_version_wrote_of_a_changefeed_outlives_a_change_by_this_one(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    first = FeedFiles(tmp_path / "one", log)
    first.take(1, "later version")
    first.create(settings("f"))

    def later(data: bytes | None) -> bytes:
        found = json.loads(data or b"{}")
        found["feeds"]["f"]["place"] = "here"
        found["feeds"]["f"]["settings"]["pace"] = 7
        return json.dumps(found).encode()

    file = SharedFile(LocalStorage(log), "state.json")
    file.change(later)
    files = FeedFiles(tmp_path / "other", log)
    _, (feed,) = files.take(2, "this version")
    feed.life.paused()
    files.save_state(feed)
    files.save(feed, replace(feed.settings, target_ts=900))
    kept = json.loads(file.read() or b"")["feeds"]["f"]
    assert (kept["place"], kept["settings"]["pace"], kept["settings"]["target_ts"], kept["state"]) == ("here", 7, 900, "stopped")


def test_a_broken_state_says_where(storage: Storage) -> None:
    SharedFile(storage, "state.json").change(lambda data: b"{")
    with pytest.raises(LogCorrupt, match=r"server/state\.json is not JSON"):
        Records(storage).read()


def test_other_users_cannot_read_it(tmp_path: Path) -> None:
    Records(LocalStorage(tmp_path / "log")).take(1, "one")
    assert stat.S_IMODE((tmp_path / "log/server").stat().st_mode) == 0o700


def settings(feed: str) -> FeedSettings:
    return FeedSettings(feed, "blackhole://", 100, 1.0, "1.0", "7")


def test_a_deposed_server_moves_no_checkpoint_and_takes_no_fence(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    old, new = FeedFiles(tmp_path / "one", log), FeedFiles(tmp_path / "other", log)
    old.take(1, "one")
    feed = old.create(settings("f"))
    driver = old.folder("f")
    fence = Fence(LocalStorage(log), "fences/f.json", term=1)
    driver.claim(fence.driver, fence.take())
    driver.save_checkpoint(200)
    _, (taken,) = new.take(1, "other")
    assert taken.checkpoint_ts == 200

    late: tuple[Callable[[], object], ...] = (
        lambda: driver.save_checkpoint(300),  # a batch that ends late
        lambda: fence.advance(plan(200, 300)),  # the next one
        lambda: Fence(LocalStorage(log), "fences/f.json", term=1).take(),  # a changefeed that begins late
        lambda: old.overwrite(feed, 300),  # what a person asked for
        lambda: old.create(settings("f")),
    )
    for call in late:
        with pytest.raises(Fenced):
            call()
    feed.life.paused()
    with pytest.raises(NotOwner):
        old.save_state(feed)
    assert new.folder("f").checkpoint() == 200


def test_a_changefeed_of_an_earlier_name_leaves_nothing(tmp_path: Path) -> None:
    files = FeedFiles(tmp_path / "one", str(tmp_path / "log"))
    files.take(1, "one")
    files.create(settings("f"))
    files.folder("f").save_checkpoint(500)
    assert files.create(replace(settings("f"), created_at=2.0)).checkpoint_ts == 100


def test_a_capture_of_an_earlier_term_cannot_take_the_log(storage: Storage) -> None:
    from tidemill.changelog.ownership import Ownership

    old = Ownership(storage, ["rows/0"], 1)
    Ownership(storage, ["rows/0"], 2)
    with pytest.raises(LogFenced), old.publishing_to("rows/0", 5):
        raise AssertionError("published")
    with pytest.raises(LogFenced, match="of term 2; the server of this process led in term 1"):
        Ownership(storage, ["rows/0"], 1)

"""The folder of a changefeed: what it was created with, its checkpoint, its lock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.s3 import make_bucket, s3_server
from tidemill.changefeed.feed_folder import FeedFolder, FeedIdentity, FeedLocked
from tidemill.changefeed.feed_status import Status
from tidemill.changefeed.states import State
from tidemill.config.file import parse_config
from tidemill.errors import FeedBroken, FeedMismatch, Fenced
from tidemill.tso import compose

__all__ = ["s3_server"]

IDENTITY = FeedIdentity("f", "17", "/log", "kafka://h:1/t", {"filter": {"rules": ["*.*"]}}, "UTC", 100)


def test_it_is_created_once(tmp_path: Path) -> None:
    folder = FeedFolder(tmp_path, "f")
    assert folder.identity() is None
    assert folder.settle(IDENTITY, start_given=True) == IDENTITY
    assert FeedFolder(tmp_path, "f").identity() == IDENTITY
    assert folder.settle(replace(IDENTITY, start_ts=500), start_given=False) == IDENTITY


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("cluster_id", "18", "the cluster"),
        ("log", "/other", "--log"),
        ("sink", "kafka://h:2/t", "--sink-uri"),
        ("tz", "Asia/Tokyo", "--tz"),
        ("start_ts", 101, "--start-ts"),
        ("config", {"filter": {"rules": ["a.*"]}}, r"--config \(filter\)"),
    ],
)
def test_other_settings_are_refused_and_named(tmp_path: Path, name: str, value: Any, shown: str) -> None:
    folder = FeedFolder(tmp_path, "f")
    folder.settle(IDENTITY, start_given=True)
    with pytest.raises(FeedMismatch, match=shown):
        folder.settle(replace(IDENTITY, **{name: value}), start_given=True)


def test_a_configuration_that_another_version_stored_is_the_same(tmp_path: Path) -> None:
    """With keys at their defaults, which this version may not store; of keys that it does not know it says so."""
    folder = FeedFolder(tmp_path, "f")
    whole = {"filter": {"rules": ["a.*"], "event-filters": []}, "force-replicate": False, "sink": {"csv": {"quote": None}}}
    folder.settle(replace(IDENTITY, config=whole), start_given=True)
    small = replace(IDENTITY, config=parse_config("[filter]\nrules = ['a.*']").given())
    assert folder.settle(small, start_given=True).config == whole
    with pytest.raises(FeedMismatch, match=r"--config \(sink\)"):
        folder.settle(replace(IDENTITY, config=parse_config("filter.rules = ['a.*']\nsink.csv.quote = ''").given()), start_given=True)


def test_the_checkpoint_is_kept(tmp_path: Path) -> None:
    folder = FeedFolder(tmp_path, "f")
    assert folder.checkpoint() is None
    folder.save_checkpoint(5)
    folder.save_checkpoint(7)
    assert FeedFolder(tmp_path, "f").checkpoint() == 7
    assert not list(folder.path.glob("*.tmp"))


@pytest.mark.parametrize(("name", "text"), [("checkpoint.json", "{"), ("checkpoint.json", "{}"), ("checkpoint.json", "[]")])
def test_a_broken_checkpoint_is_named(tmp_path: Path, name: str, text: str) -> None:
    folder = FeedFolder(tmp_path, "f")
    folder.path.mkdir(parents=True)
    (folder.path / name).write_text(text)
    with pytest.raises(FeedBroken, match=name):
        folder.checkpoint()


def test_a_broken_identity_is_named(tmp_path: Path) -> None:
    folder = FeedFolder(tmp_path, "f")
    folder.path.mkdir(parents=True)
    (folder.path / "feed.json").write_text('{"changefeed": "f"}')
    with pytest.raises(FeedBroken, match="cluster_id"):
        folder.identity()


def test_one_process_delivers(tmp_path: Path) -> None:
    one, other = FeedFolder(tmp_path, "f"), FeedFolder(tmp_path, "f")
    one.lock()
    with pytest.raises(FeedLocked, match=r"process [0-9]+"):
        other.lock()
    FeedFolder(tmp_path, "g").lock()
    one.unlock()
    other.lock()
    other.unlock()


def test_the_status_tells_the_lag(tmp_path: Path) -> None:
    folder = FeedFolder(tmp_path, "f")
    assert folder.status() is None
    folder.save_status(Status("f", checkpoint_ts=compose(0), rows=12))
    found = folder.status()
    assert found is not None
    assert found["rows"] == 12
    assert found["checkpoint_lag_s"] > 10**9
    assert found["state"] == "normal"


def test_feed_json_says_what_the_changefeed_is_at(tmp_path: Path) -> None:
    folder = FeedFolder(tmp_path, "f")
    folder.save_state(State.FAILED, {"code": "TM:ErrX", "message": "no"})
    assert not folder.path.exists()  # it was never created
    wanted = FeedIdentity("f", "1", "/log", "kafka://h", {}, "UTC", 5)
    folder.settle(wanted, start_given=True)
    folder.save_state(State.FAILED, {"code": "TM:ErrX", "message": "no"})
    content = json.loads((folder.path / "feed.json").read_text())
    assert (content["state"], content["error"]["code"], content["start_ts"]) == ("failed", "TM:ErrX", 5)
    assert FeedFolder(tmp_path, "f").identity() == wanted
    folder.save_state(State.NORMAL)
    content = json.loads((folder.path / "feed.json").read_text())
    assert (content["state"], content["error"]) == ("normal", None)


@pytest.fixture(params=["disk", "S3"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path / "state")
    endpoint = request.getfixturevalue("s3_server")
    make_bucket(endpoint, "states")
    return f"s3://test:test@states/{tmp_path.name}?endpoint_override={endpoint.partition('://')[2]}&scheme=http&region=us-east-1"


def test_the_state_may_lie_apart_and_only_the_newest_driver_moves_the_checkpoint(tmp_path: Path, state: str) -> None:
    """Two hosts with a data folder each. The one that was taken over wakes up: nothing that it does shows."""
    old, new = FeedFolder(tmp_path / "a", "f", state), FeedFolder(tmp_path / "b", "f", state)
    assert old.settle(IDENTITY, start_given=True) == new.settle(IDENTITY, start_given=False) == IDENTITY
    assert old.claim("a", 1) is None
    assert new.checkpoint() is None
    old.save_checkpoint(105)
    assert new.claim("b", 2) == 105
    for ts in (104, 105, 106):
        with pytest.raises(Fenced, match="epoch 2 of the driver b"):
            old.save_checkpoint(ts)
    assert new.checkpoint() == 105
    new.save_checkpoint(110)
    with pytest.raises(Fenced):
        old.claim("a", 1)
    assert old.checkpoint() == 110
    assert not list(tmp_path.glob("[ab]/changefeeds/f/*.json"))


def test_a_checkpoint_of_an_earlier_version_is_gone_on_with(tmp_path: Path) -> None:
    folder = FeedFolder(tmp_path, "f")
    folder.path.mkdir(parents=True)
    (folder.path / "checkpoint.json").write_text('{"checkpoint_ts": 7}')
    (folder.path / "epoch").write_text("41\n")
    assert (folder.checkpoint(), folder.old_epoch, folder.claim("a", 42)) == (7, 41, 7)


def test_the_newest_epoch_outlives_the_file_of_the_fence(tmp_path: Path) -> None:
    """A fence that begins again at 1 would be refused by the checkpoint for many starts."""
    folder = FeedFolder(tmp_path, "f")
    assert folder.last_epoch() == 0
    folder.claim("vm/1", 40)
    assert FeedFolder(tmp_path, "f").last_epoch() == 40

"""What is said when a changefeed is created: sinks that refuse or do not answer, by one code; rules that match no table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.server.fake_world import START, World, run
from tidemill.errors import RegistryUnavailable, SinkError, SinkUnavailable
from tidemill.server import errors as e
from tidemill.server import service as s


def created(folder: Path, sink: str, **more: object) -> s.ChangefeedInfo:
    async def work() -> s.ChangefeedInfo:
        async with World(folder) as world:
            return (await world.manager.create(s.NewChangefeed(sink, "f", start_ts=START, **more))).info  # type: ignore[arg-type]

    found: s.ChangefeedInfo = run(work())
    return found


@pytest.mark.parametrize("protocol", ["csv", "open-protocol"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, protocol: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(e.InvalidSinkUri, match=r"the sink's folder cannot be made: .*/file is a file") as refused:
        created(tmp_path, f"file://{tmp_path}/file/x?protocol={protocol}")
    assert "TM:" not in refused.value.message
    assert refused.value.hint.startswith("Name a folder")
    created(tmp_path / "other", f"file://{tmp_path}/new/x?protocol={protocol}")
    assert (tmp_path / "new/x").is_dir(), "what the hint says is enough"


@pytest.mark.parametrize(
    ("sink", "error", "expected"),
    [
        ("kafka://h:1/t?protocol=open-protocol", SinkUnavailable("no broker answers"), e.BrokersAway),
        ("mysql://u@h:1/", SinkUnavailable("it does not answer"), e.DatabaseAway),
        ("blackhole://", SinkUnavailable("away"), e.StorageAway),
        ("kafka://h:1/t?protocol=avro&schema-registry=http://h:1", RegistryUnavailable("away"), e.RegistryAway),
        ("kafka://h:1/t?protocol=open-protocol", SinkError("access denied"), e.InvalidSinkUri),
    ],
)
def test_an_error_of_a_sink_has_one_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str, error: Exception, expected: type[Exception]
) -> None:
    def refuses(sink: object) -> None:
        raise error

    monkeypatch.setattr("tidemill.server.changefeeds.operations.check_sink_reachable", refuses)
    with pytest.raises(expected, match=rf"^{error}$"):
        created(tmp_path, sink)


def test_a_rule_that_matches_no_table_is_said(tmp_path: Path) -> None:
    info = created(tmp_path, "blackhole://", replica_config={"filter": {"rules": ["*.*", "nowhere.*"]}})
    assert [text for text in info.warnings if "matches no table" in text] == [
        "filter rule 'nowhere.*' matches no table that is there now; one that comes later is taken"
    ]

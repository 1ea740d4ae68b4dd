"""What `tidemill doctor` finds, on clusters and places that are well and that are not."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.delivery.runs import tidemill
from tests.support.servers.kafka import new_topic_name
from tests.support.servers.mariadb import MariaDb
from tidemill.config.uri import parse_sink_uri
from tidemill.doctor import examine, host
from tidemill.doctor.downstream import downstream
from tidemill.doctor.findings import Finding, Health, bad, doubtful, good, is_well, of_error
from tidemill.doctor.place import place
from tidemill.errors import SinkError
from tidemill.kernels.cache import Cache
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.playground.server import PlaygroundThread
from tidemill.playground.store.oracle import wall_clock_ms
from tidemill.sinks.kafka.driver import KafkaDriverSink

BAD, DOUBTFUL, GOOD = Health.BAD, Health.DOUBTFUL, Health.GOOD


def health(findings: list[Finding]) -> dict[str, Health]:
    return {finding.subject.partition(" 127")[0]: finding.health for finding in findings}


def of(findings: list[Finding], subject: str) -> Finding:
    return next(finding for finding in findings if finding.subject == subject)


def test_only_what_failed_keeps_a_changefeed_from_starting() -> None:
    assert is_well([good("a", "it is"), doubtful("b", "hm", "look")])
    assert not is_well([good("a", "it is"), bad("b", "no", "do")])


def test_an_errors_hint_is_the_remedy_and_secrets_are_not_shown() -> None:
    found = of_error("sink", SinkError("kafka://u:secret@b:9092/t is away", hint="Start kafka://u:secret@b:9092"), "not this one")
    assert (found.health, found.remedy) == (BAD, "Start kafka://u:xxxxx@b:9092")
    assert "secret" not in found.text
    assert of_error("sink", OSError("gone"), "look").remedy == "look"


def test_a_console_is_a_place_that_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = tidemill(capsys, "doctor", "--sink-uri", "console://?resolved=true", "--data-dir", tmp_path)
    assert f"sink: {tmp_path} can be written" in out, err


# this machine


def test_a_java_that_spark_does_not_run_on_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.spark.session.java_homes", lambda: [tmp_path])
    found = of(list(host.host()), "java")
    assert (found.health, "17 to 21" in found.text) == (BAD, True)
    assert "openjdk-17" in found.remedy


def test_a_machine_that_runs_the_tests_is_well() -> None:
    assert is_well(host.host())


def test_kernels_that_are_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.kernels.cache.cache", lambda: Cache(None, tmp_path))
    monkeypatch.setattr("tidemill.kernels.warm.missing", lambda: ["one"])
    assert host._kernels().health is DOUBTFUL
    monkeypatch.setattr("tidemill.kernels.warm.missing", list)
    assert host._kernels().health is GOOD


def test_no_folder_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.kernels.cache.cache", lambda: Cache(None, None, "no folder can be written"))
    assert (host._kernels().health, host._kernels().text) == (BAD, "no folder can be written")


# the cluster


def looked(playground: PlaygroundThread, start_ts: str | None = None) -> list[Finding]:
    return playground.run(examine.upstream(playground.pd_address.split(","), None, start_ts))


def test_a_cluster_that_is_well() -> None:
    with PlaygroundThread(stores=2) as playground:
        assert health(looked(playground, "now")) == {"pd": GOOD, "tikv": GOOD, "clock": GOOD, "gc": GOOD}


def test_a_cluster_that_is_old_ahead_and_has_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    with PlaygroundThread(version="6.5.0", clock=lambda: wall_clock_ms() + 5000) as playground:
        playground.call(playground.playground.cluster.collect_garbage, 0)
        found = looked(playground, "-1h")
        assert health(found) == {"pd": GOOD, "versions": BAD, "tikv": GOOD, "clock": DOUBTFUL, "gc": BAD}
        ahead = re.fullmatch(r"PD's clock is (\S+) s ahead of this machine's", of(found, "clock").text)
        assert ahead is not None
        assert float(ahead[1]) == pytest.approx(5, abs=2)  # the answer's way back is in it


def test_a_store_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.doctor.upstream.CONNECT_S", 0.3)
    with PlaygroundThread(stores=2) as playground:
        playground.run(playground.playground.stop_store(2))
        address = playground.playground.cluster.stores[2].address
        assert [f.subject for f in looked(playground) if f.health is BAD] == [f"tikv {address}"]


# the log and the sink


def test_places_of_a_log(tmp_path: Path) -> None:
    assert is_well(place(str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "photo.jpg").touch()
    (found,) = place(str(tmp_path / "other"))
    assert found.health is BAD
    assert "photo.jpg" in found.text


def test_a_folder_of_a_sink(tmp_path: Path) -> None:
    uri = parse_sink_uri(f"file://{tmp_path}/new?protocol=canal-json")
    assert health(list(downstream(uri))) == {"sink": GOOD}
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_database(mariadb: MariaDb) -> None:
    mariadb.run("CREATE OR REPLACE USER poor@'127.0.0.1' IDENTIFIED BY 'secret'", "GRANT SELECT ON test.* TO poor@'127.0.0.1'")
    assert health(list(downstream(parse_sink_uri(mariadb.uri)))) == {"database": GOOD, "rights": GOOD}
    poor = mariadb.uri.replace("root@", "poor:secret@")
    found = list(downstream(parse_sink_uri(poor)))
    assert health(found) == {"database": GOOD, "rights": DOUBTFUL}
    assert "INSERT" in of(found, "rights").text
    (refused,) = downstream(parse_sink_uri(poor.replace("secret", "wrong-one")))
    assert refused.health is BAD
    assert "wrong-one" not in refused.text + refused.remedy
    mariadb.run("SET GLOBAL read_only = ON")
    assert BAD in [f.health for f in downstream(parse_sink_uri(mariadb.uri))]
    mariadb.run("SET GLOBAL read_only = OFF")


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDb]:
    with MariaDb() as server:
        yield server


@pytest.mark.slow
@pytest.mark.kafka
def test_a_broker(kafka_broker: KafkaBroker) -> None:
    topic = new_topic_name()
    uri = f"kafka://{kafka_broker.address}/{topic}?protocol=open-protocol"
    assert health(list(downstream(parse_sink_uri(uri)))) == {"kafka": GOOD, "topic": GOOD}
    assert of(list(downstream(parse_sink_uri(f"{uri}&auto-create-topic=false"))), "topic").health is BAD  # the first one made nothing
    with closing(KafkaDriverSink(parse_sink_uri(f"{uri}&partition-num=2"))) as driver:
        driver.ensure_topics({topic})
    assert of(list(downstream(parse_sink_uri(uri))), "topic").text.endswith("with 2 partitions")
    assert of(list(downstream(parse_sink_uri(f"{uri}&partition-num=3"))), "topic").health is BAD
    found = list(downstream(parse_sink_uri(f"{uri}&max-message-bytes=150000000")))
    assert of(found, "message size").health is DOUBTFUL, found


# all of it


def test_a_check_that_hangs_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()

    def hangs() -> list[Finding]:
        never.wait()
        return []

    monkeypatch.setattr(examine, "host", hangs)
    found = list(examine.examine(examine.Subjects(tmp_path), limit_s=0.2))
    never.set()
    assert health(found) == {"machine": BAD, "spark ports": GOOD, "disk of --data-dir": GOOD}


def test_the_command_says_it_in_lines_and_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with PlaygroundThread() as playground:
        code, out, _ = tidemill(capsys, "doctor", "--pd", playground.pd_address, "--log", tmp_path / "log", "--data-dir", tmp_path)
        assert code == 0, out
        assert "ok      pd: cluster" in out
        assert out.splitlines()[-1].endswith("0 failed, 0 warnings") or "warning" in out
    blackhole = ("--sink-uri", "blackhole://", "--data-dir", tmp_path)
    code, out, _ = tidemill(capsys, "doctor", "--log", Path(__file__).parent, *blackhole, "--json")
    found = json.loads(out)
    assert (code, found["well"]) == (1, False)
    assert {f["subject"] for f in found["findings"] if f["health"] == "failed"} == {"log"}
    assert all(f["remedy"] for f in found["findings"] if f["health"] == "failed")

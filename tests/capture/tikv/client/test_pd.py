"""PD as a client sees it when things go wrong: followers, a leader that changes, late answers, old versions, keyspaces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.capture.fake_cluster import FakeCluster, with_cluster
from tidemill.capture.meta import read_meta
from tidemill.capture.tikv.client.pd import PdClient, parse_version
from tidemill.errors import ClusterMismatch, ConfigError, UpstreamError, UpstreamUnavailable, VersionTooOld
from tidemill.wire import metapb_pb2 as metapb
from tidemill.wire import pdpb_pb2 as pdpb


def test_calls_go_to_the_leader_and_follow_it() -> None:
    cluster = FakeCluster(3)

    async def use(pd: PdClient) -> None:
        first = await pd.tso()
        assert pd.leader == cluster.members[0].address
        cluster.leader = cluster.members[2]
        assert (await pd.stores())[0].id == 1
        assert pd.leader == cluster.members[2].address
        assert await pd.tso() > first
        await cluster.servers[2].stop(0)
        cluster.leader = cluster.members[1]
        assert await pd.tso() > first
        assert pd.leader == cluster.members[1].address
        assert "GetAllStores" not in cluster.members[1].calls

    with_cluster(cluster, use)


def test_a_leader_that_is_not_yet_elected_is_waited_for() -> None:
    cluster = FakeCluster(2)

    async def use(pd: PdClient) -> None:
        leader, cluster.leader = cluster.leader, None
        asyncio.get_running_loop().call_later(0.5, setattr, cluster, "leader", leader)
        assert (await pd.stores())[0].id == 1

    with_cluster(cluster, use)


def test_a_member_that_is_starting_knows_no_cluster_yet(caplog: pytest.LogCaptureFixture) -> None:
    """A starting PD answers with cluster 0, which is not another cluster. An error is logged once, however many calls meet it."""
    cluster = FakeCluster(2)

    async def use(pd: PdClient) -> None:
        cluster.members[0].starting = True
        leader, cluster.leader = cluster.leader, None
        asyncio.get_running_loop().call_later(0.5, setattr, cluster, "leader", leader)
        assert all(stores[0].id == 1 for stores in await asyncio.gather(*(pd.stores() for _ in range(20))))
        assert caplog.text.count("trying again") == 1

    with_cluster(cluster, use)


def test_members_that_are_exchanged_one_by_one_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader stays while all other members are replaced; when it ends too, the new members are known."""
    monkeypatch.setattr("tidemill.capture.tikv.client.pd.LOOK_EVERY", 0.0)
    cluster = FakeCluster(3)

    async def use(pd: PdClient) -> None:
        everybody = cluster.members
        cluster.members = everybody[:2]
        assert await pd.tso() > 0
        async with asyncio.timeout(600):
            while len(pd.addresses) != 2:
                await asyncio.sleep(0.01)
        cluster.members = everybody
        async with asyncio.timeout(600):
            while len(pd.addresses) != 3:
                await pd.stores()
        pd._seeds = (everybody[0].address,)
        await cluster.servers[0].stop(0)
        cluster.leader = everybody[2]
        assert await pd.tso() > 0

    with_cluster(cluster, use)


def test_a_handshake_that_takes_a_while_is_no_failure() -> None:
    """A PD far away, or a busy one: its first byte takes half a second."""
    cluster = FakeCluster()

    async def use(pd: PdClient) -> None:
        host, _, port = pd.leader.rpartition(":")

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.5)
            theirs, ours = await asyncio.open_connection(host, int(port))
            await asyncio.gather(carry(reader, ours), carry(theirs, writer))

        server = await asyncio.start_server(slow, "127.0.0.1", 0)
        far = PdClient([f"127.0.0.1:{server.sockets[0].getsockname()[1]}"])
        await far.refresh()
        assert far.leader == pd.leader
        await far.close()
        server.close()

    with_cluster(cluster, use)


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


def test_of_several_addresses_the_one_that_was_given_is_used() -> None:
    """PD advertises one address for its own network and one for others."""
    cluster = FakeCluster(2)
    for member in cluster.members:
        member.inside = [f"http://{member.name}.inside:2379"]

    async def use(pd: PdClient) -> None:
        assert pd.addresses == tuple(m.address for m in cluster.members)
        cluster.leader = cluster.members[1]
        assert await pd.tso() > 0
        assert pd.leader == cluster.members[1].address

    with_cluster(cluster, use)


def test_many_calls_at_once_share_one_search_for_the_leader() -> None:
    cluster = FakeCluster(2)

    async def use(pd: PdClient) -> None:
        cluster.leader = cluster.members[1]
        before = sum(m.calls.count("GetMembers") for m in cluster.members)
        stamps = await asyncio.gather(*(pd.tso() for _ in range(20)))
        assert len(set(stamps)) == 20
        await asyncio.gather(*(pd.stores() for _ in range(20)))
        assert sum(m.calls.count("GetMembers") for m in cluster.members) - before < 10

    with_cluster(cluster, use)


TSO_TROUBLE = [
    "[PD:tso:ErrGenerateTimestamp]generate timestamp failed, timestamp in memory isn't initialized",
    "[PD:tso:ErrGenerateTimestamp]generate timestamp failed, requested pd is not leader of cluster",
    "[PD:tso:ErrGenerateTimestamp]generate timestamp failed, generate global tso maximum number of retries exceeded",
    "[PD:etcd:ErrEtcdTxnConflict]etcd transaction failed, conflicted and rolled back",
    "server not started",
]


def test_what_a_pd_says_during_an_election_is_waited_out() -> None:
    """Error texts of a real PD that has just become leader, or just ceased to be it; they have no error type."""
    cluster = FakeCluster()
    cluster.tso_trouble = list(TSO_TROUBLE)

    async def use(pd: PdClient) -> None:
        assert await pd.tso() > 0
        assert not cluster.tso_trouble

    with_cluster(cluster, use)


def test_a_member_that_hangs_does_not_keep_the_others_from_answering() -> None:
    cluster = FakeCluster(2)

    async def use(pd: PdClient) -> None:
        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        frozen = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        asked: list[str] = []

        class Watched(PdClient):
            async def _ask_members(self, address: str) -> Any:
                asked.append(address)
                return await super()._ask_members(address)

        other = await Watched.connect([frozen, frozen.replace("127.0.0.1", "localhost"), pd.leader])
        assert await other.tso() > 0
        assert asked == [frozen, frozen.replace("127.0.0.1", "localhost"), pd.leader]
        asked.clear()
        await other.refresh(pd.leader)
        assert asked[0] != pd.leader, "who has just failed is asked last"
        await other.close()
        server.close()

    with_cluster(cluster, use)


def test_nobody_answers() -> None:
    async def main() -> None:
        with pytest.raises(UpstreamUnavailable, match=r"PD does not answer GetMembers.*127\.0\.0\.1:1"):
            await PdClient.connect("127.0.0.1:1,http://127.0.0.1:2/", retry_s=0.5)
        with pytest.raises(ConfigError, match="no PD address"):
            await PdClient.connect(" , ")

    asyncio.run(main())


@pytest.mark.parametrize(
    "address",
    ["localhost", "localhost:", "localhost:pd", ":2379", "http://", "localhost:99999", "localhost:0", "::1:2379", "10.0.0.1:2379/pd?x=1",
     "http://root:hush@10.0.0.1:2379", "10.0.0.1 :2379"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_at_once(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^--pd .* is not a HOST:PORT\n  Name PD's client addresses") as caught:
        PdClient([address])
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "plain"),
    [(" http://pd-0:2379/ ", "pd-0:2379"), ("HTTPS://pd-0.ns.svc:2379", "pd-0.ns.svc:2379"), ("[fd00::5]:2379", "[fd00::5]:2379")],
)
def test_addresses_are_written_in_several_ways(address: str, plain: str) -> None:
    assert PdClient([address]).addresses == (plain,)


def test_errors_in_the_header() -> None:
    cluster = FakeCluster()

    async def use(pd: PdClient) -> None:
        kind = pdpb.Error(type=pdpb.INCOMPATIBLE_VERSION, message="too new")
        cluster.header_error = pdpb.ResponseHeader(cluster_id=77, error=kind)
        with pytest.raises(UpstreamError, match="INCOMPATIBLE_VERSION: too new"):
            await pd.stores()
        cluster.header_error = pdpb.ResponseHeader(cluster_id=77, error=pdpb.Error(type=pdpb.NOT_BOOTSTRAPPED))
        retry_s, pd.retry_s = pd.retry_s, 0.1
        with pytest.raises(UpstreamUnavailable, match=r"GetAllStores with NOT_BOOTSTRAPPED.*\n.*No TiKV has joined this PD yet"):
            await pd.stores()
        pd.retry_s = retry_s
        asyncio.get_running_loop().call_later(0.3, setattr, cluster, "header_error", None)
        assert (await pd.stores())[0].id == 1

    with_cluster(cluster, use)


def test_another_cluster_than_the_wanted_one() -> None:
    cluster = FakeCluster()

    async def use(pd: PdClient) -> None:
        with pytest.raises(ClusterMismatch, match="serves cluster 77, not cluster 78"):
            await PdClient.connect(pd.addresses, cluster_id=78)

    with_cluster(cluster, use)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("8.5.1", (8, 5, 1)),
        ("v7.5.0-alpha-12-gabc-dirty", (7, 5, 0)),
        ("v10.0.0", (10, 0, 0)),
        ("9.0.0-beta.2", (9, 0, 0)),
        ("", None),
        ("nightly", None),
    ],
)
def test_versions(text: str, parsed: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == parsed


@pytest.mark.parametrize(
    ("pd_version", "store", "text"),
    [
        ("v7.1.5", {}, r"PD pd0 has version v7\.1\.5; capture needs 7\.5\.0"),
        ("v7.5.0", {"version": "v6.5.9"}, r"TiKV 10\.0\.0\.9:20160 has version v6\.5\.9"),
        ("v7.5.0", {"version": "6.5.0", "state": metapb.Tombstone}, None),
        ("v7.5.0", {"version": "6.5.0", "labels": [{"key": "engine", "value": "tiflash"}]}, None),
        ("", {"version": "10.1.0"}, None),
    ],
)
def test_old_versions_are_named(pd_version: str, store: dict[str, Any], text: str | None) -> None:
    cluster = FakeCluster()
    cluster.pd_version = pd_version

    async def use(pd: PdClient) -> None:
        cluster.stores.append(metapb.Store(id=2, address="10.0.0.9:20160", **({"version": "8.5.1"} | store)))
        if text is None:
            await pd.check_versions()
        else:
            with pytest.raises(VersionTooOld, match=text):
                await pd.check_versions()

    with_cluster(cluster, use)


def test_a_keyspace_cluster_is_refused_by_name() -> None:
    cluster = FakeCluster()
    cluster.keyspaces = ["DEFAULT", "tenant_a", "tenant_b"]

    async def use(pd: PdClient) -> None:
        with pytest.raises(ClusterMismatch, match="cluster 77 has no schemas outside of keyspaces: it serves keyspace tenant_a, tenant_b"):
            await read_meta(pd, 5)

    with_cluster(cluster, use)


# ---- GC safe point ---------------------------------------------------------------------------------------------------


# ---- reading at a ts -------------------------------------------------------------------------------------------------

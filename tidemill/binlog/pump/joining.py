"""A new Pump tells the Drainers of itself before TiDB may write to it: a Drainer that did not know it would go on without its binlogs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import grpc

from tidemill.binlog.nodes import Node, NodeState
from tidemill.binlog.pump.faults import DrainerSilent
from tidemill.capture.tikv.client.channels import Channels
from tidemill.errors import UpstreamUnavailable
from tidemill.wire import pump_pb2, pump_pb2_grpc

CALL_S = 3.0
TRIES = 3


async def notify(drainers: Iterable[Node], channels: Channels) -> None:
    """Tell all Drainers that are online. Raises DrainerSilent, which names those that do not answer."""
    online = [node for node in drainers if node.state is NodeState.ONLINE]
    silent = [text for text in await asyncio.gather(*(_tell(node, channels) for node in online)) if text]
    if silent:
        raise DrainerSilent(
            f"a new Pump has to be known to all Drainers that are online, and these do not answer: {'; '.join(silent)}",
            hint="Start them, or say that they are not online: tidemill binlogctl --cmd update-drainer --node-id ID --state paused.",
        )


async def _tell(node: Node, channels: Channels) -> str:
    """What is wrong with a Drainer."""
    problem = ""
    for _ in range(TRIES):
        try:
            stub = pump_pb2_grpc.CisternStub(channels.get(node.host))
            await stub.Notify(pump_pb2.NotifyReq(), timeout=CALL_S, wait_for_ready=True)
            return ""
        except grpc.aio.AioRpcError as error:
            problem = f"{node.node_id} at {node.host}: {error.code().name} {error.details()}"
        except UpstreamUnavailable as error:
            return f"{node.node_id}: {error.message}"
    return problem

"""The lease as a key in etcd, for logs whose storage should not be asked every few seconds. Calls do IO, and belong in a thread.

The key is changed by etcd's transactions: written only over the revision that was read. Who leads is decided by `election.py`, as on other
storage: the term has to outlive the lease, and the TTL is counted by whoever waits for its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import grpc

from tidemill.capture.tikv.client.channels import OPTIONS
from tidemill.capture.tikv.client.tls import Security
from tidemill.errors import ConfigError, UpstreamUnavailable
from tidemill.extras import extra
from tidemill.server.shared.file import Change

with extra("server"):
    from etcd3aio._protobuf import Compare, KVStub, PutRequest, RangeRequest, RequestOp, TxnRequest

CALL_S = 2.0
"""Seconds of one call."""

T = TypeVar("T")


def etcd_security(addresses: Sequence[str], of_pd: Security | None) -> Security | None:
    """Return how an etcd is reached: as PD is, with PD's certificates, unless its addresses have a scheme. Raises ConfigError.

    `http://`: without TLS. `https://`: with TLS, by PD's certificates, or the system's authorities if PD has none.
    """
    schemes = {address.partition("://")[0].lower() if "://" in address else "" for address in addresses}
    unknown = schemes - {"", "http", "https"}
    if unknown:
        raise ConfigError(f"an address of --etcd begins with {sorted(unknown)[0]}://", hint="It is https://, http:// or HOST:PORT.")
    if len(schemes) > 1:
        raise ConfigError("the addresses of --etcd do not all begin alike", hint="Write https:// before all of them, http://, or nothing.")
    if "http" in schemes:
        return None
    return of_pd or Security() if "https" in schemes else of_pd


class EtcdKey:
    """One key, as a `lease.Place`."""

    def __init__(self, addresses: Sequence[str], key: str, security: Security | None) -> None:
        """`addresses`: HOST:PORT of etcd's members, such as PD's; a scheme in front has been read by `etcd_security`."""
        self.place = f"etcd://{','.join(addresses)}{key}"
        self._addresses = [address.rpartition("://")[2].rstrip("/") for address in addresses]
        self._key, self._security = key.encode(), security
        self._channels: dict[str, Any] = {}
        self._stamp = security.stamp() if security is not None else ()
        self._turn = threading.Lock()

    def read(self) -> bytes | None:
        """Raises UpstreamUnavailable."""
        with self._turn:
            return self._asked(self._found)[0]

    def change(self, change: Change) -> bytes | None:
        """As `SharedFile.change`; what etcd has taken is durable. Raises UpstreamUnavailable."""
        with self._turn:
            while True:
                before, revision = self._asked(self._found)
                data = change(before)
                if data is None or self._asked(partial(self._put, data=data, revision=revision)):
                    return data

    def _found(self, channel: Any) -> tuple[bytes | None, int]:
        found = KVStub(channel).Range(RangeRequest(key=self._key), timeout=CALL_S).kvs
        return (found[0].value, found[0].mod_revision) if found else (None, 0)

    def _put(self, channel: Any, data: bytes, revision: int) -> bool:
        """Write over a revision (0: there must be no key). Whether that was still there. An answer that gets lost looks like a refusal when
        the call is made again: then the content shows whose it was."""
        same = Compare(result=Compare.EQUAL, target=Compare.MOD, key=self._key, mod_revision=revision)
        put = RequestOp(request_put=PutRequest(key=self._key, value=data))
        return bool(KVStub(channel).Txn(TxnRequest(compare=[same], success=[put]), timeout=CALL_S).succeeded)

    def _asked(self, call: Callable[[Any], T]) -> T:
        """Ask one member after the other. Raises UpstreamUnavailable."""
        failed = ""
        for address in [*self._addresses]:
            try:
                return call(self._channel(address))
            except grpc.RpcError as error:
                failed = f"{address}: {error.code().name} {error.details()}"
                self._addresses.remove(address)
                self._addresses.append(address)
        raise UpstreamUnavailable(f"{self.place} does not answer: {failed}", hint="Is that etcd's or PD's client port?")

    def _forget_old(self) -> None:
        """Close connections that have a certificate which was replaced."""
        stamp = self._security.stamp() if self._security is not None else ()
        if stamp != self._stamp:
            self._stamp = stamp
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()

    def _channel(self, address: str) -> Any:
        self._forget_old()
        channel = self._channels.get(address)
        if channel is None:
            if self._security is None:
                channel = grpc.insecure_channel(address, options=OPTIONS)
            else:
                try:
                    channel = grpc.secure_channel(address, self._security.credentials(), options=OPTIONS)
                except ConfigError as error:  # they were good at the start, and may be again
                    raise UpstreamUnavailable(f"{self.place} cannot be asked: {error.message}", hint=error.hint) from None
            self._channels[address] = channel
        return channel

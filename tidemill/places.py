"""Under which address other machines reach this one."""

from __future__ import annotations

import re
import socket

LOOPBACK = "127.0.0.1"

_LOCAL_MASTER = re.compile(r"local(-cluster)?(\[.*\])?")
_MASTER = re.compile(r"\w+(?::k8s)?://(?:https?://)?\[?([^/,\]]+?)\]?(?::(\d+))?(?:[,/].*)?")


def is_here(master: str | None) -> bool:
    """Whether a Spark master is a part of the process that asks for it."""
    return master is None or _LOCAL_MASTER.fullmatch(master) is not None


def host_for(master: str | None) -> str:
    """The address that executors of a Spark master reach this machine at: the one that it reaches the master from."""
    if is_here(master):
        return LOOPBACK
    found = _MASTER.fullmatch(master or "")
    return towards(found[1], int(found[2] or 443)) if found is not None else socket.gethostbyname(socket.getfqdn())


def towards(host: str, port: int) -> str:
    """The address of this machine on the route to another one; nothing is sent. Its own name's where there is no route."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            found: str = probe.getsockname()[0]
            return found
    except OSError:
        return socket.gethostbyname(socket.getfqdn())

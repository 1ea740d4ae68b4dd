"""By which names a port may be asked for. A page of another site can make a name of its own lead to this machine (DNS rebinding): to the
browser it is then of one origin with what answers here, and reads all of it. An address cannot be made to lead elsewhere, so any is taken.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable
from functools import cache
from urllib.parse import urlsplit

VARIABLE = "TIDEMILL_HOSTS"
"""More names, separated by commas: those of a proxy, of a Kubernetes service."""
HINT = f"Open it as localhost or by its address. For other names set {VARIABLE}=NAME,… for the process."


def own_hosts(*addresses: str) -> frozenset[str]:
    """Return the names of this machine, those of addresses (HOST:PORT, URL), and those of TIDEMILL_HOSTS."""
    more = os.environ.get(VARIABLE, "").split(",")
    return _machine() | _names((*addresses, *more))


def is_own(host: str, own: frozenset[str]) -> bool:
    """Return whether a Host header has an address, a name of this machine, or none: only browsers are made to ask, and they send one."""
    if not host:
        return True
    name = _host(host)
    return name in own or name == "localhost" or name.endswith(".localhost") or is_address(name)


def is_address(name: str) -> bool:
    """Return whether a host is given by its IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@cache
def _machine() -> frozenset[str]:
    return _names((socket.gethostname(), socket.getfqdn()))


def _names(addresses: Iterable[str]) -> frozenset[str]:
    return frozenset(_host(one.strip().rpartition("://")[2]) for one in addresses) - {""}


def _host(text: str) -> str:
    """Return the host of HOST:PORT, in lower case; empty where it is none."""
    try:
        return (urlsplit(f"//{text}").hostname or "").rstrip(".")
    except ValueError:
        return ""

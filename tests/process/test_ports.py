"""Ports for programs that are started later: no two ask for the same."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.process import ports
from tidemill.process.ports import free_ports


def test_processes_that_ask_at_the_same_time_get_different_ports() -> None:
    ask = "from tidemill.process.ports import free_ports; print(*(free_ports(1)[0] for _ in range(40)))"
    asking = [subprocess.Popen([sys.executable, "-c", ask], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found = [port for one in asking for port in one.communicate()[0].split()]
    assert len(set(found)) == len(found) == 120


def test_a_port_that_somebody_listens_at_is_left_out_also_where_they_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports.tempfile, "gettempdir", lambda: str(tmp_path))
    first, second, third, fourth = free_ports(4)
    monkeypatch.setattr(ports, "_FIRST", first)
    monkeypatch.setattr(ports, "_LAST", fourth)
    with socket.create_server(("127.0.0.1", second)):
        assert free_ports(3) == [first, third, fourth]
        assert free_ports(1) == [first]

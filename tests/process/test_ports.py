"""Ports for programs that are started later: no two ask for the same."""

from __future__ import annotations

import os
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


def test_a_link_that_another_user_made_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports.tempfile, "gettempdir", lambda: str(tmp_path))
    target = tmp_path / "target"
    target.write_text("21000")
    (tmp_path / f"tidemill-ports-{os.getuid()}").symlink_to(target)
    with pytest.raises(OSError, match=r"symbolic links|tidemill-ports"):
        free_ports(1)
    assert target.read_text() == "21000"


def test_the_file_of_another_user_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports.tempfile, "gettempdir", lambda: str(tmp_path))
    other = os.getuid() + 1
    (tmp_path / f"tidemill-ports-{other}").write_text("21000")
    monkeypatch.setattr(ports.os, "getuid", lambda: other)
    with pytest.raises(PermissionError):
        free_ports(1)

"""The cache of compiled kernels: compiling is said once, what is kept is not compiled again; where nothing can be kept, nothing fails."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.spark.packed import packed
from tidemill.errors import ConfigError
from tidemill.kernels import entries
from tidemill.kernels.cache import Cache, cache_root
from tidemill.kernels.compiler import machine
from tidemill.kernels.warm import modules

ROOT = Path(__file__).parents[2]
TOLD = "compiling kernels"
SMALL = "tidemill.kernels.apply.conflict_kernel"
LOAD = f"import {SMALL}; from tidemill.kernels.entries import load_imported; load_imported()"


def loaded(cache: Path, archive: Path | None = None) -> str:
    """Load a small kernel in a process that has not set up its log; returns what it printed on stderr. `archive`: where the package lies;
    the process sees no other."""
    environment = {**os.environ, "TIDEMILL_KERNEL_CACHE": str(cache)}
    if archive is not None:
        environment["PYTHONPATH"] = str(archive)
    folder = ROOT if archive is None else archive.parent
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_compiling_is_said_once(tmp_path: Path) -> None:
    """A first start that takes longer is not silent; the next one has nothing to say."""
    first = loaded(tmp_path)
    assert first.count(TOLD) == 1
    assert str(tmp_path) in first
    assert TOLD not in loaded(tmp_path)


@pytest.mark.slow
def test_kernels_are_kept_wherever_the_package_lies(tmp_path: Path) -> None:
    """Spark gives what `spark.submit.pyFiles` sends another folder in each application, and virtual environments lie anywhere."""
    (tmp_path / "a").mkdir()
    first = packed(tmp_path / "a" / "tidemill.zip")
    assert loaded(tmp_path / "cache", first).count(TOLD) == 1
    second = first.rename(tmp_path / "tidemill.zip")
    assert TOLD not in loaded(tmp_path / "cache", second)
    assert TOLD not in loaded(tmp_path / "cache")


@pytest.mark.slow
def test_the_package_may_bring_its_kernels(tmp_path: Path) -> None:
    assert loaded(tmp_path / "cache").count(TOLD) == 1
    (code,) = (tmp_path / "cache").glob("*.o")
    loaded(tmp_path / "again")
    assert (tmp_path / "again" / code.name).read_bytes() == code.read_bytes(), "who compiles the same gets the same"
    archive = packed(tmp_path / "tidemill.zip", {f"tidemill/kernels/compiled/{code.name}": code.read_bytes()})
    assert loaded(tmp_path / "empty", archive) == ""
    assert list((tmp_path / "empty").iterdir()) == []


def test_every_module_is_named_by_what_it_is_compiled_from() -> None:
    names = [entries.file_name(name) for name in modules()]
    assert len(set(names)) == len(names) > 30


class TestKeeping:
    """Files with object code."""

    def test_what_was_put_is_got(self, tmp_path: Path) -> None:
        kept = Cache(None, tmp_path)
        assert kept.get("a.o") is None
        kept.put("a.o", b"code")
        assert kept.get("a.o") == b"code"
        assert [file.name for file in tmp_path.iterdir()] == ["a.o"]

    def test_what_was_shipped_comes_first(self, tmp_path: Path) -> None:
        (tmp_path / "a.o").write_bytes(b"shipped")
        (tmp_path / "own").mkdir()
        kept = Cache(tmp_path, tmp_path / "own")
        kept.put("a.o", b"own")
        assert kept.get("a.o") == b"shipped"

    def test_a_folder_that_cannot_be_written_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It says once that each process compiles, and goes on."""
        (tmp_path / "a.o").write_bytes(b"code")
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        assert cache_root({"TIDEMILL_KERNEL_CACHE": str(tmp_path)}, Path.home) == tmp_path
        kept = Cache(None, tmp_path)
        assert kept.get("a.o") == b"code"
        with kept.alone("b"), caplog.at_level(logging.WARNING):
            kept.tell()
            kept.tell()
        assert caplog.text.count("cannot be written") == 1

    def test_a_full_disk_is_said_and_passed_over(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "file").touch()
        kept = Cache(None, tmp_path / "file")
        kept.put("a.o", b"code")
        assert "cannot be kept" in caplog.text

    def test_without_any_folder_kernels_are_compiled_in_the_process(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        importlib.import_module(SMALL)
        before = entries._loaded.pop(SMALL, [])
        kept = Cache(None, None, "no folder for compiled kernels can be written")
        monkeypatch.setattr(entries, "cache", lambda: kept)
        entries.load(SMALL)
        assert "no folder for compiled kernels can be written" in caplog.text
        entries._loaded[SMALL] += before

    def test_one_process_compiles_and_the_others_wait(self, tmp_path: Path) -> None:
        """Two threads stand for them: each opens the file of the lock itself."""
        inside, order = threading.Event(), []

        def second() -> None:
            inside.wait()
            with Cache(None, tmp_path).alone("a"):
                order.append("second")

        other = threading.Thread(target=second)
        with Cache(None, tmp_path).alone("a"):
            other.start()
            inside.set()
            order.append("first")
        other.join()
        assert order == ["first", "second"]


class TestPlace:
    """Where the cache is, also for a user whose home cannot be written."""

    def test_the_named_folder(self, tmp_path: Path) -> None:
        named = {"TIDEMILL_KERNEL_CACHE": str(tmp_path / "a" / "b"), "XDG_CACHE_HOME": str(tmp_path / "x")}
        assert cache_root(named, lambda: tmp_path) == tmp_path / "a" / "b"
        assert (tmp_path / "a" / "b").is_dir()

    def test_a_named_folder_that_cannot_be_made_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError) as refused:
            cache_root({"TIDEMILL_KERNEL_CACHE": str(tmp_path / "file" / "b")}, lambda: tmp_path)
        assert str(tmp_path / "file" / "b") in refused.value.message
        assert "TIDEMILL_KERNEL_CACHE" in refused.value.hint

    def test_the_users_caches(self, tmp_path: Path) -> None:
        assert cache_root({"XDG_CACHE_HOME": str(tmp_path / "x")}, lambda: tmp_path) == tmp_path / "x" / "tidemill" / "kernels"
        assert cache_root({}, lambda: tmp_path) == tmp_path / ".cache" / "tidemill" / "kernels"

    def test_without_a_home_a_folder_of_the_users_own(self, tmp_path: Path) -> None:
        (tmp_path / "home").touch()
        own = tmp_path / f"tidemill-kernels-{os.getuid()}"
        assert cache_root({"TMPDIR": str(tmp_path)}, lambda: tmp_path / "home") == own
        assert own.stat().st_mode & 0o777 == 0o700

        def no_home() -> Path:
            raise RuntimeError("Could not determine home directory.")

        assert cache_root({"TMPDIR": str(tmp_path)}, no_home) == own

    def test_a_folder_that_others_can_write_is_refused(self, tmp_path: Path) -> None:
        """Somebody else could have put machine code there."""
        own = tmp_path / f"tidemill-kernels-{os.getuid()}"
        own.mkdir()
        own.chmod(0o777)
        (tmp_path / "home").touch()
        with pytest.raises(ConfigError, match="no folder for compiled kernels"):
            cache_root({"TMPDIR": str(tmp_path)}, lambda: tmp_path / "home")

    def test_a_link_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        (tmp_path / f"tidemill-kernels-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "home").touch()
        with pytest.raises(ConfigError, match="no folder for compiled kernels"):
            cache_root({"TMPDIR": str(tmp_path)}, lambda: tmp_path / "home")


def test_another_processor_is_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image is built for `generic`, and finds its kernels wherever it runs."""
    machine.compiled_for.cache_clear()
    monkeypatch.setenv(machine.CPU, "generic")
    generic = machine.compiled_for()
    machine.compiled_for.cache_clear()
    monkeypatch.delenv(machine.CPU)
    assert machine.compiled_for() != generic
    assert generic.endswith("generic\n")


def test_an_error_of_what_is_compiled_alone_is_raised(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no room"), Cache(None, tmp_path).alone("x"):
        raise OSError("no room")

"""The cache of compiled kernels: compiling is said once, and what is in the cache is not compiled again."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numba
import pytest
from numba.core.dispatcher import Dispatcher

from tests.support.spark.packed import packed
from tidemill.errors import ConfigError
from tidemill.kernels.cache import cache_root
from tidemill.kernels.warm import warm

ROOT = Path(__file__).parents[2]
TOLD = "compiling kernels into"


def imported(cache: Path, archive: Path | None = None) -> str:
    """Import a module with a small kernel in a process that has not set up its log; returns what it printed on stderr. `archive`: where
    the package lies; the process sees no other."""
    command = [sys.executable, *(["-S"] if archive else []), "-c", "import tidemill.kernels.decode.split"]
    environment = {**os.environ, "TIDEMILL_KERNEL_CACHE": str(cache)}
    if archive is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(archive), str(Path(numba.__file__).parents[1])])
    folder = ROOT if archive is None else archive.parent
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_compiling_is_said_once(tmp_path: Path) -> None:
    """A first start that takes a minute longer is not silent; the next one has nothing to say."""
    first = imported(tmp_path)
    assert first.count(TOLD) == 1
    assert str(tmp_path) in first
    assert TOLD not in imported(tmp_path)


@pytest.mark.slow
def test_kernels_of_an_archive_are_kept_wherever_it_lies(tmp_path: Path) -> None:
    """Spark gives what `spark.submit.pyFiles` sends another folder in each application."""
    (tmp_path / "a").mkdir()
    first = packed(tmp_path / "a" / "tidemill.zip")
    assert imported(tmp_path / "cache", first).count(TOLD) == 1
    second = first.rename(tmp_path / "tidemill.zip")
    assert TOLD not in imported(tmp_path / "cache", second)


def test_no_two_kernels_have_one_name() -> None:
    """Numba names the symbol of a function by module, name and a number that each process counts for itself. Of two equal symbols in entry
    points that different processes compiled the linker keeps one, so the other function would be called as if it were this one."""
    warm()
    kernels = [it.py_func for it in gc.get_objects() if isinstance(it, Dispatcher) and it.py_func.__module__.startswith("tidemill.")]
    counts = Counter((kernel.__module__, kernel.__qualname__) for kernel in kernels)
    assert len(counts) > 400
    assert {name: count for name, count in counts.items() if count > 1} == {}


class TestPlace:
    """Where the caches are, also for a user whose home cannot be written."""

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

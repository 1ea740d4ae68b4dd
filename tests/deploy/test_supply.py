"""What the image installs: each file by its hash, in the versions that the tests run with, with its licence."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import requires
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bill() -> ModuleType:
    return script("bill")


def constraints() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): number for name, _, number in (line.partition("==") for line in lines)}


def test_the_lock_file_has_the_versions_that_are_tested_and_all_that_is_required(bill: ModuleType) -> None:
    locked = {one.name: one.version for one in bill.parts()}
    wanted = constraints()
    assert {name: number for name, number in locked.items() if wanted.get(name) != number} == {}
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_image = re.findall(r"\w+", extras["all"][0].partition("[")[2])
    required = [Requirement(one) for one in (*project["dependencies"], *(line for name in of_image for line in extras[name]))]
    assert [str(one) for one in required if locked.get(canonicalize_name(one.name), "") not in one.specifier] == []


def test_every_requirement_of_a_locked_package_is_locked(bill: ModuleType) -> None:
    locked = {one.name for one in bill.parts()}
    missing = {
        (one.name, need.name)
        for one in bill.parts()
        for need in map(Requirement, requires(one.name) or ())
        if (need.marker is None or need.marker.evaluate({"extra": ""})) and canonicalize_name(need.name) not in locked
    }
    assert missing == set()


@pytest.mark.parametrize("name", ["scripts/setup.lock", "scripts/setup-demo.lock"])
def test_the_set_up_installs_the_versions_that_are_tested(name: str) -> None:
    pins = re.findall(r"^([a-z0-9-]+)==([^ ]+)", (ROOT / name).read_text(), re.MULTILINE)
    wanted = constraints()
    assert {package: number for package, number in pins if wanted.get(package) != number} == {}, "run make lock"


@pytest.mark.parametrize(
    "name", ["deploy/docker/requirements.lock", "deploy/docker/build.lock", "scripts/setup.lock", "scripts/setup-demo.lock"]
)
def test_a_lock_file_has_names_versions_and_hashes(name: str) -> None:
    for line in (ROOT / name).read_text().splitlines()[1:]:
        assert re.fullmatch(r"[a-z0-9-]+==[\w.+!-]+ \\|    --hash=sha256:[0-9a-f]{64}(?: \\)?", line), line


def test_the_list_of_licences_is_that_of_the_lock_file(bill: ModuleType) -> None:
    assert (ROOT / "THIRD_PARTY.md").read_text() == bill.licences(), "run make lock"


def test_the_bill_of_materials_has_every_package_with_its_hashes(bill: ModuleType) -> None:
    made = json.loads(bill.cyclonedx())
    assert (made["bomFormat"], made["metadata"]["component"]["name"]) == ("CycloneDX", "tidemill")
    found = {(one["name"], one["version"], *(sha["content"] for sha in one["hashes"])) for one in made["components"]}
    assert found == {(one.name, one.version, *one.hashes) for one in bill.parts()}


@pytest.mark.slow
def test_a_wheel_of_the_same_sources_is_the_same_file(tmp_path: Path) -> None:
    """Whenever it is built, and wherever."""
    made = []
    for name, age in (("one", 0), ("two", 100_000_000)):
        place = tmp_path / name
        shutil.copytree(ROOT / "tidemill", place / "tidemill", ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
            shutil.copy(ROOT / file, place)
        for path in place.rglob("*.py"):
            os.utime(path, (1_700_000_000 - age,) * 2)
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "out"],
            cwd=place, env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}, check=True, capture_output=True,
        )  # fmt: skip
        (wheel,) = (place / "out").iterdir()
        made.append((wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest()))
    assert made[0] == made[1]


def test_the_image_installs_by_hash() -> None:
    text = (ROOT / "deploy/docker/Dockerfile").read_text()
    assert "--require-hashes" in text
    assert "--no-index" in text
    assert "--constraint" not in text


def test_what_the_image_is_made_of_has_no_time_of_its_own() -> None:
    text = (ROOT / "deploy/docker/Dockerfile").read_text()
    assert "ARG SOURCE_DATE_EPOCH" in text
    assert text.count("--no-compile") == 2
    assert "compileall -q -f -j 0 --invalidation-mode unchecked-hash" in text, "what pip compiled when it ran has times"


class Registry(BaseHTTPRequestHandler):
    """A registry that wants a token first, as Docker Hub does."""

    def do_HEAD(self) -> None:
        if self.headers.get("Authorization") == "Bearer t":
            known = self.path == "/v2/library/debian/manifests/12-slim"
            self.send_response(200 if known else 404)
            self.send_header("Docker-Content-Digest", DIGEST)
        else:
            self.send_response(401)
            realm = f"http://127.0.0.1:{self.server.server_port}/token"  # type: ignore[attr-defined]
            self.send_header("WWW-Authenticate", f'Bearer realm="{realm}",service="s",scope="repository:library/debian:pull"')
        self.end_headers()

    def do_GET(self) -> None:
        right = self.path == "/token?service=s&scope=repository%3Alibrary%2Fdebian%3Apull"
        self.send_response(200 if right else 400)
        self.end_headers()
        self.wfile.write(b'{"token": "t"}')

    def log_message(self, format: str, *arguments: object) -> None:
        pass


DIGEST = "sha256:" + "0a" * 32


def test_the_digest_of_a_base_image_stands_in_one_place() -> None:
    pins = script("pin_images")
    for path, place in pins.PLACES.items():
        assert len(place.findall(path.read_text())) == 1, path
    lines = (ROOT / "deploy/docker/Dockerfile").read_text().splitlines()
    assert {line.split()[1] for line in lines if line.startswith("FROM ")} == {"${BASE}"}
    assert [line for line in lines if "debian:" in line and not line.startswith("#")] == [
        line for line in lines if line.startswith("ARG BASE=")
    ]


@pytest.mark.parametrize(
    ("base", "unpinned", "built"),
    [
        ("debian:12-slim", "no", False),
        ("debian:12-slim", "", False),
        ("debian:12-slim", "yes", True),
        (f"mirror.example/debian:12-slim@{DIGEST}", "no", True),
        ("yes", "no", False),
    ],
)
def test_a_base_without_a_digest_is_not_built_upon_unless_that_is_asked_for(base: str, unpinned: str, built: bool) -> None:
    text = (ROOT / "deploy/docker/Dockerfile").read_text()
    stage = text[text.index("FROM ${BASE} AS build") :]
    assert stage.index("ARG BASE\nARG UNPINNED=no\nRUN case") < stage.index("RUN apt-get"), "nothing is fetched before"
    step = stage[stage.index("RUN case") + 4 : stage.index("esac") + 4].replace("\\\n", "")
    done = subprocess.run(["sh", "-c", step], env={"BASE": base, "UNPINNED": unpinned}, capture_output=True, text=True)
    assert (done.returncode == 0) == built
    assert built or "make pin-images" in done.stderr


def test_digests_are_those_of_the_registry() -> None:
    pins = script("pin_images")
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            asked = partial(pins.digest_of, registry=f"http://127.0.0.1:{server.server_port}")
            place = pins.PLACES[ROOT / "deploy/docker/Dockerfile"]
            for old in ("", "@sha256:" + "0" * 64):
                text = pins.pinned(f"x\nARG BASE=debian:12-slim{old}\ny\n", place, asked)
                assert text == f"x\nARG BASE=debian:12-slim@{DIGEST}\ny\n"
            with pytest.raises(OSError, match="404"):
                asked("debian", "13")
        finally:
            server.shutdown()
            thread.join()

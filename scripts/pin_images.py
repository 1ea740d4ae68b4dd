"""Pin the base images by digest: `make pin-images`, where a registry can be reached.

Asks the registry of each image that the files below name for the digest of its tag (the list of all its platforms), and writes
`NAME:TAG@sha256:…` in its place. The tag stays readable; the digest is what is fetched.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

ROOT = Path(__file__).parents[1]
PLACES = {
    ROOT / "deploy/docker/Dockerfile": re.compile(r"(?m)^(ARG BASE=)([\w./-]+):([\w.-]+)(@sha256:[0-9a-f]{64})?$"),
    ROOT / "deploy/docker/compose.yml": re.compile(r"(?m)^(    image: )([\w.-]+/[\w./-]+):([\w.-]+)(@sha256:[0-9a-f]{64})?$"),
}
"""The one place in each file. Each match is: what stands before, name, tag, digest."""
DOCKER_HUB = "https://registry-1.docker.io"
_KINDS = ", ".join(f"application/vnd.{kind}+json" for kind in ("oci.image.index.v1", "docker.distribution.manifest.list.v2"))
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
TIMEOUT_S = 30


def digest_of(name: str, tag: str, registry: str = DOCKER_HUB) -> str:
    """Return the digest of a tag. Raises OSError if the registry cannot be asked, ValueError for an answer that has none."""
    path = f"{registry}/v2/{name if '/' in name else f'library/{name}'}/manifests/{tag}"
    headers = {"Accept": _KINDS}
    try:
        answer = urlopen(Request(path, method="HEAD", headers=headers), timeout=TIMEOUT_S)
    except HTTPError as error:
        challenge = dict(_CHALLENGE.findall(error.headers.get("WWW-Authenticate", "")))
        if error.code != 401 or "realm" not in challenge:
            raise
        with urlopen(f"{challenge.pop('realm')}?{urlencode(challenge)}", timeout=TIMEOUT_S) as granted:
            headers["Authorization"] = f"Bearer {json.load(granted)['token']}"
        answer = urlopen(Request(path, method="HEAD", headers=headers), timeout=TIMEOUT_S)
    with answer:
        found = str(answer.headers.get("Docker-Content-Digest", ""))
    if not _DIGEST.fullmatch(found):
        raise ValueError(f"{path}: the registry names no digest")
    return found


def pinned(text: str, place: re.Pattern[str], digest: Callable[[str, str], str]) -> str:
    """Return a file's text with the digests as they are now."""
    return place.sub(lambda found: f"{found[1]}{found[2]}:{found[3]}@{digest(found[2], found[3])}", text)


def main() -> None:
    """Write the files."""
    for path, place in PLACES.items():
        try:
            path.write_text(pinned(path.read_text(encoding="utf-8"), place, digest_of), encoding="utf-8")
        except (OSError, ValueError) as error:
            sys.exit(f"{path.relative_to(ROOT)} is as it was: {error}")


if __name__ == "__main__":
    main()

"""A headless Chromium that a test drives by its DevTools protocol, over a pipe: Debian's package `chromium` is all that it needs."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.support.delivery.runs import await_that

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ANSWER_S = PATIENCE_S = 120.0
MISSING = "there is no Chromium on this machine: apt-get install chromium (or TIDEMILL_CHROMIUM=PATH)"
_CODES = {"Escape": 27, "Enter": 13, "/": 191, "?": 191}
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"),
    *("--remote-debugging-pipe", "--hide-scrollbars", "--disable-dev-shm-usage", "--disable-extensions", "--lang=en-US"),
)


def chromium() -> str | None:
    """The path of a Chromium, or None."""
    named = os.environ.get("TIDEMILL_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab. `faults`: what the page's console, its scripts and its policy complained about."""

    def __init__(self, profile: Path) -> None:
        path = chromium()
        assert path is not None, MISSING
        to_read, ours_to_write = os.pipe()
        ours_to_read, to_write = os.pipe()

        def place() -> None:
            """The protocol's pipes are 3 and 4."""
            taken = [os.dup(to_read), os.dup(to_write)]
            for number, one in zip((3, 4), taken, strict=True):
                os.dup2(one, number, inheritable=True)

        self._process = subprocess.Popen(
            [path, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=place,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._in, self._out = os.fdopen(ours_to_write, "wb", 0), os.fdopen(ours_to_read, "rb")
        self._answers: Queue[dict[str, Any]] = Queue()
        self.faults: list[str] = []
        self.requests: list[str] = []
        self._last = 0
        self._session = ""
        threading.Thread(target=self._listen, daemon=True).start()
        (tab,) = [one for one in self._call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self._session = self._call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def _listen(self) -> None:
        rest = b""
        with suppress(OSError, ValueError):
            while data := self._out.read1(1 << 20):  # type: ignore[attr-defined]
                *whole, rest = (rest + data).split(b"\0")
                for one in whole:
                    self._take(json.loads(one))

    def _take(self, found: dict[str, Any]) -> None:
        if "id" in found:
            self._answers.put(found)
            return
        told = found.get("params", {})
        match found["method"]:
            case "Runtime.exceptionThrown":
                details = told["exceptionDetails"]
                self.faults.append(details.get("exception", {}).get("description") or details["text"])
            case "Log.entryAdded" if told["entry"]["level"] == "error":
                self.faults.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
            case "Runtime.consoleAPICalled" if told["type"] == "error":
                self.faults.append(str(told["args"]))
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        asked = {"id": self._last, "method": method, "params": parameters} | ({"sessionId": self._session} if self._session else {})
        self._in.write(json.dumps(asked).encode() + b"\0")
        while True:
            try:
                answer = self._answers.get(timeout=ANSWER_S)
            except Empty:
                raise AssertionError(f"Chromium does not answer {method}") from None
            if answer["id"] == self._last:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def close(self) -> None:
        with suppress(OSError, AssertionError):
            self._session = ""
            self._call("Browser.close")
        self._in.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    # ---- for tests

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        what = f"Boolean({expression})"
        await_that(lambda: bool(self.js(what)), f"{expression}; {self.faults}", within_s=PATIENCE_S)

    def text(self, selector: str) -> str:
        return str(self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, selector: str) -> None:
        self.js(f"document.querySelector({json.dumps(selector)}).click()")

    def key(self, key: str) -> None:
        """Press a key where the focus is."""
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        code = _CODES.get(key, ord(key[0].upper()))
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Type into the element that has the focus."""
        self._call("Input.insertText", text=text)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window, and whether the system is dark."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as a PNG."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))


@contextmanager
def opened(profile: Path) -> Iterator[Page]:
    page = Page(profile)
    try:
        yield page
    finally:
        page.close()

"""A real browser for tests of pages: Chromium without a window, asked through its debugging pipe.

    with Browser() as browser:
        seen = browser.look(path, width=400, is_dark=True, ask="document.title")
        seen.answer, seen.complaints, seen.requests, seen.picture

Nothing is installed for it but the browser. A page is a file; whatever it asks the network for is noted, and refused.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DEADLINE_S = 60
HEIGHT = 900
# The browser reads orders from descriptor 3 and answers by 4, whatever they were before.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
    os.close(end)
os.execv(sys.argv[3], sys.argv[3:])
"""


def browser_command() -> str | None:
    """The browser of this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def missing() -> str | None:
    """What keeps a page from being looked at; None if nothing does."""
    return None if browser_command() else f"the report is looked at in Chromium, and there is none ({', '.join(NAMES)})"


class Seen(NamedTuple):
    """What became of a page."""

    answer: Any  # of the question that was asked in it
    complaints: list[str]  # what the console, the engine and exceptions have said
    requests: list[str]  # addresses other than the page's own
    picture: bytes  # PNG of the whole page


class Browser:
    """A browser, as long as the block lasts."""

    def __enter__(self) -> Self:
        command = browser_command()
        assert command is not None
        self._profile = tempfile.mkdtemp(prefix="browser-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        self._said = b""
        self._number = 0
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
                   f"--user-data-dir={self._profile}", "--remote-debugging-pipe", "about:blank"]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(to_browser), str(from_browser), command, *options],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._tell("Browser.close")
            self._process.wait(DEADLINE_S)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._write)
            os.close(self._read)
            shutil.rmtree(self._profile, ignore_errors=True)  # a helper of the browser may still write to it

    def look(self, page: Path, *, ask: str, width: int = 1200, is_dark: bool = False) -> Seen:
        """Open a page in a window of some width, and ask it for the value of an expression."""
        address = page.resolve().as_uri()
        target = self._tell("Target.createTarget", url="about:blank")["targetId"]
        session = self._tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        events: list[Any] = []

        def tell(method: str, **given: Any) -> Any:
            return self._tell(method, session, events, **given)

        for domain in ("Page", "Runtime", "Log", "Network"):
            tell(f"{domain}.enable")
        tell("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=False)
        scheme = "dark" if is_dark else "light"
        tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tell("Network.setBlockedURLs", urls=["http://*", "https://*", "ws://*", "wss://*"])
        tell("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in events):
            events.append(self._next())
        found = tell("Runtime.evaluate", expression=f"JSON.stringify({ask})", awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        picture = tell("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        self._tell("Target.closeTarget", targetId=target)
        sent = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
        return Seen(
            json.loads(found["result"]["value"]),
            [json.dumps(event["params"]) for event in events if _is_complaint(event)],
            [url for url in sent if url != address],
            base64.b64decode(picture),
        )

    def _tell(self, method: str, session: str | None = None, events: list[Any] | None = None, **given: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": given}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            if events is not None and answer.get("sessionId") == session:
                events.append(answer)

    def _next(self) -> Any:
        """The next thing that the browser says."""
        deadline = time.monotonic() + DEADLINE_S
        while b"\0" not in self._said:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"the browser has said nothing for {DEADLINE_S} s"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._said += data
        one, _, self._said = self._said.partition(b"\0")
        return json.loads(one)


def _is_complaint(event: Any) -> bool:
    return event["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")

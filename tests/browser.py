"""A real browser, driven through its DevTools: Debian's chromium, without further packages."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sessions import HUNG, kill_session

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--mute-audio",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
#: what DevTools reads from and writes to
FROM_US, TO_US = 3, 4
#: a telephone
WIDTH, HEIGHT = 375, 800


class Browser:
    """One window; ``errors`` are what its console has said, ``requests`` what it has asked for, of the present page."""

    def __init__(self, wish: int, answer: int) -> None:
        self.wish, self.answer = wish, answer
        self.rest, self.number = b"", 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        given = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self.session: str | None = given["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.resize(WIDTH, HEIGHT)

    session = None

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events before it are noted."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.wish, json.dumps(message).encode() + b"\0")
        while True:
            received = self._receive(HUNG)
            assert received is not None, f"{method} was not answered"
            if received.get("id") == self.number:
                assert "error" not in received, (method, received["error"])
                return dict(received["result"])

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        """The next message, None if there is none in time; what events say is kept."""
        while b"\0" not in self.rest:
            if not select.select([self.answer], [], [], seconds)[0]:
                return None
            part = os.read(self.answer, 1 << 20)
            assert part, "the browser has ended"
            self.rest += part
        text, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(text)
        event, told = message.get("method"), message.get("params", {})
        if event == "Runtime.exceptionThrown":
            self.errors.append(str(told["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.errors.append(str(told["args"]))
        elif event == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(told["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif event == "Page.loadEventFired":
            self.loaded = True
        return dict(message)

    def resize(self, width: int, height: int) -> None:
        """Of the window, as a telephone has it."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def open(self, file: Path) -> None:
        """Show a file, until it is loaded."""
        self.errors.clear()
        self.requests.clear()
        self.loaded = False
        self.ask("Page.navigate", url=file.as_uri())
        self.until(lambda: self.loaded)

    def reload(self) -> None:
        """Load the present page again, until it is loaded; no question is asked while the page changes."""
        self.loaded = False
        self.ask("Page.reload")
        self.until(lambda: self.loaded)

    def value(self, expression: str) -> Any:
        """Of a JavaScript expression; promises are waited for."""
        made = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in made, made
        return made["result"].get("value")

    def until(self, what: Callable[[], bool]) -> None:
        """Wait, and take what the page says meanwhile."""
        deadline = time.monotonic() + HUNG
        while not what():
            assert time.monotonic() < deadline, "the page does not get there"
            self._receive(0.05)

    def move(self, x: float, y: float) -> None:
        """The mouse."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        """With the left button."""
        self.move(x, y)
        for event in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector: str, across: float = 0.5) -> tuple[float, float]:
        """Where an element is in the window, after it has been brought into view; ``across`` is the part from its left."""
        box = self.value(
            f"(() => {{const e = document.querySelector({selector!r}); "
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); "
            "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]})()"
        )
        return box[0] + across * box[2], box[1] + 0.5 * box[3]

    def picture(self, file: Path, whole: bool = True) -> None:
        """A screenshot, of the whole page."""
        made = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(made["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; where there is none the test is skipped."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser, none of {', '.join(NAMES)}: apt-get install chromium")
    for_browser, wish = os.pipe()
    answer, from_browser = os.pipe()

    def hand_over() -> None:
        # copies first: one of the pipes may have the number that the other is to get
        both = os.dup(for_browser), os.dup(from_browser)
        os.dup2(both[0], FROM_US)
        os.dup2(both[1], TO_US)

    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
        preexec_fn=hand_over,  # noqa: PLW1509 - pass_fds keeps numbers, and DevTools wants 3 and 4
        close_fds=False,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(for_browser)
    os.close(from_browser)
    try:
        yield Browser(wish, answer)
    finally:
        kill_session(process.pid)
        process.wait()
        os.close(wish)
        os.close(answer)

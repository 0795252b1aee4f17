"""A small client of Chromium's DevTools protocol over a pipe, for tests of pages; the standard library alone.

The browser reads commands from its descriptor 3 and writes answers and events to 4, JSON texts with a zero byte behind
each. A page is a target with a session of its own. Commands wait for their answer; events are kept in order.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

PATIENCE_S = 60.0
"""For everything that is sure to happen, however busy the machine is."""

Json = dict[str, Any]
T = TypeVar("T")

# The descriptors that the pipe has to have are often in use here, so a process between moves them.
_LAUNCH = """
import fcntl, os, sys
into, out = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(into, 3)
os.dup2(out, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""

_OPTIONS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--hide-scrollbars", "--font-render-hinting=none", "--force-color-profile=srgb", "--mute-audio", "about:blank",
)  # fmt: skip

# Violations of the policy are also written to the console, but as text of the browser's own choice.
_LISTEN = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  violations.push(`${event.violatedDirective}: ${event.blockedURI || event.sourceFile} ${event.sample}`);
});
"""


NAVIGATED = "Inspected target navigated"
"""In the error of a question that a page was asked while the next one came."""


class BrowserError(Exception):
    """The browser refused a command, or ended."""


class Browser:
    """A running browser; a context manager, which ends it."""

    def __init__(self, executable: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="hived-browser-")
        into, self._commands = os.pipe()
        self._answers, out = os.pipe()
        command = [sys.executable, "-c", _LAUNCH, str(into), str(out), executable, *_OPTIONS]
        command.append(f"--user-data-dir={self._profile}")
        self.process = subprocess.Popen(
            command, pass_fds=(into, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        os.close(into)
        os.close(out)
        self._number = 0
        self._replies: dict[int, Json] = {}
        self._news = threading.Condition()
        self._is_open = True
        self._events: dict[str, list[Json]] = {}
        threading.Thread(target=self._read, name="browser", daemon=True).start()

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call("Browser.close")
            self.process.wait(PATIENCE_S)
        except (BrowserError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._commands)
        shutil.rmtree(self._profile, ignore_errors=True)

    def pids(self) -> list[int]:
        """The processes of the browser and of its pages."""
        found = self.call("SystemInfo.getProcessInfo")["processInfo"]
        return [int(each["id"]) for each in found]

    def page(self, width: int = 1280, height: int = 900, **options: Any) -> "Page":
        """A new page; the options are those of `Page`."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        return Page(self, session, target, width, height, **options)

    def call(self, method: str, parameters: Mapping[str, Any] | None = None, session: str = "") -> Json:
        """The result of a command. Raises BrowserError if it is refused, or not answered in time."""
        with self._news:
            self._number += 1
            number = self._number
        message: Json = {"id": number, "method": method, "params": dict(parameters or {})}
        if session:
            message["sessionId"] = session
        try:
            _write_all(self._commands, json.dumps(message).encode() + b"\0")
        except OSError as error:
            raise BrowserError(f"{method}: the browser has ended") from error
        with self._news:
            is_answered = self._news.wait_for(lambda: number in self._replies or not self._is_open, PATIENCE_S)
            reply = self._replies.pop(number, None)
        if reply is None:
            raise BrowserError(f"{method}: {'the browser has ended' if is_answered else 'no answer'}")
        if "error" in reply:
            raise BrowserError(f"{method}: {reply['error'].get('message')}")
        result: Json = reply["result"]
        return result

    def events(self, session: str) -> list[Json]:
        """All events of a session so far, as they came."""
        with self._news:
            return list(self._events.get(session, ()))

    def wait_for(self, session: str, wanted: Callable[[Json], bool], after: int = 0) -> Json:
        """The first event of a session that is wanted, from the one with this number on. Raises BrowserError."""
        until = time.monotonic() + PATIENCE_S
        with self._news:
            while True:
                found = next((each for each in self._events.get(session, [])[after:] if wanted(each)), None)
                if found is not None:
                    return found
                if not self._is_open or not self._news.wait(until - time.monotonic()):
                    raise BrowserError("what was waited for did not happen")

    def _read(self) -> None:
        rest = b""
        with open(self._answers, "rb", buffering=0) as pipe:
            while chunk := pipe.read(1 << 16):
                *messages, rest = (rest + chunk).split(b"\0")
                with self._news:
                    for message in map(json.loads, messages):
                        if "id" in message:
                            self._replies[message["id"]] = message
                        else:
                            self._events.setdefault(message.get("sessionId", ""), []).append(message)
                    self._news.notify_all()
        with self._news:
            self._is_open = False
            self._news.notify_all()


class Page:
    """A tab of its own, with cookies and a cache of its own; a context manager, which closes it.

    `dark` chooses the colours, `scripts` says whether pages may run any, `headers` go with every request.
    """

    def __init__(
        self,
        browser: Browser,
        session: str,
        target: str,
        width: int,
        height: int,
        *,
        dark: bool = False,
        scripts: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=_LISTEN)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])
        if not scripts:
            self.call("Emulation.setScriptExecutionDisabled", value=True)
        if headers:
            self.call("Network.setExtraHTTPHeaders", headers=dict(headers))

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.call("Target.closeTarget", {"targetId": self._target})

    def call(self, method: str, **parameters: Any) -> Json:
        """A command for this page."""
        return self._browser.call(method, parameters, self._session)

    def open(self, url: str) -> None:
        """Go to an address and wait until the page is loaded. Raises BrowserError."""
        before = len(self.events())
        answer = self.call("Page.navigate", url=url)
        if "errorText" in answer:
            raise BrowserError(f"{url}: {answer['errorText']}")
        self._browser.wait_for(self._session, lambda event: event["method"] == "Page.loadEventFired", before)

    def events(self, method: str = "") -> list[Json]:
        """The events so far, of one kind if `method` names it."""
        return [event for event in self._browser.events(self._session) if method in ("", event["method"])]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, once its promise is kept. Raises BrowserError if it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(f"{expression[:80]}: {details.get('exception', details).get('description', details)}")
        return answer["result"].get("value")

    def wait_until(self, expression: str) -> Any:
        """The value of a JavaScript expression as soon as it is true, also of the next page. Raises BrowserError."""
        until = time.monotonic() + PATIENCE_S
        while True:
            value = None
            try:
                value = self.evaluate(expression)
            except BrowserError as error:
                if NAVIGATED not in str(error):
                    raise
            if value:
                return value
            if time.monotonic() > until:
                raise BrowserError(f"{expression[:200]}: still {value!r}")
            time.sleep(0.02)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key, by the name that pages know it by."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        fields = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0])), "modifiers": 8 if shift else 0}
        if len(key) > 1:
            fields["code"] = key
        self.call("Input.dispatchKeyEvent", type="keyDown", **fields, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def type(self, text: str) -> None:
        """Type letters, one key after the other, where the focus is."""
        for letter in text:
            self.press(letter)

    def choose_file(self, selector: str, path: Path) -> None:
        """Choose a file in the field that a selector finds."""
        root = self.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        field = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=field, files=[str(path)])

    def use(self, selector: str) -> None:
        """Click on a button or link that a selector finds, and wait for the page that it leads to."""
        before = len(self.events())
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
        self._browser.wait_for(self._session, lambda event: event["method"] == "Page.loadEventFired", before)

    def click(self, x: float, y: float) -> None:
        """Click at a point of the view."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, *, whole: bool = False, width: int = 0, height: int = 0) -> None:
        """Write what is in view, the whole page, or its first `width` x `height` points, as PNG."""
        clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}} if height else {}
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole or bool(height), format="png", **clip)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def troubles(self) -> list[str]:
        """Everything that went wrong so far: errors and warnings of the console, exceptions, failed requests."""
        found = []
        for event in self.events():
            method, given = event["method"], event["params"]
            if method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
                found.append(" ".join(str(each.get("value", each.get("description"))) for each in given["args"]))
            elif method == "Runtime.exceptionThrown":
                details = given["exceptionDetails"]
                found.append(details.get("exception", {}).get("description") or details["text"])
            elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                found.append(f"{given['entry']['text']} ({given['entry'].get('url', '')})")
            elif method == "Network.loadingFailed" and not given.get("canceled"):
                found.append(f"a request failed: {given['errorText']}")
        return found

    def violations(self) -> list[str]:
        """What the content security policy of the present page has forbidden."""
        found: list[str] = self.evaluate("window.violations || []")
        return found


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]

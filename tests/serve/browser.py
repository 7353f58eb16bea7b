"""Chromium, driven over its DevTools protocol as a person would use it: clicks and keys are real input events.

All tests of a process share one browser; a page has cookies and storage of its own.
"""

import asyncio
import atexit
import base64
import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.suite.patience import PATIENCE_SECONDS

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "there is no browser: apt-get install chromium, or set BRIDLE_BROWSER to one"
FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-popup-blocking",
    "--host-resolver-rules=MAP evil.test 127.0.0.1",
    "--mute-audio",
    "--force-color-profile=srgb",
    # Else a page that changes its address 200 times within 10 seconds stays where it is.
    "--disable-ipc-flooding-protection",
)
LISTENING = "DevTools listening on "
UNTIL_ITS_PARENT_ENDS = '"$@" & exec 2>/dev/null; cat; kill -KILL 0'
"""Shell: run a program, and end it with all it started when standard input is closed, also by the death of the parent."""
KEYS = {"Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "Tab": ("Tab", 9, "")}
WAIT = """new Promise((done) => {
  const look = () => {
    let found;
    try { found = (%s); } catch (error) { found = null; }
    if (found) done(found === true || typeof found !== "object" ? found : true); else setTimeout(look, 15);
  };
  look();
})"""


def find_browser():
    """Path of a browser; None if the machine has none."""
    given = os.environ.get("BRIDLE_BROWSER")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


@functools.cache
def start_browser():
    """Start the browser with a profile of its own; returns its address. It ends with this process."""
    profile = TemporaryDirectory(prefix="bridle-browser-", ignore_cleanup_errors=True)
    root = ("--no-sandbox",) if os.geteuid() == 0 else ()
    process = subprocess.Popen(
        ["sh", "-c", UNTIL_ITS_PARENT_ENDS, "sh", find_browser(), *FLAGS, *root, f"--user-data-dir={profile.name}", "about:blank"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip

    def end():
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        profile.cleanup()

    atexit.register(end)
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.startswith(LISTENING):
            # Its further messages are of no interest, but must not fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return line.removeprefix(LISTENING).strip()
    raise AssertionError(f"the browser did not start: {''.join(seen)}")


@asynccontextmanager
async def open_browser():
    """A connection to the browser; its pages are closed at the end."""
    import aiohttp

    address = await asyncio.to_thread(start_browser)
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(address, max_msg_size=0, timeout=aiohttp.ClientWSTimeout()) as socket,
    ):
        browser = Browser(socket)
        try:
            yield browser
        finally:
            await browser.close()


class Browser:
    def __init__(self, socket):
        self._socket = socket
        self._numbers, self._replies, self._pages = itertools.count(1), {}, {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self):
        async for message in self._socket:
            data = json.loads(message.data)
            if "id" in data:
                reply = self._replies.pop(data["id"], None)
                if reply is not None and not reply.done():
                    reply.set_result(data)
            elif (page := self._pages.get(data.get("sessionId"))) is not None:
                page.notice(data["method"], data["params"])
        for reply in self._replies.values():
            reply.cancel()

    async def send(self, method, params=None, session=None):
        number = next(self._numbers)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params or {}}
        await self._socket.send_json({**message, "sessionId": session} if session else message)
        async with asyncio.timeout(PATIENCE_SECONDS):
            data = await reply
        if "error" in data:
            raise AssertionError(f"{method}: {data['error']['message']}")
        return data["result"]

    async def new_page(self, *, width=1280, height=800, dark=False):
        """A tab with cookies and storage of its own."""
        context = (await self.send("Target.createBrowserContext"))["browserContextId"]
        target = await self.send("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        attached = await self.send("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        page = Page(self, attached["sessionId"], context)
        self._pages[page.session] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            await page.send(f"{domain}.enable")
        await page.send("Runtime.addBinding", {"name": "canary"})
        await page.resize(width, height)
        await page.set_dark(dark)
        return page

    async def forget(self, page):
        self._pages.pop(page.session)
        await self.send("Target.disposeBrowserContext", {"browserContextId": page.context})

    async def close(self):
        for page in list(self._pages.values()):
            await page.close()
        self._reading.cancel()


class Page:
    """A tab. What it did without being asked is in `dialogs`, `errors`, `requests` and `canaries`."""

    def __init__(self, browser, session, context):
        self._browser, self.session, self.context = browser, session, context
        self.dialogs, self.errors, self.requests, self.canaries = [], [], [], []
        self._tasks = set()

    async def send(self, method, params=None):
        return await self._browser.send(method, params, self.session)

    def notice(self, method, params):
        if method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
            self._later(self.send("Page.handleJavaScriptDialog", {"accept": True}))
        elif method == "Runtime.bindingCalled":
            self.canaries.append(params["payload"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            detail = params["exceptionDetails"]
            self.errors.append(detail.get("exception", {}).get("description") or detail["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(str([each.get("value") or each.get("description") for each in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def _later(self, work):
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self):
        await self._browser.forget(self)

    async def resize(self, width, height):
        mobile = width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        await self.send("Emulation.setDeviceMetricsOverride", size)

    async def set_dark(self, dark):
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", {"features": [feature]})

    async def visit(self, url):
        reply = await self.send("Page.navigate", {"url": url})
        await self.wait("document.readyState === 'complete'")
        return reply.get("errorText", "")

    async def evaluate(self, expression):
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        reply = await self.send("Runtime.evaluate", asked)
        if "exceptionDetails" in reply:
            raise AssertionError(reply["exceptionDetails"].get("exception", {}).get("description", reply))
        return reply["result"].get("value")

    async def wait(self, expression):
        """Wait until a JavaScript expression is true, and return its value if that is plain."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    try:
                        return await self.evaluate(WAIT % expression)
                    except AssertionError as error:  # the page was replaced meanwhile
                        if "navigated" not in str(error) and "context" not in str(error):
                            raise
        except TimeoutError:
            text = await self.evaluate("document.body.innerText.slice(0, 3000)")
            raise AssertionError(f"never true: {expression}\nthe page shows: {text}\n{self.errors}") from None

    async def wait_for(self, selector, text=""):
        """Wait for an element that contains a text; returns its text."""
        find = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return await self.wait(
            f"{find}.find((each) => each.textContent.includes({json.dumps(text)}))?.textContent || ''"
        )

    async def count(self, selector):
        return await self.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")

    async def text(self, selector="body"):
        return await self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    async def click(self, selector, text=""):
        """Move the mouse to an element that is in view and not covered, and click."""
        find = f"[...document.querySelectorAll({json.dumps(selector)})].find((each) => each.textContent.includes({json.dumps(text)}))"
        place = await self.wait(f"""(() => {{
            const node = {find};
            if (!node) return '';
            node.scrollIntoView({{block: 'center', inline: 'center'}});
            const box = node.getBoundingClientRect();
            const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
            const top = document.elementFromPoint(x, y);
            return box.width && top && (node.contains(top) || top.contains(node)) ? `${{x}} ${{y}}` : '';
        }})()""")
        x, y = map(float, place.split())
        for kind in ("mousePressed", "mouseReleased"):
            event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
            await self.send("Input.dispatchMouseEvent", event)

    async def press(self, *keys):
        for key in keys:
            name, code, text = KEYS.get(key, (key, ord(key.upper()[0]), key))
            event = {"key": name, "code": name, "windowsVirtualKeyCode": code}
            await self.send("Input.dispatchKeyEvent", {"type": "keyDown", "text": text, **event})
            await self.send("Input.dispatchKeyEvent", {"type": "keyUp", **event})

    async def type(self, text):
        await self.send("Input.insertText", {"text": text})

    async def fill(self, selector, text):
        await self.click(selector)
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).select?.()")
        await self.type(text)

    async def choose(self, selector, value):
        await self.wait_for(f"{selector} option[value={json.dumps(value)}]")
        await self.evaluate(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)}); node.value = {json.dumps(value)};"
            " node.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    async def screenshot(self, path):
        reply = await self.send("Page.captureScreenshot", {"format": "png"})
        Path(path).write_bytes(base64.b64decode(reply["data"]))

    async def settle(self):
        """Wait until two frames have been drawn."""
        await self.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        )

    async def read_metrics(self):
        reply = await self.send("Performance.getMetrics")
        return {each["name"]: each["value"] for each in reply["metrics"]}

"""Makes screenshots of every view of the inspector, at desktop and phone size, light and dark.

.venv/bin/python bench/inspector_screens.py [FOLDER]      (bench/.work/screens)
"""

import asyncio
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("BRIDLE_APPROVAL_KEY_FILE", str(ROOT / "bench/.work/approval.key"))

from bridle.stores.memory import MemoryStore
from tests.serve.browser import MISSING, find_browser, open_browser
from tests.serve.inspected import fill_store, make_agents
from tests.serve.serving import serve_agents

SIZES = {"desktop": (1280, 800), "phone": (375, 812)}
VIEWS = {
    "timeline": ("late-order", "timeline", "document.querySelectorAll('.trow').length > 8"),
    "timeline-panel": ("late-order", "timeline", "document.querySelectorAll('.trow').length > 8"),
    "transcript": ("late-order", "transcript", "document.querySelector('.entry')"),
    "transcript-end": ("late-order", "transcript", "document.querySelector('.entry')"),
    "transcript-edit": ("fix-cart", "transcript", "document.querySelector('.entry')"),
    "requests": ("late-order", "requests", "document.querySelector('.crow[role=listitem]')"),
    "request": ("late-order", "requests", "document.querySelector('.crow[role=listitem]')"),
    "cache": ("late-order", "cache", "document.querySelector('.krow .cached')"),
    "cache-misses": ("returns", "cache", "document.querySelector('.krow .cached')"),
    "cost": ("late-order", "cost", "document.querySelector('.lrow .num')"),
    "branches": ("late-order", "branches", "document.querySelectorAll('.brow').length > 1"),
    "compare": ("late-order", "branches?compare=late-order-2", "document.querySelector('.pair')"),
    "approvals": ("refund", "approvals", "document.querySelector('.card')"),
    "events": ("late-order", "events", "document.querySelector('.erow')"),
    "event": ("late-order", "events", "document.querySelector('.erow')"),
    "tool": ("late-order", "timeline", "document.querySelectorAll('.trow').length > 8"),
    "fork": ("late-order", "timeline", "document.querySelectorAll('.trow').length > 8"),
    "keys": ("late-order", "timeline", "document.querySelectorAll('.trow').length > 8"),
    "missing": ("no-such-session", "timeline", "document.querySelector('#main .error')"),
}
STEPS = {
    "timeline-panel": "document.querySelector('.trow[data-kind=model]').click()",
    "transcript-end": "document.querySelector('.toolbar button:last-child').click()",
    "transcript-edit": "document.querySelector('.toolbar button:last-child').click()",
    "event": "document.querySelectorAll('.erow')[3].click()",
    "tool": "document.querySelector('.trow[data-kind=tool]').click()",
    "fork": "document.querySelector('.controls button:last-child').click()",
    "keys": "dispatchEvent(new KeyboardEvent('keydown', {key: '?', bubbles: true}))",
    "request": "document.querySelectorAll('.crow[role=listitem]')[3].click()",
}


async def make_screens(folder):
    folder.mkdir(parents=True, exist_ok=True)
    async with serve_agents(make_agents(), MemoryStore()) as serving, open_browser() as browser:
        await fill_store(serving.host)
        for size, (width, height) in SIZES.items():
            for dark in (False, True):
                page = await browser.new_page(width=width, height=height, dark=dark)
                name = f"{size}-{'dark' if dark else 'light'}"
                await page.visit(f"{serving.url}/")
                await page.wait_for(".row[data-session]")
                await page.settle()
                await page.screenshot(folder / f"list-{name}.png")
                await page.visit(f"{serving.url}/#/?text=nothing-has-this")
                await page.wait("!document.querySelector('.row[data-session]')")
                await page.settle()
                await page.screenshot(folder / f"list-empty-{name}.png")
                for view, (session, tab, ready) in VIEWS.items():
                    await page.visit("about:blank")
                    await page.visit(f"{serving.url}/#/session/{session}/{tab}")
                    await page.wait(ready)
                    if view in STEPS:
                        await page.evaluate(STEPS[view])
                    await page.settle()
                    await page.screenshot(folder / f"{view}-{name}.png")
                assert all("no-such-session" in each for each in page.errors), page.errors
                await page.close()


if __name__ == "__main__":
    if find_browser() is None:
        raise SystemExit(MISSING)
    asyncio.run(make_screens(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench/.work/screens"))

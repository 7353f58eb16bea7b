"""Opens an address in a browser without showing it to other users of the machine.

The words of a command line are visible to everyone on the machine, and an address may hold a token. So the browser gets
the path of a file that only this user can read, which leads to the address. The file is removed with the process.
"""

import atexit
import html
import os
import shutil
import tempfile
import webbrowser
from pathlib import Path

PAGE = (
    '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>bridle</title>'
    '<meta http-equiv="refresh" content="0;url={address}"><a href="{address}">continue</a>\n'
)


def open_privately(address: str) -> bool:
    """Open an http(s) address in the user's browser; False if there is no browser, or no place for the file."""
    if not address.startswith(("http://", "https://")):
        return False
    try:
        page = write_page(address)
        # guard: browser-gets-file
        return webbrowser.open(page.as_uri())
    except OSError:
        return False


def write_page(address: str) -> Path:
    """A page that leads to the address, in a folder that only this user can open; removed with the process."""
    folder = tempfile.mkdtemp(prefix="bridle-open-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    page = Path(folder) / "open.html"
    descriptor = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(PAGE.format(address=html.escape(address, quote=True)))
    return page

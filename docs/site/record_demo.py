"""Record the first two acts of `make demo` in a terminal, and draw them as an animated picture.

    python docs/site/record_demo.py      writes docs/pictures/demo.svg

What is drawn is what the terminal showed, line by line, at the time at which it showed it; only pauses are shortened.
"""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass

from take_pictures import CELL, LINE, PAD, PICTURES, ROOT, draw_spans

COLUMNS = 80
ROWS = 22
END = "── 3 of "
"""The act that begins with this is not recorded."""
PAUSE_MAX = 1.1
LAST_SECONDS = 5.0
SHORTEST = 0.06
"""Seconds; what was on the screen for less is left out."""
CONTROL = re.compile(r"(\x1b\[1A|\x1b\[2K|\r|\n)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
Output = tuple[float, str]


@dataclass
class Shown:
    """A text on a line of the terminal, from a time until another one."""

    row: int
    text: str
    start: float
    end: float | None = None


def main() -> int:
    shown = find_texts(shorten_pauses(record_demo()))
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "demo.svg").write_text(draw_film(shown), encoding="utf-8")
    return 0


def record_demo() -> list[Output]:
    """What the demo wrote to its terminal, with the seconds since its start."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with tempfile.TemporaryDirectory() as home:
        ours = {"HOME": home, "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        command = [sys.executable, str(ROOT / "examples" / "demo.py")]
        with subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower, env={**ours, "COLUMNS": str(COLUMNS)}
        ) as program:
            os.close(follower)
            recorded = read_acts(leader)
            program.send_signal(signal.SIGTERM)
        os.close(leader)
    return recorded


def read_acts(leader: int) -> list[Output]:
    recorded, begun, rest = [], time.monotonic(), b""
    while piece := os.read(leader, 65536):
        at, text = time.monotonic() - begun, (rest + piece).decode(errors="ignore")
        rest = (rest + piece)[len(text.encode()) :]
        before, mark, _ = text.partition(END)
        recorded.append((at, before))
        if mark:
            break
    return recorded


def shorten_pauses(recorded: Sequence[Output]) -> list[Output]:
    shortened, last, now = [], 0.0, 0.0
    for at, text in recorded:
        now += min(at - last, PAUSE_MAX)
        shortened.append((now, text))
        last = at
    return shortened


def find_texts(recorded: Sequence[Output]) -> list[Shown]:
    """Every text of every line, in the order in which they were shown."""
    texts: list[Shown] = []
    lines: dict[int, Shown] = {}
    row, colour = 0, ""
    for at, output in recorded:
        rewritten: dict[int, str] = {}
        for part in CONTROL.split(output):
            if part == "\n":
                row += 1
            elif part == "\x1b[1A":
                row -= 1
            elif part == "\x1b[2K":
                rewritten[row] = ""
            elif part != "\r":
                before = rewritten.get(row, lines[row].text if row in lines else "")
                rewritten[row] = (before or colour) + part
                colour = (COLOUR.findall(part) or [colour])[-1].replace("\x1b[0m", "")
        for number, text in rewritten.items():
            old = lines.get(number)
            if old and old.text == text:
                continue
            if old:
                old.end = at
            lines[number] = Shown(number, text, at)
            texts.append(lines[number])
    return [each for each in texts if is_seen(each)]


def is_seen(shown: Shown) -> bool:
    return bool(COLOUR.sub("", shown.text).strip()) and (
        shown.end is None or shown.end - shown.start >= SHORTEST
    )


def draw_film(texts: Sequence[Shown]) -> str:
    """The lines as one film that is shown again and again; without motion, its last picture."""
    length = max(each.start for each in texts) + LAST_SECONDS
    styles: dict[str, str] = {}

    def animate(keys: str) -> str:
        name = styles.setdefault(keys, f"k{len(styles)}")
        return f"animation-name:{name}"

    def percent(seconds: float) -> str:
        return f"{100 * seconds / length:.2f}%"

    drawn = []
    for each in texts:
        end = f"{percent(each.end)}{{opacity:0}}" if each.end is not None else ""
        style = animate(f"0%{{opacity:0}}{percent(each.start)}{{opacity:1}}{end}")
        hidden = ";opacity:0" if each.end is not None else ""
        y = PAD + (each.row + 0.8) * LINE
        drawn.append(
            f'<text x="{PAD}" y="{y:.1f}" xml:space="preserve" style="{style}{hidden}">{draw_spans(each.text)}</text>\n'
        )
    scrolls: dict[float, int] = {}
    lowest = ROWS - 1
    for each in texts:
        if each.row > lowest:
            lowest = each.row
            scrolls[each.start] = -(lowest - ROWS + 1) * LINE
    moves = "".join(f"{percent(at)}{{transform:translateY({up}px)}}" for at, up in scrolls.items())
    rolling = animate(f"0%{{transform:none}}{moves}")
    frames = "".join(f"@keyframes {name}{{{keys}}}\n" for keys, name in styles.items())
    width, height = PAD * 2 + COLUMNS * CELL, PAD * 2 + ROWS * LINE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14" fill="#e6edf3">\n'
        f"<style>\ntext,g{{animation:{length:.2f}s step-end infinite}}\n{frames}"
        "@media (prefers-reduced-motion:reduce){text,g{animation:none!important}}\n</style>\n"
        f'<clipPath id="screen"><rect y="{PAD}" width="100%" height="{ROWS * LINE}"/></clipPath>\n'
        '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
        f'<g clip-path="url(#screen)" style="animation:none"><g style="{rolling};'
        f'transform:translateY({-(lowest - ROWS + 1) * LINE}px)">\n{"".join(drawn)}</g></g>\n</svg>\n'
    )


if __name__ == "__main__":
    sys.exit(main())

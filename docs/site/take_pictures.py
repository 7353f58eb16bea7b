"""Take the pictures of the documentation from the real programs: terminals, the log of a run, the inspector.

    python docs/site/take_pictures.py        writes docs/pictures; needs chromium for the inspector

Nothing is drawn by hand: each picture is the output of a command of this checkout against the simulator.
"""

import asyncio
import html
import importlib
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 90
CELL, LINE, PAD = 8.4, 19, 16
COLOURS = {
    "31": "#ff7b72",
    "32": "#7ee787",
    "33": "#e3b341",
    "34": "#79c0ff",
    "35": "#d2a8ff",
    "36": "#76e3ea",
}
TERMINALS = {
    "run": ('bridle run "What is 17 * 23 minus 100?" --tools demo_tools.py',),
    "show": ("bridle show SESSION",),
    "cost": ("bridle cost --by model", "bridle show SESSION --as cache"),
    "verify": ("bridle store verify SESSION", "bridle session replay SESSION"),
}
"""Name of each picture, and the commands that it shows, in one folder and in this order.

SESSION is the session that the first one makes."""
INSPECTOR = (
    "timeline-desktop-light",
    "request-desktop-light",
    "cache-desktop-dark",
    "transcript-phone-light",
)
LANES = ("your program", "log", "model", "tool")
ARROWS = {
    "prompted": (0, 1),
    "model_asked": (1, 2),
    "model_replied": (2, 1),
    "tool_started": (1, 3),
    "tool_finished": (3, 1),
    "run_ended": (1, 0),
}


def main() -> int:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "demo_tools.py").write_bytes((ROOT / "examples" / "demo_tools.py").read_bytes())
        for name, commands in TERMINALS.items():
            lines = [line for command in commands for line in show_command(command, here)]
            (PICTURES / f"{name}.svg").write_text(draw_terminal(lines), encoding="utf-8")
        exported = run_command(f"bridle session export {find_session(here)}", here, terminal=False)
        (PICTURES / "log.svg").write_text(draw_log([json.loads(line) for line in exported]), encoding="utf-8")
    return take_inspector()


def show_command(command: str, folder: Path) -> list[str]:
    """The command as typed, with the real session, and what it prints."""
    typed = command.replace("SESSION", find_session(folder)) if "SESSION" in command else command
    return [f"\x1b[34m$\x1b[0m {typed}", *run_command(typed, folder)]


def run_command(command: str, folder: Path, *, terminal: bool = True) -> list[str]:
    """The lines that a command leaves on the screen, with their colours."""
    words = shlex.split(command)
    words[0] = str(Path(sys.executable).parent / words[0])
    ours = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
        "LANG": "C.UTF-8",
    }
    if not terminal:
        done = subprocess.run(words, cwd=folder, env=ours, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()
    leader, follower = pty.openpty()
    with subprocess.Popen(
        words, cwd=folder, env=ours, stdin=follower, stdout=follower, stderr=follower
    ) as program:
        os.close(follower)
        shown = b""
        while piece := _read(leader):
            shown += piece
    os.close(leader)
    if program.returncode:
        raise SystemExit(f"{command} ended with exit code {program.returncode}:\n{shown.decode()}")
    return [_overwritten(line) for line in shown.decode().rstrip().split("\r\n")]


def find_session(folder: Path) -> str:
    listed = json.loads("".join(run_command("bridle sessions --json", folder, terminal=False)))
    return str(listed[0]["session"])


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # the program has closed its side of the terminal
        return b""


def _overwritten(line: str) -> str:
    """What is left of a line that was written more than once."""
    return line.rpartition("\x1b[2K")[2].rpartition("\r")[2]


def draw_terminal(lines: list[str]) -> str:
    width = PAD * 2 + COLUMNS * CELL
    height = PAD * 2 + len(lines) * LINE
    rows = "".join(
        f'<text x="{PAD}" y="{PAD + (number + 0.8) * LINE:.1f}" xml:space="preserve">{draw_spans(line)}</text>\n'
        for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14" fill="#e6edf3">\n'
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n{rows}</svg>\n'
    )


def draw_spans(line: str) -> str:
    """The text of a line, with the colours and weights of its escape sequences."""
    spans, style = [], ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b"):
            spans.append(f"<tspan{style}>{html.escape(part)}</tspan>" if part else "")
            continue
        for code in part[2:-1].split(";"):
            style = {"0": "", "": "", "1": f'{style} font-weight="bold"', "2": f'{style} fill="#8b949e"'}.get(
                code, f'{style} fill="{COLOURS[code]}"' if code in COLOURS else style
            )
    return "".join(spans)


def draw_log(records: list[dict[str, object]]) -> str:
    """A run as its log tells it: each record in order, and between whom it passed."""
    names = [str(data["type"]) for record in records if isinstance(data := record.get("data"), dict)]
    lane, step, top = 200, 34, 60
    height = top + step * len(names) + 20
    parts = ['<rect width="100%" height="100%" rx="8" fill="#ffffff"/>\n']
    for number, title in enumerate(LANES):
        x = 110 + number * lane
        parts.append(f'<text x="{x}" y="30" text-anchor="middle" font-weight="bold">{title}</text>\n')
        parts.append(f'<line x1="{x}" y1="42" x2="{x}" y2="{height - 10}" stroke="#d0d7de"/>\n')
    for number, name in enumerate(names):
        y = top + step * number
        start, end = (110 + each * lane for each in ARROWS.get(name, (1, 1)))
        if start == end:
            parts.append(f'<circle cx="{start}" cy="{y}" r="5" fill="#57606a"/>\n')
        else:
            tip = 8 if end < start else -8
            parts.append(
                f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" stroke="#0969da" stroke-width="2"/>\n'
            )
            parts.append(f'<path d="M{end} {y} l{tip} -5 v10 z" fill="#0969da"/>\n')
        parts.append(
            f'<text x="{max(start, end) + 10}" y="{y + 5}">{number + 1} {html.escape(name)}</text>\n'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {height}" width="860" '
        f'font-family="system-ui, sans-serif" font-size="14" fill="#1f2328">\n{"".join(parts)}</svg>\n'
    )


def take_inspector() -> int:
    sys.path.insert(0, str(ROOT / "bench"))
    screens = importlib.import_module("inspector_screens")
    if not screens.find_browser():
        print("no chromium: the pictures of the inspector stay as they are", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(screens.make_screens(Path(folder)))
        for name in INSPECTOR:
            (PICTURES / f"inspector-{name}.png").write_bytes((Path(folder) / f"{name}.png").read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The findings of loading: the same agents, made again in processes that differ in one thing each.

Reading cannot see everything; two prompts that are not the same are proof.  What differs already with
nothing changed is told once, and not again for every other circumstance.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...values.value import Value
from .loaded import Loaded
from .reading import Finding
from .rules import rule

SHIFT_SECONDS = 400 * 86_400 + 7 * 3_600 + 11 * 60 + 13.0
"""More than a year, and nothing round: another year, month, day, weekday, hour and minute."""
SECONDS_MAX = 120.0
ABOVE = Path(__file__).parents[3]
"""Where this package is, for a process that was started elsewhere."""
AT_ONCE = 4
VARIABLES_MAX = 12
"""How many variables get a try of their own; the rest share one."""
ZONE_HOURS = 3
"""Distance of the other time zone.  It stays on the same day: another date is a trial of its own."""
NOON = 12
ELSEWHERE = {
    "USER": "somebody",
    "LOGNAME": "somebody",
    "HOSTNAME": "elsewhere",
    "LANG": "C",
}
PAIRS = (("0", "1"), ("true", "false"), ("yes", "no"), ("on", "off"))
SWITCHES = {**dict(PAIRS), **{off: on for on, off in PAIRS}}
CHARACTERS_MAX = 100
BEFORE = 30
"""How much of two lines is shown before they part."""


class Trial(NamedTuple):
    rule: str
    words: str
    environment: Mapping[str, str] = {}
    seed: str = "0"
    shift: float = 0.0


class Tried(Value):
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    loads: int = 0


AGAIN = Trial("each-time", "in a second process")
TRIALS = (
    AGAIN,
    *(Trial("hash-seed", f"with PYTHONHASHSEED={seed}", seed=seed) for seed in ("1", "2", "3")),
    Trial("other-day", "400 days later", shift=SHIFT_SECONDS),
)


def try_out(
    source: str,
    environment: Mapping[str, str],
    progress: Callable[[str], None],
    allowed: Collection[str] = (),
) -> Tried:
    """Load a file again and again; its own failure to load is a note.

    `allowed` are rules that the code may be against, because it says so: they are not tried.
    """
    progress(f"{source}: loading it once")
    first = _loaded(source, Trial("", ""), environment)
    if first.error:
        return Tried(notes=(f"{source} could not be loaded, so it was only read: {first.error}",))
    if not first.agents:
        return Tried(notes=(f"{source} makes no agents or tools while it is loaded, so it was only read",))
    wanted = (*TRIALS, _try_elsewhere(first), *_with_others(first.asked, environment))
    # A second process is always wanted: it tells what cannot be compared.
    trials = [trial for trial in wanted if trial is AGAIN or trial.rule not in allowed]
    progress(f"{source}: loading it {len(trials)} times more, each time in other circumstances")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        others = [*pool.map(lambda trial: _loaded(source, trial, environment), trials)]
    findings: list[Finding] = []
    notes: list[str] = []
    moving = {name: _differing(lines, others[0].agents.get(name, ())) for name, lines in first.agents.items()}
    for trial, other in zip(trials, others, strict=True):
        if other.error:
            notes.append(f"{source} could not be tried {trial.words}: {other.error}")
            continue
        for name, lines in first.agents.items():
            known = frozenset[int]() if trial is AGAIN else moving[name]
            finding = _compared(source, name, trial, lines, other.agents.get(name, ()), known)
            if finding is not None and finding.rule not in allowed:
                findings.append(finding)
    return Tried(findings=tuple(_once(findings)), notes=tuple(notes), loads=len(trials) + 1)


def _try_elsewhere(first: Loaded) -> Trial:
    """The same file on another machine and in another time zone, in which it is the same day."""
    hours = ZONE_HOURS if first.hour < NOON else -ZONE_HOURS
    minutes = first.utc_offset_seconds // 60 + hours * 60
    # POSIX counts hours west of Greenwich, so the sign is the other way round.
    sign = "-" if minutes >= 0 else "+"
    zone = f"AWAY{sign}{abs(minutes) // 60}:{abs(minutes) % 60:02}"
    changed = {"TZ": zone, **ELSEWHERE}
    return Trial("elsewhere", f"with another {', '.join(changed)}", changed)


def _with_others(asked: Sequence[str], environment: Mapping[str, str]) -> Iterator[Trial]:
    for name in asked[:VARIABLES_MAX]:
        yield Trial("elsewhere", f"with another {name}", {name: _other(environment.get(name))})
    rest = asked[VARIABLES_MAX:]
    if rest:
        changed = {name: _other(environment.get(name)) for name in rest}
        yield Trial("elsewhere", f"with another {', '.join(rest)}", changed)


def _other(value: str | None) -> str:
    """Another value of the same kind, so that code that reads a number finds one."""
    if value is None:
        return "other"
    if value.lower() in SWITCHES:
        return SWITCHES[value.lower()]
    return str(int(value) + 1) if value.isdecimal() else f"{value}x"


def _loaded(source: str, trial: Trial, environment: Mapping[str, str]) -> Loaded:
    command = [sys.executable, "-m", f"{__package__}.loaded", source, "--shift", str(trial.shift)]
    changed = {**environment, **trial.environment, "PYTHONHASHSEED": trial.seed}
    changed["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ABOVE), environment.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(  # noqa: S603 - our own module, on a file the user has named
            command,
            env=changed,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Loaded(error=f"it took longer than {SECONDS_MAX:.0f} seconds")
    try:
        return msgspec.json.decode(done.stdout, type=Loaded)
    except msgspec.DecodeError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Loaded(error=f"the process ended with code {done.returncode}: {' '.join(last)}")


def _differing(one: Sequence[str], other: Sequence[str]) -> frozenset[int]:
    if len(one) != len(other):
        return frozenset(range(max(len(one), len(other))))
    return frozenset(at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)


def _compared(
    source: str, agent: str, trial: Trial, one: Sequence[str], other: Sequence[str], known: frozenset[int]
) -> Finding | None:
    changed = sorted(_differing(one, other) - known)
    if not changed or (known and len(one) != len(other)):
        return None
    first = next((at for at in changed if one[at : at + 1] != other[at : at + 1]), changed[0])
    before, after = (lines[first].strip() if first < len(lines) else "" for lines in (one, other))
    about = rule(trial.rule)
    return Finding(
        rule=about.name,
        id=about.id,
        file=source,
        line=0,
        column=0,
        what=" became ".join(_glimpses(before, after)),
        reaches=f"{_layer(one if first < len(one) else other, first)} of {agent}, {trial.words}",
        why=about.why,
        instead=about.instead,
    )


def _layer(lines: Sequence[str], at: int) -> str:
    """What a line belongs to: titles are not indented."""
    titles = (line.rstrip(":") for line in reversed(lines[: at + 1]) if not line.startswith(" "))
    return next(titles, "the front")


def _glimpses(one: str, other: str) -> tuple[str, str]:
    pairs = enumerate(zip(one, other, strict=False))
    parted = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    start = max(0, parted - BEFORE)
    dots = "…" if start else ""
    return _short(dots + one[start:]), _short(dots + other[start:])


def _short(words: str) -> str:
    return repr(words if len(words) <= CHARACTERS_MAX else words[: CHARACTERS_MAX - 1] + "…")


def _once(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Three seeds that all differ are one finding."""
    seen: set[tuple[str, str]] = set()
    for finding in findings:
        where = finding.reaches
        key = finding.rule, where.partition(",")[0] if finding.rule == "hash-seed" else where
        if key not in seen:
            seen.add(key)
            yield finding

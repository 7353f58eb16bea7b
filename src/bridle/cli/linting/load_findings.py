"""Findings of loading: the same agents, created again in processes that differ in one condition each.

Reading cannot see everything; two differing prompts are proof.  A line that differs without any changed
condition is reported once, and not again for every other condition.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from bridle.values.base import Value

from .load_agents import LoadedPrompts
from .rules import get_rule
from .static_findings import LintFinding

CLOCK_SHIFT_SECONDS = 400 * 86_400 + 7 * 3_600 + 11 * 60 + 13.0
"""Changes the year, month, day, weekday, hour and minute."""
# not from outside: time of a function of the user's program
LOAD_SECONDS_MAX = 120.0
SOURCE_ROOT = Path(__file__).parents[3]
"""Import path of this package for the started processes."""
PROCESSES_MAX = 4
VARIABLES_MAX = 12
"""Variables that get a separate trial; the others share one."""
ZONE_HOURS = 3
"""Distance of the other time zone.  The date stays the same: another date is a separate trial."""
NOON = 12
OTHER_ENVIRONMENT = {
    "USER": "other-user",
    "LOGNAME": "other-user",
    "HOSTNAME": "elsewhere",
    "LANG": "C",
}
SWITCH_PAIRS = (("0", "1"), ("true", "false"), ("yes", "no"), ("on", "off"))
OPPOSITE_SWITCHES = {**dict(SWITCH_PAIRS), **{off: on for on, off in SWITCH_PAIRS}}
# not from outside: our own text, shown to a person or a model
EXCERPT_CHARACTERS_MAX = 100
EXCERPT_LEAD_CHARACTERS = 30
"""Characters shown before the first difference of two lines."""


class LoadTrial(NamedTuple):
    rule: str
    description: str
    environment: Mapping[str, str] = {}
    seed: str = "0"
    shift: float = 0.0


class LoadFindings(Value, kw_only=True):
    findings: tuple[LintFinding, ...] = ()
    notes: tuple[str, ...] = ()
    loads: int = 0


REPEAT_TRIAL = LoadTrial("each-time", "in a second process")
LOAD_TRIALS = (
    REPEAT_TRIAL,
    *(LoadTrial("hash-seed", f"with PYTHONHASHSEED={seed}", seed=seed) for seed in ("1", "2", "3")),
    LoadTrial("other-day", "400 days later", shift=CLOCK_SHIFT_SECONDS),
)


def compare_loads(
    source: str,
    environment: Mapping[str, str],
    progress: Callable[[str], None],
    allowed: Collection[str] = (),
) -> LoadFindings:
    """Load a file under several conditions and compare the prompts; a file that cannot be loaded gives a note.

    Rules in `allowed` are not tried: comments in the code permit them.
    """
    progress(f"{source}: loading")
    first = _load_in_process(source, LoadTrial("", ""), environment)
    if first.error:
        return LoadFindings(notes=(f"{source} cannot be loaded, so it was only read: {first.error}",))
    if not first.agents:
        return LoadFindings(
            notes=(f"{source} creates no agents or tools when it is loaded, so it was only read",)
        )
    wanted = (
        *LOAD_TRIALS,
        _make_machine_trial(first),
        *_make_variable_trials(first.variables_read, environment),
    )
    # The second process is never skipped: it shows which lines cannot be compared.
    trials = [trial for trial in wanted if trial is REPEAT_TRIAL or trial.rule not in allowed]
    progress(f"{source}: loading {len(trials)} more times, each under another condition")
    with ThreadPoolExecutor(PROCESSES_MAX) as pool:
        others = [*pool.map(lambda trial: _load_in_process(source, trial, environment), trials)]
    findings: list[LintFinding] = []
    notes: list[str] = []
    moving = {
        name: _differing_lines(lines, others[0].agents.get(name, ())) for name, lines in first.agents.items()
    }
    for trial, other in zip(trials, others, strict=True):
        if other.error:
            notes.append(f"{source} cannot be loaded {trial.description}: {other.error}")
            continue
        for name, lines in first.agents.items():
            known = frozenset[int]() if trial is REPEAT_TRIAL else moving[name]
            finding = _compare_prompts(source, name, trial, lines, other.agents.get(name, ()), known)
            if finding is not None and finding.rule not in allowed:
                findings.append(finding)
    return LoadFindings(findings=tuple(_unique_findings(findings)), notes=tuple(notes), loads=len(trials) + 1)


def _make_machine_trial(first: LoadedPrompts) -> LoadTrial:
    """A trial with another user, host and time zone, on the same date."""
    hours = ZONE_HOURS if first.hour < NOON else -ZONE_HOURS
    minutes = first.utc_offset_seconds // 60 + hours * 60
    # POSIX counts hours west of Greenwich, so the sign is inverted.
    sign = "-" if minutes >= 0 else "+"
    zone = f"AWAY{sign}{abs(minutes) // 60}:{abs(minutes) % 60:02}"
    changed = {"TZ": zone, **OTHER_ENVIRONMENT}
    return LoadTrial("elsewhere", f"with another {', '.join(changed)}", changed)


def _make_variable_trials(asked: Sequence[str], environment: Mapping[str, str]) -> Iterator[LoadTrial]:
    for name in asked[:VARIABLES_MAX]:
        yield LoadTrial("elsewhere", f"with another {name}", {name: _other_value(environment.get(name))})
    rest = asked[VARIABLES_MAX:]
    if rest:
        changed = {name: _other_value(environment.get(name)) for name in rest}
        yield LoadTrial("elsewhere", f"with another {', '.join(rest)}", changed)


def _other_value(value: str | None) -> str:
    """Another value of the same kind, so that code that reads a number finds one."""
    if value is None:
        return "other"
    if value.lower() in OPPOSITE_SWITCHES:
        return OPPOSITE_SWITCHES[value.lower()]
    return str(int(value) + 1) if value.isdecimal() else f"{value}x"


def _load_in_process(source: str, trial: LoadTrial, environment: Mapping[str, str]) -> LoadedPrompts:
    command = [sys.executable, "-m", f"{__package__}.load_agents", source, "--shift", str(trial.shift)]
    changed = {**environment, **trial.environment, "PYTHONHASHSEED": trial.seed}
    changed["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(SOURCE_ROOT), environment.get("PYTHONPATH", "")])
    )
    try:
        done = subprocess.run(  # noqa: S603 - our own module, on a file the user has named
            command,
            env=changed,
            capture_output=True,
            timeout=LOAD_SECONDS_MAX,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return LoadedPrompts(error=f"loading took longer than {LOAD_SECONDS_MAX:.0f} seconds")
    try:
        return msgspec.json.decode(done.stdout, type=LoadedPrompts)
    except msgspec.DecodeError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return LoadedPrompts(error=f"the process ended with code {done.returncode}: {' '.join(last)}")


def _differing_lines(one: Sequence[str], other: Sequence[str]) -> frozenset[int]:
    if len(one) != len(other):
        return frozenset(range(max(len(one), len(other))))
    return frozenset(at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)


def _compare_prompts(
    source: str, agent: str, trial: LoadTrial, one: Sequence[str], other: Sequence[str], known: frozenset[int]
) -> LintFinding | None:
    changed = sorted(_differing_lines(one, other) - known)
    if not changed or (known and len(one) != len(other)):
        return None
    first = next((at for at in changed if one[at : at + 1] != other[at : at + 1]), changed[0])
    before, after = (lines[first].strip() if first < len(lines) else "" for lines in (one, other))
    about = get_rule(trial.rule)
    return LintFinding(
        rule=about.name,
        id=about.id,
        file=source,
        line=0,
        column=0,
        what=" became ".join(_excerpts_around_change(before, after)),
        reaches=f"{_layer_title(one if first < len(one) else other, first)} of {agent}, {trial.description}",
        why=about.why,
        instead=about.instead,
    )


def _layer_title(lines: Sequence[str], at: int) -> str:
    """The title above a line; titles are not indented."""
    titles = (line.rstrip(":") for line in reversed(lines[: at + 1]) if not line.startswith(" "))
    return next(titles, "the start")


def _excerpts_around_change(one: str, other: str) -> tuple[str, str]:
    pairs = enumerate(zip(one, other, strict=False))
    parted = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    start = max(0, parted - EXCERPT_LEAD_CHARACTERS)
    dots = "…" if start else ""
    return _shorten(dots + one[start:]), _shorten(dots + other[start:])


def _shorten(words: str) -> str:
    return repr(words if len(words) <= EXCERPT_CHARACTERS_MAX else words[: EXCERPT_CHARACTERS_MAX - 1] + "…")


def _unique_findings(findings: Sequence[LintFinding]) -> Iterator[LintFinding]:
    """Drop repeated findings; several differing hash seeds count as one."""
    seen: set[tuple[str, str]] = set()
    for finding in findings:
        where = finding.reaches
        key = finding.rule, where.partition(",")[0] if finding.rule == "hash-seed" else where
        if key not in seen:
            seen.add(key)
            yield finding

"""Golden files of behaviour: seeded runs, request bytes over recorded traffic, JSON output, public signatures.

    python -m tests.golden.freeze write        record the present behaviour
    python -m tests.golden.freeze check        compare the present behaviour with the record
    python -m tests.golden.freeze dump SEED    print the events, the state and the requests of one run

A change of structure must leave all of it equal. A change of behaviour, a name or a text records the files again, and
its commit explains the difference.
"""

import ast
import asyncio
import contextlib
import hashlib
import inspect
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import msgspec

import bridle
from bridle.cli.main import main as run_command
from bridle.core.loop import apply_event
from bridle.core.state import State
from bridle.testing.wire.check_recording import find_codec
from bridle.testing.wire.recorded_traffic import read_recordings
from bridle.values.calls import ToolError
from tests.campaigns import checked_lives
from tests.wire.wire import PLACE

HERE = Path(__file__).parent
MOVED = ("errors", "events", "hooks", "memory", "messages", "sessions", "tools", "watchers")
"""Modules of public names besides `bridle`."""
REFUSED = checked_lives.TOO_LONG
SEEDS = range(700_000, 700_300)
MODULE = re.compile(r"\bbridle\.(?:[a-z_]+\.)*(?=[A-Z_])")
LONG_HEX = re.compile(r"\b[0-9a-f]{16,64}\b")
SHORT_ID = re.compile(r"^[0-9a-f]{12}$")
SESSION_ID = re.compile(r"\b\d{8}-[0-9a-z]{8}\b")
TIMESTAMP = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?")


class Placeholders:
    """Replaces ids and hashes by their order of appearance, so that equal ones stay equal."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def replace(self, text: str) -> str:
        for pattern in (LONG_HEX, SESSION_ID):
            text = pattern.sub(lambda found: self._name(found.group()), text)
        return text

    def _name(self, found: str) -> str:
        return self._seen.setdefault(found, f"<{len(self._seen)}>")


def to_json(value: Any) -> Any:
    """A value as JSON data, without members that have their default, and without tracebacks, which name our files."""
    if isinstance(value, ToolError):
        return value.type
    if isinstance(value, msgspec.Struct):
        return dict(list_members(value))
    if isinstance(value, dict):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted((to_json(inner) for inner in value), key=json.dumps)
    if isinstance(value, Enum):
        return str(value.value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def list_members(value: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    tag = value.__struct_config__.tag
    if tag is not None:
        yield "type", tag
    for field in msgspec.structs.fields(value):
        found = getattr(value, field.name)
        default = field.default if field.default is not msgspec.NODEFAULT else ...
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if found != default:
            yield field.name, to_json(found)


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a JSON value with their paths."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flatten(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from flatten(inner, f"{path}[{number}]")
    else:
        yield path, value


def describe_state(state: State, placeholders: Placeholders) -> list[str]:
    """The folded state as sorted lines `path = value`, without members that have their default."""
    lines = []
    for path, value in flatten(to_json(state)):
        if value not in (None, "", 0, False, [], {}):
            lines.append(f"{path} = {json.dumps(value)}")
    return [placeholders.replace(line) for line in sorted(lines)]


def digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:24]


async def run_life(seed: int) -> dict[str, list[str]]:
    """One seeded run: its events, its folded state and the bytes of its requests."""
    life = await checked_lives.live(seed, hooked=False)
    placeholders, events, state = Placeholders(), [], State()
    for record in await life.store.read(life.session):
        state = apply_event(state, record.event, record.at, record.hash)
        shown = json.dumps(to_json(record.event), sort_keys=True)
        events.append(placeholders.replace(f"{record.at} {shown}"))
    requests = [placeholders.replace(describe_request(each)) for each in life.provider.exchanges]
    return {"events": events, "state": describe_state(state, placeholders), "requests": requests}


def describe_request(exchange: Any) -> str:
    return f"{exchange.path} {exchange.body.decode('utf-8', 'surrogateescape')}"


def freeze_run(seed: int) -> str:
    """The seed with the number and the digest of each kind."""
    found = asyncio.run(run_life(seed))
    return " ".join([str(seed), *(f"{kind}={len(lines)}:{digest(lines)}" for kind, lines in found.items())])


def freeze_requests() -> Iterator[str]:
    """One line per file of recordings and family: the digest of what we send for each recorded request."""
    for path in sorted([*PLACE.rglob("*.jsonl"), *PLACE.rglob("*.jsonl.gz")]):
        bodies: dict[str, list[str]] = {}
        for recording in read_recordings(path):
            codec = None if recording.unreadable_reason else find_codec(recording)
            if codec is None or recording.request is None:
                continue
            try:
                sent = codec.encode(codec.decode_request(recording.request)).body
            except Exception as error:
                sent = type(error).__name__.encode()
            bodies.setdefault(codec.family, []).append(hashlib.sha256(sent).hexdigest())
        for family, lines in sorted(bodies.items()):
            yield f"{path.relative_to(PLACE)} {family} {len(lines)}:{digest(lines)}"


def freeze_names() -> Iterator[str]:
    """Every public name with its signature."""
    modules = (bridle, *(getattr(bridle, name) for name in MOVED))
    for place, name in ((each, name) for each in modules for name in sorted(each.__all__)):
        found = getattr(place, name)
        with contextlib.suppress(TypeError, ValueError):
            signature = re.sub(r" at 0x[0-9a-f]+", "", str(read_signature(found)))
            yield MODULE.sub("", f"{name}{signature}")
            continue
        yield name


def read_signature(found: Any) -> inspect.Signature:
    """The signature; annotations that only type checkers read are evaluated with the imports that these see."""
    module = sys.modules[getattr(found, "__module__", "builtins")]
    if hasattr(module, "annotations"):  # from __future__ import annotations
        return inspect.signature(found, globals=import_types(module), eval_str=True)
    try:
        return inspect.signature(found)
    except NameError:  # of a struct, whose annotations msgspec evaluates in the module
        with patch.dict(vars(module), import_types(module)):
            return inspect.signature(found)


def import_types(module: ModuleType) -> dict[str, Any]:
    """The names of a module and those that it imports for type checkers."""
    names = {**vars(module)}  # relative imports need the name of the package
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            imports: list[ast.stmt] = [each for each in node.body if isinstance(each, ast.ImportFrom)]
            exec(compile(ast.Module(imports, []), module.__name__, "exec"), names)
    return names


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("run", "!say Hello", "--json", "--model", "sim:anthropic/claude-sonnet-5-5"),
    ("run", "What is 17 * 23 minus 100?", "--json", "--model", "sim:openai/gpt-6.1-sol"),
    ("run", "again", "--json", "--session", "{2}"),
    ("run", "!call refund {\"order\": 4}", "--json", "--tools", "{tools}", "--policy", "{policy}"),
    ("approvals", "--json"),
    ("approvals", "approve", "{pending}", "--json"),
    ("resume", "{4}", "--json", "--tools", "{tools}"),
    ("run", "!call refund {\"order\": 5}", "--json", "--tools", "{tools}", "--policy", "{policy}"),
    ("approvals", "--json"),
    ("approvals", "reject", "{pending}", "--json"),
    ("resume", "{6}", "--json", "--tools", "{tools}"),
    ("session", "compensate", "{4}", "--json", "--yes", "--tools", "{tools}"),
    ("sessions", "--json"),
    ("show", "{2}", "--json"),
    ("show", "{4}", "--json"),
    ("show", "--as", "log", "{2}", "--json"),
    ("session", "fork", "{2}", "--json"),
    ("session", "diff", "{1}", "{2}", "--json"),
    ("memory", "add", "Invoices go out on Fridays.", "--json"),
    ("memory", "list", "--json"),
    ("show", "--as", "cache", "{2}", "--json"),
    ("cost", "--json"),
    ("cost", "--json", "--by", "tool"),
    ("budgets", "--json"),
    ("check", "prompts", "{tools}", "--json"),
    ("run", "x", "--json", "--session", "nobody"),
    ("run", "x", "--json", "--usd", "0"),
    ("show", "nobody", "--json"),
)  # fmt: skip
SETTINGS = {
    "BRIDLE_MODEL": "sim:anthropic/claude-sonnet-5-5",
    "NO_COLOR": "1",
    "COLUMNS": "100",
    "LOGNAME": "root",
}
TOOLS = '''
from bridle import tool


async def take_back(order: int) -> str:
    """Take the refund back."""
    return "taken back"


@tool(effect="write", approve=True, compensate=take_back)
async def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"
'''


def mask(value: Any) -> Any:
    """A JSON value without what differs from run to run: times, durations, ids, hashes."""
    if isinstance(value, dict):
        return {key: mask(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [mask(inner) for inner in value]
    if isinstance(value, float):
        return 0.5
    if isinstance(value, str):
        value = SHORT_ID.sub("<id>", value)
        return TIMESTAMP.sub("<time>", SESSION_ID.sub("<id>", LONG_HEX.sub("<hash>", value)))
    return value


def freeze_commands(folder: Path) -> Iterator[str]:
    """The exit code and the masked JSON output of each command, one after the other in one store."""
    tools = folder / "tools.py"
    tools.write_text(TOOLS)
    policy = folder / "policy.toml"
    policy.write_text('[[rules]]\ndecision = "ask"\ntools = ["refund"]\n')
    os.environ |= {"BRIDLE_STORE": str(folder / "log.db"), **SETTINGS}
    sessions: list[str] = []
    pending = ""
    for words in COMMANDS:
        filled = [word.replace("{tools}", str(tools)).replace("{policy}", str(policy)) for word in words]
        filled = [word.replace("{pending}", pending) for word in filled]
        filled = [sessions[int(word[1:-1]) - 1] if re.fullmatch(r"\{\d\}", word) else word for word in filled]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code: Any = run_command(filled)
            except SystemExit as end:
                code = end.code
        yield f"$ bridle {' '.join(words)}"
        yield f"exit {code}"
        if words[:2] == ("approvals", "--json"):
            pending = json.loads(out.getvalue())[0]["id"]
        if words[0] in ("run", "resume") and out.getvalue():
            sessions.append(json.loads(out.getvalue())["session"])
        for line in out.getvalue().splitlines() or [""]:
            try:
                shown = json.dumps(mask(json.loads(line)), sort_keys=True)
            except ValueError:
                shown = str(mask(line))
            yield shown.replace(str(folder), "<folder>")


def freeze(kind: str, folder: Path) -> list[str]:
    if kind == "runs":
        return [freeze_run(seed) for seed in SEEDS]
    if kind == "requests":
        return list(freeze_requests())
    if kind == "commands":
        return list(freeze_commands(folder))
    return list(freeze_names())


def read_record(kind: str) -> list[str]:
    return (HERE / f"{kind}.txt").read_text().splitlines()


KINDS = ("runs", "requests", "commands", "names")


def main(action: str, *rest: str) -> int:
    if action == "dump":
        for kind, lines in asyncio.run(run_life(int(rest[0]))).items():
            for line in lines:
                print(kind, line[:3000])
        return 0
    different = 0
    for kind in rest or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            found = freeze(kind, Path(folder))
        path = HERE / f"{kind}.txt"
        if action == "write":
            path.write_text("\n".join(found) + "\n")
            print(f"{kind}: {len(found)} lines written")
            continue
        recorded = read_record(kind)
        lines = [f"- {old}\n+ {new}" for old, new in zip(recorded, found, strict=False) if old != new]
        different += len(lines) + abs(len(recorded) - len(found))
        print(f"{kind}: {len(found)} lines, {len(lines)} different", *lines[:10], sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

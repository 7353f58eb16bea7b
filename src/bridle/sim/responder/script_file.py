"""Reads the steps of a scripted responder from a file.

A script is a list. Each step is a text to reply with, directives (text with lines that start with `!`), or an
object whose members are directives by name, with an optional `expect`:

    ["Hello.",
     "!call add {\\"a\\": 1, \\"b\\": 2}",
     {"expect": "3", "say": "It is three.", "stop": "done"}]

JSON and TOML files hold the list under `replies` or, where possible, at the top level; a Python file defines
it as `REPLIES`; YAML is read if the yaml package is installed; any other file contains directives as in a
prompt.
"""

import json
import runpy
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bridle.values.errors import MisuseError

from .alternatives import ScriptStep
from .script import DIRECTIVES, parse_script


def read_script(path: Path) -> tuple[ScriptStep, ...]:
    try:
        return parse_steps(_load_file(path))
    except OSError as error:
        raise MisuseError(f"cannot read the script {path}: {error.strerror or error}") from None
    except RecursionError:
        raise MisuseError(f"{path} is not a script: it is nested too deeply") from None
    except (ValueError, KeyError, TypeError) as error:
        raise MisuseError(f"{path} is not a script: {error}") from None


def parse_steps(given: object) -> tuple[ScriptStep, ...]:
    """Parse a list of steps. Raises `MisuseError` for the first mistake."""
    if isinstance(given, Mapping):
        given = given.get("replies")
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise MisuseError("a script is a list of replies, or an object with such a list under `replies`")
    return tuple(step for number, each in enumerate(given, start=1) for step in _parse_step(number, each))


def _load_file(path: Path) -> object:
    match path.suffix:
        case ".json":
            return json.loads(path.read_text())
        case ".toml":
            return tomllib.loads(path.read_text())
        case ".py":
            return _run_program(path)
        case ".yaml" | ".yml":
            if find_spec("yaml") is None:
                raise MisuseError(
                    f"{path} is YAML, and the yaml package is not installed: `pip install pyyaml`"
                )
            return import_module("yaml").safe_load(path.read_text())
        case _:
            return [path.read_text()]


def _run_program(path: Path) -> object:
    """Run a Python file and return its `REPLIES`; a generator is exhausted here."""
    try:
        found = runpy.run_path(str(path))
        if "REPLIES" not in found:
            raise MisuseError(f"{path} is not a script: it has no `REPLIES`")
        given: object = found["REPLIES"]
        return list(given) if isinstance(given, Iterator) else given
    except (OSError, MisuseError):
        raise
    except SystemExit as error:
        raise MisuseError(f"the script {path} cannot be run: it exits with {error.code!r}") from None
    except Exception as error:  # a user's program may raise anything
        raise MisuseError(f"the script {path} cannot be run: {type(error).__name__}: {error}") from error


def _parse_step(number: int, given: object) -> Iterable[ScriptStep]:
    if isinstance(given, ScriptStep):
        return (given,)
    expect = ""
    if isinstance(given, Mapping):
        unknown = set(given) - set(DIRECTIVES) - {"expect", "calls"}
        if unknown:
            raise MisuseError(f"step {number} of the script: there is no {sorted(unknown)[0]!r} directive")
        expect = str(given.get("expect", ""))
        text = "\n".join(line for name in given for line in _directive_lines(name, given[name]))
    elif isinstance(given, str):
        text = (
            given if any(line.startswith("!") for line in given.split("\n")) else _prefix_lines("say", given)
        )
    else:
        raise MisuseError(f"step {number} of the script must be a string or an object, not {given!r}")
    script = parse_script(text)
    if script is None:
        raise MisuseError(f"step {number} of the script is empty")
    if script.mistakes:
        raise MisuseError(f"step {number} of the script: {script.mistakes[0]}")
    first, *more = script.replies
    return (ScriptStep(reply=first, expect=expect), *(ScriptStep(reply=reply) for reply in more))


def _directive_lines(name: str, value: object) -> Iterable[str]:
    match name, value:
        case "expect", _:
            return ()
        case "calls", list():
            return [line for each in value for line in _directive_lines("call", each)]
        case "call", Mapping():
            return (f"!call {value.get('name', '')} {json.dumps(value.get('arguments', {}))}",)
        case "truncate", bool():
            return ("!truncate",) if value else ()
        case (("error" | "cut"), list()):
            return [f"!{name} {_join_arguments(each)}" for each in value]
        case _:
            return (_prefix_lines(name, _join_arguments(value)),)


def _join_arguments(value: object) -> str:
    """Accept `[429, 2]`, `"429 2"` and `429` as the arguments of a directive."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _prefix_lines(name: str, text: str) -> str:
    return "\n".join(f"!{name} {line}" for line in text.split("\n"))

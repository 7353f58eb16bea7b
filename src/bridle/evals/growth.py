"""Writes task files: a starter suite, and a case made of a recorded session."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from bridle.config.toml_file import convert_table, read_toml_file
from bridle.values import events as e
from bridle.values.errors import MisuseError
from bridle.values.message import Text
from bridle.values.record import Record

from .suite_files import SUITE_FILE
from .task import PersonAnswer, SuiteFile, as_pattern

FACT_CHARACTERS = 40
STARTER = {
    "suite.toml": """\
# A suite is a folder: suite.toml, and eval_*.toml or eval_*.py. Run it with: bridle eval FOLDER
[defaults]
trials = 3

[defaults.agent]
model = "sim:"
tools = ["tools.py"]
""",
    "tools.py": '''\
from bridle import tool


@tool(effect="read")
def find_order(id: int) -> str:
    """Find an order."""
    return {4411: "shipped on Monday"}.get(id, "there is no such order")
''',
    "eval_order.toml": """\
prompt = "Use find_order: where is order 4411?"

# Replies of the simulated model; a real model ignores them: bridle eval FOLDER -m MODEL
replies = ['!call find_order {"id": 4411}', "Order 4411 was shipped on Monday."]

[expect]
called = ["find_order"]
contains = "Monday"
steps_max = 4
""",
}


def write_starter(folder: Path) -> list[Path]:
    """Write a suite with one task; raises `MisuseError` if one of its files exists."""
    taken = [name for name in STARTER if (folder / name).exists()]
    if taken:
        raise MisuseError(f"{folder / taken[0]} exists; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in STARTER.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in STARTER]


def add_case(
    folder: Path, session: str, records: Sequence[Record], *, agent: str = "", keeps_replies: bool = False
) -> Path:
    """Write a task file with the prompts of a session and the scorers that it would pass; returns its path."""
    stem = re.sub(r"[^A-Za-z0-9]+", "_", session).strip("_").lower()
    path = folder / f"eval_{stem}.toml"
    if path.exists():
        raise MisuseError(f"{path} exists; remove it to write it again")
    text = "\n".join(_describe_case(folder, session, records, agent, keeps_replies=keeps_replies)) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _describe_case(
    folder: Path, session: str, records: Sequence[Record], agent: str, *, keeps_replies: bool
) -> Iterator[str]:
    prompts = [
        "".join(part.text for part in each.parts if isinstance(part, Text))
        for each in _list(records, e.Prompted)
    ]
    if not any(prompts):
        raise MisuseError(f"session {session!r} has no prompt in text, so it cannot become a task")
    yield f"# Made of session {session} by `bridle eval add`. Review it: it has the text of the conversation."
    yield f"prompt = {quote_toml(prompts[0] if len(prompts) == 1 else prompts)}"
    settings = _list(records, e.Configured)[-1].settings
    if agent:
        yield f"agent = {quote_toml(os.path.relpath(agent, folder))}"
    answers = {each.name: each.answer for each in _list(records, e.ApprovalAnswered)}
    if known := {
        name: answer for name, answer in answers.items() if name and answer in get_args(PersonAnswer)
    }:
        yield f"approvals = {quote_toml(known)}"
    if any(not isinstance(part, Text) for each in _list(records, e.Prompted) for part in each.parts):
        yield "# A prompt of the session had media, which are not kept here."
    if keeps_replies:
        yield "replies = ["
        yield from (f"  {reply}," for reply in _list_replies(records))
        yield "]"
    if not agent and not _has_default_agent(folder):
        yield ""
        yield "[agent]  # the tools of the session are not in its log: add `tools`, or name an agent file"
        yield f"model = {quote_toml('sim:' if keeps_replies else settings.model.name)}"
        if settings.instructions:
            yield f"instructions = {quote_toml(settings.instructions)}"
    yield ""
    yield "[expect]"
    yield from _propose_scorers(records)


def _has_default_agent(folder: Path) -> bool:
    path = folder / SUITE_FILE
    file = read_toml_file(path) if path.is_file() else None
    return file is not None and bool(convert_table(file, SuiteFile).defaults.get("agent"))


def _propose_scorers(records: Sequence[Record]) -> Iterator[str]:
    ends = _list(records, e.RunEnded)
    stop = ends[-1].stop if ends else "done"
    if stop != "done":
        yield f"stop = {quote_toml(stop)}"
    replies = [each for each in _list(records, e.ModelReplied) if not each.summarizes_until]
    answer = replies[-1].reply.text.strip() if replies else ""
    if answer and stop == "done":
        yield f"# The answer was {quote_toml(' '.join(answer.split())[:200])}; name what matters in it:"
        yield f"contains = {quote_toml(_pick_fact(answer))}"
    started = _list(records, e.ToolStarted)
    names = list(dict.fromkeys(each.name for each in started))
    denied = [each.name for each in _list(records, e.ToolFinished) if each.result.outcome == "denied"]
    if names:
        yield f"order = {quote_toml(names)}"
    if refused := sorted(set(denied) - set(names)):
        yield f"not_called = {quote_toml(refused)}"
    yield f"steps_max = {len(replies) + 2}"
    for each in {item.call_id: item for item in started}.values():
        yield ""
        yield "[[expect.calls]]"
        yield f"tool = {quote_toml(each.name)}"
        yield f"arguments = {quote_toml(_expect_value(json.loads(each.arguments or '{}')))}"


def _expect_value(value: object) -> object:
    """A value to compare with: TOML has no null, and a text `/…/` would be read as a pattern."""
    match value:
        case dict():
            return {key: _expect_value(inner) for key, inner in value.items() if inner is not None}
        case list():
            return [_expect_value(inner) for inner in value]
        case str() if as_pattern(value):
            return f"/^{re.escape(value)}$/"
    return value


def _pick_fact(answer: str) -> str:
    """A short literal part of the answer to start from: its first number, else the start of its first line."""
    number = re.search(r"\d[\d.,]*\d|\d", answer)
    return number[0] if number else answer.splitlines()[0][:FACT_CHARACTERS].strip()


def _list_replies(records: Sequence[Record]) -> Iterator[str]:
    for each in _list(records, e.ModelReplied):
        if each.summarizes_until:
            continue
        lines = [f"!say {line}" for line in each.reply.text.split("\n")] if each.reply.text.strip() else []
        lines += [f"!call {call.name} {call.arguments or '{}'}" for call in each.reply.calls]
        if lines:
            yield quote_toml("\n".join(lines))


def _list(records: Sequence[Record], kind: type[e.Event]) -> list:  # type: ignore[type-arg]
    return [record.event for record in records if isinstance(record.event, kind)]


def quote_toml(value: object) -> str:
    """A value as TOML on one line."""
    match value:
        case dict():
            return (
                "{ "
                + ", ".join(f"{quote_toml(str(key))} = {quote_toml(inner)}" for key, inner in value.items())
                + " }"
            )
        case list() | tuple():
            return "[" + ", ".join(quote_toml(each) for each in value) + "]"
        case None:
            return '""'
        case str():
            # A TOML string is a JSON string, without surrogates and with DEL escaped.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)

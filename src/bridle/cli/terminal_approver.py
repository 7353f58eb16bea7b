"""Asks the person at the terminal about a tool call.

    pay(amount: 7, to: "shop") — it may change something
    allow it?  y yes · n no · e edit the arguments · w leave it open and stop here

Input is read without a thread, so that Ctrl-C ends the wait immediately.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable

import msgspec

from bridle.cli.commands.approvals import INDENT, format_question
from bridle.cli.format.columns import screen_width
from bridle.core.calls.argument_changes import list_changes
from bridle.run.calls.approval import wait_for_answers
from bridle.values.calls import ApprovalVerdict, PendingApproval
from bridle.values.text import escape_text
from bridle.watchers.console import Console

CHOICES = {
    "run": "y yes · n no · e edit the arguments · w leave it open and stop here",
    "in_doubt": "y run it again · n no · d it was done · w leave it open and stop here",
    "sampling": "y let it ask the model · n no",
    "elicitation": "y answer · n decline",
}
"""Answers by kind of question."""


def show_question(console: Console, question: PendingApproval, *more: str) -> None:
    # guard: approver-prints-nothing
    first, *rest = format_question(question, screen_width() - len(INDENT))
    console.note(first, "yellow")
    # guard: approver-shows-defaults
    for line in (*rest, *more):
        console.note(f"{INDENT}{line}", "dim")


class WaitingApprover:
    """Shows a question, and waits until another process answers it."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def ask(self, question: PendingApproval) -> ApprovalVerdict | None:
        hint = f"waiting; in another terminal: bridle approvals approve {question.id}"
        show_question(self._console, question, hint)
        return await wait_for_answers(question)


class TerminalApprover:
    def __init__(self, console: Console, read_answer: Callable[[], Awaitable[str]] | None = None) -> None:
        """`read_answer` reads a line, if the terminal is read elsewhere meanwhile; empty at the end of the input."""
        self._console, self._read_answer = console, read_answer or read_terminal_line

    async def ask(self, question: PendingApproval) -> ApprovalVerdict | None:
        if question.question == "elicitation":
            return await self._ask_values(question)
        show_question(self._console, question)
        while True:
            answer = await self._read(f"{CHOICES[question.question]}: ")
            match answer.strip().lower():
                case "y" | "yes":
                    return ApprovalVerdict(answer="approve", by="terminal")
                case "n" | "no":
                    reason = await self._read("why (for the model; may be empty): ")
                    return ApprovalVerdict(answer="reject", reason=reason.strip(), by="terminal")
                case "e" | "edit" if question.question == "run":
                    edited = await self._read("arguments: ")
                    if _is_json_object(edited):
                        for line in list_changes(question.arguments, edited):
                            self._console.note(f"  changed: {line}", "yellow")
                        return ApprovalVerdict(answer="approve", arguments=edited.strip(), by="terminal")
                    self._console.note("not a JSON object", "red")
                case "d" | "done" if question.question == "in_doubt":
                    result = await self._read("its result: ")
                    return ApprovalVerdict(answer="done", reason=result.strip() or "done", by="terminal")
                case "w" | "wait":
                    return None
                case "" if answer == "":
                    return None  # end of input

    async def _ask_values(self, question: PendingApproval) -> ApprovalVerdict | None:
        """Show the question of a server, and read a value for each of its fields."""
        asked = msgspec.json.decode(question.arguments)
        self._console.note(question.rule, "yellow")
        for line in asked["message"].split("\n"):
            self._console.note(f"  {escape_text(line, exact=True)}", "bold")
        if "url" in asked:
            self._console.note(f"  open it yourself if you trust it: {escape_text(asked['url'], exact=True)}")
        while True:
            answer = await self._read(f"{CHOICES['elicitation']}: ")
            match answer.strip().lower():
                case "y" | "yes":
                    break
                case "n" | "no":
                    return ApprovalVerdict(answer="reject", by="terminal")
                case "" if answer == "":
                    return None  # end of input
        values: dict[str, object] = {}
        for name, field in asked.get("fields", {}).get("properties", {}).items():
            given = (await self._read(f"{_describe_field(name, field)}: ")).strip()
            if given:
                values[name] = _parse_value(given, field)
        return ApprovalVerdict(answer="approve", arguments=values, by="terminal")

    async def _read(self, prompt: str) -> str:
        with self._console.hold_output(prompt):
            return await self._read_answer()


def _describe_field(name: str, field: object) -> str:
    """Name, meaning and accepted values of a field, in the words of the server."""
    about = field if isinstance(field, dict) else {}
    choices = about.get("enum") or [
        one.get("const") for one in about.get("oneOf", ()) if isinstance(one, dict)
    ]
    parts = [about.get("title"), about.get("description"), about.get("type"), choices and f"one of {choices}"]
    if "default" in about:
        parts.append(f"empty for {about['default']!r}")
    marks = "; ".join(str(part) for part in parts if part)
    return escape_text(f"{name} ({marks})" if marks else name, exact=True)


def _parse_value(text: str, field: object) -> object:
    """The value that a person typed: text for a string field, JSON for any other."""
    if isinstance(field, dict) and field.get("type") == "string":
        return text
    try:
        return msgspec.json.decode({"yes": "true", "no": "false"}.get(text.lower(), text))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text  # refused with the other problems of the answer


async def read_terminal_line() -> str:
    """The next line of standard input."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def mark_readable() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(descriptor, mark_readable)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
    return sys.stdin.readline()


def _is_json_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True

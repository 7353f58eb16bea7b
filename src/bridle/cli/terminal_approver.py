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
from bridle.values.calls import ApprovalVerdict, PendingApproval
from bridle.watchers.console import Console

APPROVAL_CHOICES = "y yes · n no · e edit the arguments · w leave it open and stop here"
IN_DOUBT_CHOICES = "y run it again · n no · d it was done · w leave it open and stop here"


class TerminalApprover:
    def __init__(self, console: Console, read_answer: Callable[[], Awaitable[str]] | None = None) -> None:
        """`read_answer` reads a line, if the terminal is read elsewhere meanwhile; empty at the end of the input."""
        self._console, self._read_answer = console, read_answer or read_terminal_line

    async def ask(self, question: PendingApproval) -> ApprovalVerdict | None:
        doubt = question.question == "in_doubt"
        first, *rest = format_question(question, screen_width() - len(INDENT))
        self._console.note(first, "yellow")
        for line in rest:
            self._console.note(f"{INDENT}{line}", "dim")
        while True:
            answer = await self._read(f"{IN_DOUBT_CHOICES if doubt else APPROVAL_CHOICES}: ")
            match answer.strip().lower():
                case "y" | "yes":
                    return ApprovalVerdict(answer="approve", by="terminal")
                case "n" | "no":
                    reason = await self._read("why (for the model; may be empty): ")
                    return ApprovalVerdict(answer="reject", reason=reason.strip(), by="terminal")
                case "e" | "edit" if not doubt:
                    edited = await self._read("arguments: ")
                    if _is_json_object(edited):
                        for line in list_changes(question.arguments, edited):
                            self._console.note(f"  changed: {line}", "yellow")
                        return ApprovalVerdict(answer="approve", arguments=edited.strip(), by="terminal")
                    self._console.note("not a JSON object", "red")
                case "d" | "done" if doubt:
                    result = await self._read("its result: ")
                    return ApprovalVerdict(answer="done", reason=result.strip() or "done", by="terminal")
                case "w" | "wait":
                    return None
                case "" if answer == "":
                    return None  # end of input

    async def _read(self, prompt: str) -> str:
        with self._console.hold_output(prompt):
            return await self._read_answer()


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

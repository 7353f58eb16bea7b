"""The /commands of `bridle chat`: one row each, from which the help and the documentation are made."""

import re
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import NamedTuple

from bridle.cli.commands.cost import format_rows, list_session_entries, make_rows, make_total
from bridle.cli.commands.fork import format_fork_place
from bridle.cli.format.columns import format_table, screen_width, trim_line
from bridle.cli.log_access import read_session
from bridle.run.lineage import first_prompt_text, fork_session
from bridle.values.errors import BridleError
from bridle.values.events import Prompted
from bridle.watchers.console import shorten

from .conversation import ChatConversation

COMMAND_LINE = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)
NO_PROMPT = "this chat has no prompt yet"


class ChatCommand(NamedTuple):
    name: str
    arguments: str
    meaning: str
    execute: Callable[[ChatConversation, str], Awaitable[None]]


async def _show_help(chat: ChatConversation, _: str) -> None:
    rows = [(f"/{row.name} {row.arguments}".strip(), row.meaning) for row in CHAT_COMMANDS]
    chat.print_lines(
        [
            *(f"  {line}" for line in format_table(rows)),
            "",
            "A line that ends in \\ continues on the next one. While the model works, a line",
            "that you type goes to it as a message, and Ctrl-C interrupts it. At the prompt,",
            "Ctrl-C drops the line; Ctrl-D, or Ctrl-C twice, leaves.",
        ]
    )


async def _change_model(chat: ChatConversation, name: str) -> None:
    if name:
        before = chat.options.model
        chat.options.model = name
        try:
            chat.agent = chat.build_agent()
        except BridleError:
            chat.options.model = before
            raise
    model = chat.agent.settings.model
    chat.console.note(f"model: {model.name}" + (" (simulated)" if model.endpoint.simulated else ""))


async def _list_tools(chat: ChatConversation, _: str) -> None:
    specs = [tool.spec for tool in chat.agent.tools.values()]
    if not specs:
        chat.console.note("no tools; start with --tools FILE or -a FILE to add some")
        return
    rows = [(spec.name, spec.effect, shorten(spec.description)) for spec in specs]
    chat.print_lines([trim_line(f"  {line}", screen_width()) for line in format_table(rows)])


async def _show_cost(chat: ChatConversation, _: str) -> None:
    if chat.session is None:
        chat.console.note(f"nothing spent: {NO_PROMPT}")
        return
    entries = await list_session_entries(chat.store, chat.session)
    chat.print_lines(list(format_rows(make_rows(entries, "model"), make_total(entries), None, "model")))


async def _fork_chat(chat: ChatConversation, place: str) -> None:
    if chat.session is None:
        chat.console.note(f"nothing to fork: {NO_PROMPT}")
        return
    made = await fork_session(chat.store, chat.session, place or None)
    for line in format_fork_place(made):
        chat.console.note(line)
    chat.session = made.session


async def _undo_prompt(chat: ChatConversation, _: str) -> None:
    if chat.session is None:
        chat.console.note(f"nothing to undo: {NO_PROMPT}")
        return
    records = await read_session(chat.store, chat.session)
    prompts = [record for record in records if isinstance(record.event, Prompted)]
    chat.console.note(f"taken back: {shorten(first_prompt_text(prompts[-1:]))}")
    if len(prompts) == 1:
        chat.console.note(f"a new session starts; {chat.session} keeps what happened")
        chat.session = None
        return
    made = await fork_session(chat.store, chat.session, prompts[-1].seq - 1)
    for line in format_fork_place(made):
        chat.console.note(line, "yellow" if made.completed_actions else "dim")
    chat.session = made.session


async def _compact_chat(chat: ChatConversation, _: str) -> None:
    if chat.session is None:
        chat.console.note(f"nothing to compact: {NO_PROMPT}")
        return
    chat.plan_compaction()
    chat.console.note("the conversation is compacted before your next prompt is sent")


async def _resume_run(chat: ChatConversation, _: str) -> None:
    await chat.resume()


async def _leave_chat(chat: ChatConversation, _: str) -> None:
    chat.is_leaving = True


CHAT_COMMANDS = (
    ChatCommand("help", "", "list the commands", _show_help),
    ChatCommand("model", "[NAME]", "show the model, or continue with another one", _change_model),
    ChatCommand("tools", "", "list the tools that the model can call", _list_tools),
    ChatCommand("cost", "", "show the cost of the session by model", _show_cost),
    ChatCommand("fork", "[PLACE]", "continue in a copy: of everything, or up to a message (m4)", _fork_chat),
    ChatCommand("undo", "", "take the last prompt and its answer back, in a copy", _undo_prompt),
    ChatCommand("compact", "", "shorten the conversation before the next prompt", _compact_chat),
    ChatCommand("resume", "", "continue an unfinished run, such as one waiting for an approval", _resume_run),
    ChatCommand("exit", "", "leave; `bridle chat SESSION` continues", _leave_chat),
)


def parse_command(line: str) -> tuple[str, str] | None:
    """Name and argument of a /command; None if the line is a prompt, such as one that starts with a path."""
    found = COMMAND_LINE.fullmatch(line.rstrip())
    return (found[1], (found[2] or "").strip()) if found else None


async def execute_command(chat: ChatConversation, name: str, argument: str) -> None:
    """Execute a /command; a mistake is reported in one line."""
    rows = {row.name: row for row in CHAT_COMMANDS}
    row = rows.get(name)
    if row is None:
        near = get_close_matches(name, rows, n=1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists the commands"
        chat.console.note(f"unknown command /{name}; {hint} A space in front makes it a prompt.", "red")
        return
    if argument and not row.arguments:
        chat.console.note(f"/{name} takes no argument, not '{argument}'", "red")
        return
    try:
        await row.execute(chat, argument)
    except BridleError as error:
        chat.console.note(str(error), "red")

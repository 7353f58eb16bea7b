"""Talk with an agent: one session, prompt after prompt.

The answer is streamed to standard output; tool calls, notices and a line with cost and cache share after each
turn go to standard error. Text typed while the model works is sent to it, Ctrl-C interrupts it and keeps what was
said, and /help lists the commands. Without a terminal, every line of standard input is a prompt or a /command; a
line that ends in a backslash continues on the next one.
"""

import argparse
import asyncio
import sys

from bridle.cli.agent_options import add_agent_options, describe_toolkit, is_interactive
from bridle.cli.commands.run import add_session_options
from bridle.cli.log_access import add_store_option, open_log
from bridle.cli.session_names import add_session_argument
from bridle.ports.store import Store
from bridle.watchers.console import Console

from .conversation import ChatConversation
from .prompt_input import EndOfInput, PromptInput, open_prompt_input
from .slash_commands import CHAT_COMMANDS, execute_command, parse_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session_argument(parser, nargs="?", help_="continue this session, with its model and instructions")
    parser.add_argument(
        "-c", "--continue", dest="uses_latest", action="store_true", help="continue the latest session"
    )
    add_agent_options(parser)
    add_session_options(parser)
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    console = Console(None if options.json else sys.stdout, sys.stderr, reasoning=bool(options.reasoning))
    interactive = is_interactive()
    with asyncio.Runner() as runner:
        store = open_log(options.store)
        try:
            chat = ChatConversation(options, console, store, listens=interactive)
            runner.run(chat.open())
            commands = {f"/{row.name}": row.meaning for row in CHAT_COMMANDS}
            prompts = open_prompt_input(commands, interactive=interactive)
            if interactive:
                console.note(f"{chat.agent.settings.model.name} · /help lists the commands, Ctrl-D leaves")
                if options.toolkit:
                    console.note(describe_toolkit(options))
                if prompts.hint:
                    console.note(prompts.hint)
            _converse(chat, prompts, runner)
        finally:
            runner.run(_stop_and_close(store))
    if chat.session is not None and not options.json:
        console.note(f"to continue: bridle chat {chat.session}")
    return 0 if interactive else chat.code


async def _stop_and_close(store: Store) -> None:
    """Close the log, after an interrupted turn has recorded its end."""
    unfinished = asyncio.all_tasks() - {asyncio.current_task()}
    for task in unfinished:
        task.cancel()
    await asyncio.gather(*unfinished, return_exceptions=True)
    await store.close()


def _converse(chat: ChatConversation, prompts: PromptInput, runner: asyncio.Runner) -> None:
    """Run prompts and commands until the input ends or /exit."""
    while not chat.is_leaving:
        try:
            line = chat.waiting_lines.pop(0) if chat.waiting_lines else prompts.read()
        except EndOfInput:
            return
        if not line.strip():
            continue
        command = parse_command(line)
        runner.run(execute_command(chat, *command) if command else chat.run_prompt(line.strip()))

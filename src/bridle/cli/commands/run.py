"""Run an agent on a prompt.

The answer goes to standard output, progress and a closing line with usage and cost to standard error. On a
terminal the answer is streamed, and status lines say what the model and the tools are doing. With --json, one
JSON object goes to standard output. Ctrl-C cancels the run; what it produced is kept, and the session can be
continued.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import TextIO

import msgspec

from bridle.cli.agent_builder import AgentBuilder
from bridle.cli.agent_options import add_agent_options
from bridle.cli.attached_files import STANDARD_INPUT, attach_files
from bridle.cli.format.printing import print_error, print_line, print_text
from bridle.cli.log_access import (
    add_store_option,
    find_outer_session,
    fold_state,
    format_resume,
    read_session,
    tenant_of,
    use_log,
)
from bridle.cli.main import EXIT_CANCELLED, EXIT_MISUSE
from bridle.cli.option_values import make_count_parser
from bridle.cli.session_names import add_session_argument
from bridle.core.state import State
from bridle.run.agent import Agent
from bridle.run.context.run_options import RunOptions
from bridle.run.context.shown_deltas import StreamItem
from bridle.run.stream import Stream
from bridle.values.errors import MisuseError
from bridle.values.lineage import CrossTenant
from bridle.values.message import Prompt
from bridle.values.result import FinalAnswer, Result
from bridle.values.settings import Settings
from bridle.watchers.console import Console, format_count, format_dollars, format_duration, format_usage

USER_FIXABLE_FAILURES = ("unauthorized", "not_found", "unreachable", "quota", "invalid")
"""Failures that the user can correct: exit code 2."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("prompt", nargs="?", help="the prompt; `-`, or none with a pipe, reads it from standard input")
    add_agent_options(parser)
    add(
        "-f",
        "--file",
        action="append",
        default=[],
        metavar="FILE",
        help="text, image, PDF, audio or video to send with the prompt; `-` is standard input; repeatable",
    )
    add_session_argument(
        parser, "--session", metavar="ID", help_="continue this session, with its model and instructions"
    )
    add_session_options(parser)
    add_store_option(parser)


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Options of the commands that send prompts: `run` and `chat`."""
    add = parser.add_argument
    add("-i", "--instructions", default="", help="system prompt")
    add(
        "--project-instructions",
        action="append",
        default=[],
        metavar="FILE",
        help="add this file to the system prompt, such as AGENTS.md; read once per session; repeatable",
    )
    add("--output", metavar="SCHEMA.json", help="answer as JSON that matches the schema in this file")
    add("--effort", metavar="LEVEL", help="reasoning effort, such as low, medium or high")
    add("--max-tokens", type=make_count_parser(1), metavar="N", help="maximum tokens of one reply")
    add(
        "--memory",
        action=argparse.BooleanOptionalAction,
        help="show notes to the model, and let it write some",
    )
    add(
        "--tenant",
        metavar="T",
        help="tenant of the run: its notes, budgets and cost reports (default: the session's tenant)",
    )
    add("--across-tenants", action="store_true", help="allow a session of another tenant")
    add(
        "--stream",
        action=argparse.BooleanOptionalAction,
        help="show the answer while it is written (default), or request whole replies",
    )


def execute(options: argparse.Namespace) -> int:
    attaches_input = options.file.count(STANDARD_INPUT)
    reads_input = options.prompt == STANDARD_INPUT or (
        options.prompt is None and not attaches_input and sys.stdin is not None and not sys.stdin.isatty()
    )
    if attaches_input + reads_input > 1:
        raise MisuseError("standard input can be read once: as the prompt (-) or as a file (-f -)")
    prompt = sys.stdin.read() if reads_input else options.prompt or ""
    if not prompt.strip():
        raise MisuseError('the prompt is empty; try: bridle run "What is 17 * 23 minus 100?"')
    return run_agent(options, session=options.session, prompt=attach_files(prompt, options.file))


def run_agent(options: argparse.Namespace, *, session: str | None, prompt: Prompt | None) -> int:
    """Run a prompt, or without one resume the session; return the exit code."""
    out = sys.stdout
    console = Console(
        out if out.isatty() and not options.json else None,
        sys.stderr,
        reasoning=bool(options.reasoning),
        animated=not options.json,
    )
    builder = AgentBuilder(options, console, is_resume=prompt is None)
    if not options.json:
        builder.report_sources()
    # Output of tools must not mix with the answer, nor with the status lines.
    printed = console.wrap_output()
    with redirect_stdout(printed), redirect_stderr(printed):
        agent, result, seconds = asyncio.run(_run_session(options, console, builder, session, prompt))
    return _print_result(options, out, console, agent, result, seconds)


async def _run_session(
    options: argparse.Namespace,
    console: Console,
    builder: AgentBuilder,
    session: str | None,
    prompt: Prompt | None,
) -> tuple[Agent[object, object], Result[object], float]:
    async with use_log(options.store, to_read=False) as store:
        wanted = tenant_of(options) if prompt is None else None
        state = fold_state(await read_session(store, session, wanted)) if session else State()
        before = state.settings
        if session and before.model.endpoint.is_program:
            outer = await find_outer_session(store, session) or session
            more = () if options.tools or options.agent else ("--tools", "FILE")
            code_mode = () if options.code_mode or options.agent else ("--code-mode",)
            raise MisuseError(
                f"session {session} is that of a program in another run; resume the run that started it:"
                f" {format_resume(options, outer, *more, *code_mode)}"
            )
        if prompt is None:
            builder.check_tools(before)
        agent = builder.build(store, before, new_run=prompt is not None)
        if agent.settings.model.endpoint.simulated and not options.json:
            reason = "" if builder.names_model or session else "no model given and no API key set: "
            console.note(f"{reason}using the built-in simulator; nothing is sent or charged", "yellow")
        began = time.monotonic()
        if prompt is not None:
            owner = state.identity.owner or ""
            named = owner if options.tenant is None else options.tenant
            tenant = CrossTenant(named) if options.across_tenants else named
            stream = agent.stream(prompt, session, deltas=options.stream is not False, tenant=tenant)
        else:
            context = await builder.make_context(state)
            stream = open_resumed_stream(agent, builder, session or "", before, options, context)
        return agent, await watch_stream(stream, console), time.monotonic() - began


def open_resumed_stream(
    agent: Agent[object, object],
    builder: AgentBuilder,
    session: str,
    before: Settings,
    options: argparse.Namespace,
    context: object = None,
) -> Stream[object]:
    """The unfinished run of a session, to be continued with the model of the agent."""
    own, given = agent.settings, RunOptions()
    if not builder.keeps_model and any(override.option == "model" for override in before.overrides):
        given["model"] = own.models or own.model  # chosen by the builder, from the options or the log
    return agent.resume_stream(
        session,
        budget=builder.make_resume_budget(),
        tenant=tenant_of(options),
        trust_approvals=getattr(options, "trust_approvals", False),
        take_over=getattr(options, "take_over", False),
        context=context,
        **given,
    )


async def watch_stream(
    stream: Stream[object], console: Console, notice: Callable[[StreamItem], None] | None = None
) -> Result[object]:
    """Run to the end; Ctrl-C or output that cannot be written cancels. `notice` is called with every item."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT) or signal.default_int_handler

    def restore_handler() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)

    def interrupt() -> None:
        stream.cancel()
        restore_handler()  # asyncio's own: a second Ctrl-C cancels the task, a third ends it at once

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        async with console.animate():
            async for event in stream:
                if isinstance(event, FinalAnswer):
                    return event.result
                if notice is not None:
                    notice(event)
                if console.failed:
                    stream.cancel()
    finally:
        restore_handler()
    raise AssertionError("a stream ends with a FinalAnswer")


def _print_result(
    options: argparse.Namespace,
    out: TextIO,
    console: Console,
    agent: Agent[object, object],
    result: Result[object],
    seconds: float,
) -> int:
    """Print the result and return the exit code."""
    code = exit_code(result)
    simulated = agent.settings.model.endpoint.simulated
    if console.failed:
        raise console.failed
    if options.json:
        print_line(
            encode_result(
                result,
                agent.settings.model.name,
                simulated=simulated,
                has_output=agent.settings.output is not None,
            ),
            file=out,
            flush=True,
        )
        return code
    is_typed = agent.settings.output is not None and result.done
    if is_typed:
        print_text(msgspec.json.encode(result.output).decode(), file=out, flush=True)
    elif not out.isatty() and result.text:
        print_text(result.text, file=out, flush=True)
    if code == EXIT_MISUSE:
        print_error(result.reason)
        return code
    if result.stop == "waiting":
        console.note(
            f"{result.reason}; `bridle approvals` lists it, then: {format_resume(options, result.session)}",
            "yellow",
        )
    elif not result.done:
        console.note(f"ended: {result.stop}" + (f": {result.reason}" if result.reason else ""), "red")
    cost = format_dollars(result.cost) + (" (simulated)" if simulated else "")
    steps = format_count(result.steps, "step")
    console.note(
        f"{format_usage(result.usage)} · {cost} · {steps} · {format_duration(seconds)} · session {result.session}"
    )
    return code


def exit_code(result: Result[object]) -> int:
    if result.done:
        return 0
    if result.stop == "cancelled":
        return EXIT_CANCELLED
    failure = result.failure
    if failure is None:
        return 1
    elsewhere = failure.kind == "garbled" and failure.should_retry is False
    return EXIT_MISUSE if elsewhere or failure.kind in USER_FIXABLE_FAILURES else 1


def encode_result(result: Result[object], model: str, *, simulated: bool, has_output: bool) -> str:
    usage = result.usage
    data = {
        "session": result.session,
        "model": model,
        "simulated": simulated,
        "stop": result.stop,
        "reason": result.reason,
        "text": result.text,
        "usage": {
            "input": usage.input,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "output": usage.output,
            "reasoning": usage.reasoning,
        },
        "cost": result.cost,
        "own_cost": result.own_cost,
        "subruns": result.subruns,
        "steps": result.steps,
        "messages": result.messages,
    }
    if has_output:
        data["output"] = result.output
    return msgspec.json.encode(data).decode()

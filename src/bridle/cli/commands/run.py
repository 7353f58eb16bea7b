"""Run an agent on a prompt.

The answer goes to standard output, progress and a closing line with usage and cost to standard error. On a
terminal the answer is streamed. With --json, one JSON object goes to standard output. Ctrl-C cancels the run;
what it produced is kept, and the session can be continued.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TextIO

import msgspec
from msgspec.structs import replace

from bridle.cli.agent_options import (
    add_agent_options,
    add_default_rule,
    choose_models,
    make_approver,
    make_budget,
    read_policy_option,
    report_hosted_tools,
    take_extras_from_log,
    take_policy_from_log,
)
from bridle.cli.format.printing import print_error, print_line, print_text
from bridle.cli.log_access import add_store_option, fold_state, open_log, read_session
from bridle.cli.main import EXIT_CANCELLED, EXIT_MISUSE
from bridle.cli.tool_loader import load_tools
from bridle.core.note_tools import FORGET_TOOL, REMEMBER_TOOL
from bridle.core.state import State
from bridle.ports.store import Store
from bridle.providers.catalogue import choose_default_model
from bridle.run.agent import Agent
from bridle.run.context.run_options import RunOptions
from bridle.run.logged_settings import take_logged_instructions
from bridle.run.stream import Stream
from bridle.values.errors import MisuseError
from bridle.values.lineage import CrossTenant
from bridle.values.memory import Memory
from bridle.values.model import Model
from bridle.values.result import FinalAnswer, Result
from bridle.values.settings import Settings
from bridle.watchers.console import Console, format_count, format_dollars, format_duration, format_usage

AgentMaker = Callable[[str | Model | None, Store, Settings], Agent[object, str]]
USER_FIXABLE_FAILURES = ("unauthorized", "not_found", "unreachable", "quota", "invalid")
"""Failures that the user can correct: exit code 2."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("prompt", help="the prompt; `-` reads it from standard input")
    add_agent_options(parser)
    add("-i", "--instructions", default="", help="system prompt")
    add("--session", metavar="ID", help="continue this session, with its model and instructions")
    add("--memory", action="store_true", help="show notes to the model, and let it write some")
    add(
        "--tenant",
        metavar="T",
        help="tenant of the run: its notes, budgets and cost reports (default: the session's tenant)",
    )
    add("--across-tenants", action="store_true", help="allow a session of another tenant")
    add("--no-stream", dest="stream", action="store_false", help="request whole replies instead of streams")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    if not prompt.strip():
        raise MisuseError('the prompt is empty; try: bridle run "What is 17 * 23 minus 100?"')
    return run_agent(options, session=options.session, prompt=prompt)


def run_agent(options: argparse.Namespace, *, session: str | None, prompt: str | None) -> int:
    """Run a prompt, or without one resume the session; return the exit code."""
    out = sys.stdout
    console = Console(
        out if out.isatty() and not options.json else None, sys.stderr, reasoning=options.reasoning
    )
    # Options are checked before the event loop starts; a tools file may run its own loop while it is loaded.
    budget, policy, tools = make_budget(options), read_policy_option(options), load_tools(options.tools)

    def make(model: str | Model | None, store: Store, before: Settings) -> Agent[object, str]:
        """The agent; settings not given as options are those of the session."""
        report_hosted_tools(before, {tool.spec.name for tool in tools}, console)
        return Agent(
            choose_models(options, model, before),
            tools=tools,
            instructions=take_logged_instructions(before),
            name=before.name,
            budget=budget,
            store=store,
            policy=add_default_rule(policy or take_policy_from_log(options, before, console), options),
            approver=make_approver(console),
            max_tokens=before.max_tokens,
            thinking=before.thinking,
            sampling=before.sampling,
            repeats_max=before.repeats_max,
            attempts_max=before.attempts_max,
            chain=before.chain,
            cache_ttl=before.cache_ttl,
            prefix=before.prefix,
            memory=before.memory,
            extras=take_extras_from_log(before, console),
            on_truncation=before.on_truncation,
            watchers=() if options.json else (console,),
        )

    # Output of tools must not mix with the answer.
    with redirect_stdout(sys.stderr):
        agent, result, seconds = asyncio.run(_run_session(options, console, make, session, prompt))
    return _print_result(out, console, agent, result, seconds, as_json=options.json)


async def _run_session(
    options: argparse.Namespace, console: Console, make: AgentMaker, session: str | None, prompt: str | None
) -> tuple[Agent[object, str], Result[str], float]:
    store = open_log(options.store)
    try:
        crosses = options.across_tenants and options.tenant is not None
        resumer = CrossTenant(options.tenant) if crosses else options.tenant
        wanted = resumer if prompt is None else None
        state = fold_state(await read_session(store, session, wanted)) if session else State()
        before = state.settings
        model = options.model
        if prompt is None:
            _check_tools(before, options.tools)
        elif options.instructions or options.memory:
            instructions = options.instructions or before.instructions
            memory = Memory() if options.memory else before.memory
            kept = before.templates if instructions == before.instructions else ()
            before = replace(before, instructions=instructions, templates=kept, memory=memory)
        if not before.model.id:
            model = model or os.environ.get("BRIDLE_MODEL") or choose_default_model(os.environ)
        agent = make(model, store, before)
        if agent.settings.model.endpoint.simulated and not options.json:
            named = options.model or os.environ.get("BRIDLE_MODEL") or session
            reason = "" if named else "no model given and no API key set: "
            console.note(f"{reason}using the built-in simulator; nothing is sent or charged", "yellow")
        began = time.monotonic()
        if prompt is not None:
            owner = state.identity.owner or ""
            named = owner if options.tenant is None else options.tenant
            tenant = CrossTenant(named) if options.across_tenants else named
            stream = agent.stream(prompt, session, deltas=options.stream, tenant=tenant)
        else:
            own, given = agent.settings, RunOptions()
            if any(override.option == "model" for override in before.overrides):
                given["model"] = own.models or own.model  # chosen above, from the options or the log
            stream = agent.resume_stream(
                session or "",
                budget=make_budget(options),
                tenant=resumer,
                trust_approvals=options.trust_approvals,
                **given,
            )
        return agent, await _watch_stream(stream, console), time.monotonic() - began
    finally:
        await store.close()


def _check_tools(before: Settings, given: list[str]) -> None:
    ours = (REMEMBER_TOOL, FORGET_TOOL)
    names = ", ".join(spec.name for spec in before.tools if spec.native is None and spec not in ours)
    if names and not given:
        raise MisuseError(
            f"this session uses tools ({names}), whose code is not in the log; add --tools FILE"
        )


async def _watch_stream(stream: Stream[str], console: Console) -> Result[str]:
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        stream.cancel()
        loop.remove_signal_handler(signal.SIGINT)  # a second Ctrl-C ends the process

    loop.add_signal_handler(signal.SIGINT, interrupt)
    async for event in stream:
        if isinstance(event, FinalAnswer):
            return event.result
        if console.failed:
            stream.cancel()
    raise AssertionError("a stream ends with a FinalAnswer")


def _print_result(
    out: TextIO,
    console: Console,
    agent: Agent[object, str],
    result: Result[str],
    seconds: float,
    *,
    as_json: bool,
) -> int:
    """Print the result and return the exit code."""
    code = _exit_code(result)
    simulated = agent.settings.model.endpoint.simulated
    if console.failed:
        raise console.failed
    if as_json:
        print_line(
            _encode_result(result, agent.settings.model.name, simulated=simulated), file=out, flush=True
        )
        return code
    if not out.isatty() and result.text:
        print_text(result.text, file=out, flush=True)
    if code == EXIT_MISUSE:
        print_error(result.reason)
        return code
    if result.stop == "waiting":
        console.note(
            f"{result.reason}; `bridle approvals` lists it, then: bridle resume {result.session}", "yellow"
        )
    elif not result.done:
        console.note(f"ended: {result.stop}" + (f": {result.reason}" if result.reason else ""), "red")
    cost = format_dollars(result.cost) + (" (simulated)" if simulated else "")
    steps = format_count(result.steps, "step")
    console.note(
        f"{format_usage(result.usage)} · {cost} · {steps} · {format_duration(seconds)} · session {result.session}"
    )
    return code


def _exit_code(result: Result[str]) -> int:
    if result.done:
        return 0
    if result.stop == "cancelled":
        return EXIT_CANCELLED
    failure = result.failure
    if failure is None:
        return 1
    elsewhere = failure.kind == "garbled" and failure.should_retry is False
    return EXIT_MISUSE if elsewhere or failure.kind in USER_FIXABLE_FAILURES else 1


def _encode_result(result: Result[str], model: str, *, simulated: bool) -> str:
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
    return msgspec.json.encode(data).decode()

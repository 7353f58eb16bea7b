"""Put a prompt to an agent and watch it work.

The answer goes to standard output; what happens on the way and the closing line go to
standard error.  On a terminal the model's words are shown as they come; a pipe gets the
answer and nothing else.  With --json, one JSON object goes to standard output.
Ctrl-C cancels cleanly: what was said is kept, and the session can go on.
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

from ..core.memory import FORGET, REMEMBER
from ..core.state import State
from ..ports.store import Store
from ..providers.catalogue import preferred
from ..run.agent import Agent
from ..run.stream import Stream
from ..values.errors import MisuseError
from ..values.memory import Memory
from ..values.model import Model
from ..values.result import FinalAnswer, Result
from ..values.settings import Settings
from ..values.tenancy import Across
from ..watchers.console import Console, counts, dollars, duration, plural
from .agents import (
    add_agent_options,
    approver_of,
    budget_of,
    logged_extras_of,
    logged_policy_of,
    models_of,
    policy_of,
    with_default,
)
from .logs import fold, read_session
from .main import CANCELLED, MISUSE
from .places import add_store_option, open_log
from .printing import complain, say, say_lines
from .toolfile import load_tools

Maker = Callable[[str | Model | None, Store, Settings], Agent[str]]
YOURS_TO_MEND = ("unauthorized", "not_found", "unreachable", "quota", "invalid")
"""Failures that the person at the keyboard can put right: exit code 2."""


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("prompt", help="what to say; `-` reads it from standard input")
    add_agent_options(parser)
    add("-i", "--instructions", default="", help="the system prompt")
    add("--session", metavar="ID", help="go on with this session, its model and its instructions")
    add("--memory", action="store_true", help="show the model the notes it was left, and let it make some")
    add(
        "--tenant",
        metavar="T",
        help="on whose behalf: whose notes, and in whose name it is booked (default: the session's)",
    )
    add("--across-tenants", action="store_true", help="go on although the session is another tenant's")
    add("--no-stream", dest="stream", action="store_false", help="ask for whole replies, not streamed ones")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    if not prompt.strip():
        raise MisuseError('the prompt is empty; try: bridle run "What is 17 * 23 minus 100?"')
    return drive(options, session=options.session, prompt=prompt)


def drive(options: argparse.Namespace, *, session: str | None, prompt: str | None) -> int:
    """A prompt to its end, or without one, whatever was left unfinished in the session."""
    out = sys.stdout
    console = Console(
        out if out.isatty() and not options.json else None, sys.stderr, reasoning=options.reasoning
    )
    # Everything the person can have got wrong comes first; a tools file may want a loop of its own.
    budget, policy, tools = budget_of(options), policy_of(options), load_tools(options.tools)

    def make(model: str | Model | None, store: Store, before: Settings) -> Agent[str]:
        """The agent that is asked for; one that goes on with a session is what it was before."""
        return Agent(
            models_of(options, model, before),
            tools=tools,
            instructions=before.instructions,
            name=before.name,
            budget=budget,
            store=store,
            policy=with_default(policy or logged_policy_of(options, before, console), options),
            approver=approver_of(console),
            max_tokens=before.max_tokens,
            thinking=before.thinking,
            sampling=before.sampling,
            repeats_max=before.repeats_max,
            attempts_max=before.attempts_max,
            chain=before.chain,
            cache_ttl=before.cache_ttl,
            prefix=before.prefix,
            memory=before.memory,
            extras=logged_extras_of(before, console),
            on_truncation=before.on_truncation,
            watchers=() if options.json else (console,),
        )

    # What a tool prints is not the answer either.
    with redirect_stdout(sys.stderr):
        agent, result, seconds = asyncio.run(_run(options, console, make, session, prompt))
    return _tell(out, console, agent, result, seconds, as_json=options.json)


async def _run(
    options: argparse.Namespace, console: Console, make: Maker, session: str | None, prompt: str | None
) -> tuple[Agent[str], Result[str], float]:
    store = open_log(options.store)
    try:
        crosses = options.across_tenants and options.tenant is not None
        resumer = Across(options.tenant) if crosses else options.tenant
        wanted = resumer if prompt is None else None
        state = fold(await read_session(store, session, wanted)) if session else State()
        before = state.settings
        model = options.model
        if prompt is None:
            _check_tools(before, options.tools)
        elif options.instructions or options.memory:
            instructions = options.instructions or before.instructions
            memory = Memory() if options.memory else before.memory
            before = replace(before, instructions=instructions, memory=memory)
        if not before.model.id:
            model = model or os.environ.get("BRIDLE_MODEL") or preferred(os.environ)
        agent = make(model, store, before)
        if agent.settings.model.endpoint.simulated and not options.json:
            named = options.model or os.environ.get("BRIDLE_MODEL") or session
            how = "" if named else "no model was named and no key is set: "
            console.note(f"{how}this is the built-in simulated model, nothing is sent or charged", "yellow")
        began = time.monotonic()
        if prompt is not None:
            owner = state.owner or ""
            named = owner if options.tenant is None else options.tenant
            tenant = Across(named) if options.across_tenants else named
            stream = agent.stream(prompt, session, deltas=options.stream, tenant=tenant)
        else:
            stream = agent.resume_stream(
                session or "",
                budget=budget_of(options),
                tenant=resumer,
                trust_approvals=options.trust_approvals,
            )
        return agent, await _watched(stream, console), time.monotonic() - began
    finally:
        await store.close()


def _check_tools(before: Settings, given: list[str]) -> None:
    ours = (REMEMBER, FORGET)
    names = ", ".join(spec.name for spec in before.tools if spec.native is None and spec not in ours)
    if names and not given:
        raise MisuseError(f"this session has tools ({names}) and a log holds no code; add --tools FILE")


async def _watched(stream: Stream[str], console: Console) -> Result[str]:
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        stream.cancel()
        loop.remove_signal_handler(signal.SIGINT)  # a second Ctrl-C waits for nothing

    loop.add_signal_handler(signal.SIGINT, interrupt)
    async for event in stream:
        if isinstance(event, FinalAnswer):
            return event.result
        if console.failed:
            stream.cancel()
    raise AssertionError("a stream ends with a FinalAnswer")


def _tell(
    out: TextIO, console: Console, agent: Agent[str], result: Result[str], seconds: float, *, as_json: bool
) -> int:
    """Print what is left to print, and give the exit code."""
    code = _code(result)
    simulated = agent.settings.model.endpoint.simulated
    if console.failed:
        raise console.failed
    if as_json:
        say(_as_json(result, agent.settings.model.name, simulated=simulated), file=out, flush=True)
        return code
    if not out.isatty() and result.text:
        say_lines(result.text, file=out, flush=True)
    if code == MISUSE:
        complain(result.reason)
        return code
    if result.stop == "waiting":
        console.note(
            f"{result.reason}; `bridle approvals` lists it, then: bridle resume {result.session}", "yellow"
        )
    elif not result.done:
        console.note(f"ended: {result.stop}" + (f": {result.reason}" if result.reason else ""), "red")
    cost = dollars(result.cost) + (" (simulated)" if simulated else "")
    steps = plural(result.steps, "step")
    console.note(
        f"{counts(result.usage)} · {cost} · {steps} · {duration(seconds)} · session {result.session}"
    )
    return code


def _code(result: Result[str]) -> int:
    if result.done:
        return 0
    if result.stop == "cancelled":
        return CANCELLED
    failure = result.failure
    if failure is None:
        return 1
    elsewhere = failure.kind == "garbled" and failure.should_retry is False
    return MISUSE if elsewhere or failure.kind in YOURS_TO_MEND else 1


def _as_json(result: Result[str], model: str, *, simulated: bool) -> str:
    usage = result.usage
    told = {
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
    return msgspec.json.encode(told).decode()

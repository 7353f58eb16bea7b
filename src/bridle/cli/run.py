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
from contextlib import redirect_stdout
from typing import TextIO

import msgspec

from ..ports.store import Store
from ..providers.catalogue import preferred
from ..run.agent import Agent
from ..values.errors import MisuseError, SessionNotFound
from ..values.result import FinalAnswer, Result
from ..values.usage import STEPS_DEFAULT, Budget
from ..watchers.console import Console, counts, dollars, duration
from .main import CANCELLED, MISUSE, complain
from .places import add_store_option, open_log
from .toolfile import load_tools

YOURS_TO_MEND = ("unauthorized", "not_found", "unreachable", "quota", "invalid")
"""Failures that the person at the keyboard can put right: exit code 2."""


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("prompt", help="what to say; `-` reads it from standard input")
    add(
        "-m",
        "--model",
        help="vendor:model (default: $BRIDLE_MODEL, a vendor whose key is set, or the simulator, sim:)",
    )
    add(
        "--tools",
        action="append",
        default=[],
        metavar="FILE.py|module",
        help="take the @tool functions in there; may be given more than once",
    )
    add("-i", "--instructions", default="", help="the system prompt")
    add(
        "--usd",
        type=float,
        metavar="N",
        help="stop before this many dollars are spent (an estimate, on the dear side)",
    )
    add("--tokens", type=int, metavar="N", help="stop before this many tokens are used (likewise)")
    add(
        "--steps",
        type=int,
        default=STEPS_DEFAULT,
        metavar="N",
        help=f"model calls at most (default {STEPS_DEFAULT})",
    )
    add("--seconds", type=float, metavar="N", help="stop after this long")
    add("--session", metavar="ID", help="go on with this session")
    add("--json", action="store_true", help="print the result as JSON")
    add("--no-stream", dest="stream", action="store_false", help="ask for whole replies, not streamed ones")
    add("--reasoning", action="store_true", help="show the model's reasoning where it is given")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    if not prompt.strip():
        raise MisuseError('the prompt is empty; try: bridle run "What is 17 * 23 minus 100?"')
    budget = Budget(usd=options.usd, tokens=options.tokens, steps=options.steps, seconds=options.seconds)
    out = sys.stdout
    console = Console(
        out if out.isatty() and not options.json else None, sys.stderr, reasoning=options.reasoning
    )
    store = open_log(options.store)
    agent = Agent(
        options.model or os.environ.get("BRIDLE_MODEL") or preferred(os.environ),
        tools=load_tools(options.tools),
        instructions=options.instructions,
        budget=budget,
        store=store,
        watchers=() if options.json else (console,),
    )
    # What a tool prints is not the answer either.
    with redirect_stdout(sys.stderr):
        result, seconds = asyncio.run(_run(agent, store, prompt, options, console))
    return _tell(out, console, agent, result, seconds, as_json=options.json)


async def _run(
    agent: Agent[str], store: Store, prompt: str, options: argparse.Namespace, console: Console
) -> tuple[Result[str], float]:
    try:
        if options.session and not await store.read(options.session):
            raise SessionNotFound(
                f"there is no session {options.session!r} here; `bridle sessions` lists them"
            )
        if agent.settings.model.endpoint.simulated and not options.json:
            named = options.model or os.environ.get("BRIDLE_MODEL")
            how = "" if named else "no model was named and no key is set: "
            console.note(f"{how}this is the built-in simulated model, nothing is sent or charged", "yellow")
        began = time.monotonic()
        return await _watched(agent, prompt, options, console), time.monotonic() - began
    finally:
        await store.close()


async def _watched(
    agent: Agent[str], prompt: str, options: argparse.Namespace, console: Console
) -> Result[str]:
    stream = agent.stream(prompt, options.session, deltas=options.stream)
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
        print(_as_json(result, agent.settings.model.name, simulated=simulated), file=out, flush=True)
        return code
    if not out.isatty() and result.text:
        print(result.text, file=out, flush=True)
    if code == MISUSE:
        complain(result.reason)
        return code
    if not result.done:
        console.note(f"ended: {result.stop}" + (f": {result.reason}" if result.reason else ""), "red")
    cost = dollars(result.cost) + (" (simulated)" if simulated else "")
    steps = f"{result.steps} step" + ("" if result.steps == 1 else "s")
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
        "steps": result.steps,
        "messages": result.messages,
    }
    return msgspec.json.encode(told).decode()

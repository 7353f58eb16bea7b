"""Put a prompt to an agent and watch it work.

The answer goes to standard output and nothing else does; what happens on the way and
the closing line go to standard error.  With --json, one JSON object goes to standard
output.  Ctrl-C cancels cleanly: what was said is kept, and the session can go on.
"""

import argparse
import asyncio
import os
import signal
import sys
import time

import msgspec

from ..providers.catalogue import preferred
from ..run.agent import Agent
from ..values.errors import Failure, MisuseError, SessionNotFound
from ..values.result import FinalAnswer, Result
from ..values.usage import STEPS_DEFAULT, Budget
from ..watchers.console import Console, counts, dollars, duration
from .main import CANCELLED, MISUSE
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
    add("--usd", type=float, metavar="N", help="stop before more than this many dollars are spent")
    add("--tokens", type=int, metavar="N", help="stop before more than this many tokens are used")
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
    add(
        "--no-stream",
        dest="stream",
        action="store_false",
        help="ask for whole replies instead of streamed ones",
    )
    add("--reasoning", action="store_true", help="show the model's reasoning where it is given")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    if not prompt.strip():
        raise MisuseError('the prompt is empty; try: bridle run "What is 17 * 23 minus 100?"')
    budget = Budget(usd=options.usd, tokens=options.tokens, steps=options.steps, seconds=options.seconds)
    return asyncio.run(_run(options, prompt, budget))


async def _run(options: argparse.Namespace, prompt: str, budget: Budget) -> int:
    console = Console(sys.stdout, sys.stderr, reasoning=options.reasoning)
    model = options.model or os.environ.get("BRIDLE_MODEL") or preferred(os.environ)
    store = open_log(options.store)
    try:
        if options.session and not await store.read(options.session):
            raise SessionNotFound(
                f"there is no session {options.session!r} here; `bridle sessions` lists them"
            )
        agent = Agent(
            model,
            tools=load_tools(options.tools),
            instructions=options.instructions,
            budget=budget,
            store=store,
            watchers=() if options.json else (console,),
        )
        simulated = agent.settings.model.endpoint.simulated
        if simulated and not options.json:
            how = "" if options.model else "no model was named and no key is set: "
            console.note(f"{how}this is the built-in simulated model, nothing is sent or charged", "yellow")
        began = time.monotonic()
        result = await _watched(agent, prompt, options)
        if options.json:
            print(_as_json(result, model, simulated=simulated))
        else:
            _close(console, result, time.monotonic() - began, simulated=simulated)
        return _code(result)
    finally:
        await store.close()


async def _watched(agent: Agent[str], prompt: str, options: argparse.Namespace) -> Result[str]:
    stream = agent.stream(prompt, options.session, deltas=options.stream)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stream.cancel)
    async for event in stream:
        if isinstance(event, FinalAnswer):
            return event.result
    raise AssertionError("a stream ends with a FinalAnswer")


def _close(console: Console, result: Result[str], seconds: float, *, simulated: bool) -> None:
    if not result.done:
        told = f": {result.reason}" if result.reason else ""
        console.note(f"ended: {result.stop}{told}", "red")
    cost = dollars(result.cost) + (" (simulated)" if simulated else "")
    steps = f"{result.steps} step" + ("" if result.steps == 1 else "s")
    console.note(
        f"{counts(result.usage)} · {cost} · {steps} · {duration(seconds)} · session {result.session}"
    )


def _code(result: Result[str]) -> int:
    if result.done:
        return 0
    if result.stop == "cancelled":
        return CANCELLED
    failure: Failure | None = result.failure
    return MISUSE if failure is not None and failure.kind in YOURS_TO_MEND else 1


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

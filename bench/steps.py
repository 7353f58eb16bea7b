"""What one step costs: function calls, which are the same every time, and CPU time.

    python bench/steps.py [--steps 50] [--cpu | --telemetry | --growth] [--json] [KIND ...]

A step is one tool call: ask the model, hear its reply, run the tool.  Replies are ready before anything is
counted and come from an application in this process, so that nothing is counted but Bridle and what it
calls.  The cost of a step is that of the second half of a session divided by its steps: what a run costs
once is not in it, and what grows with the conversation shows when there are more steps.

`own` counts the functions of the package alone, `all` also those of Python and of libraries.  KIND is a row of
the table, such as `anthropic/streamed`; `with a key` is a line whose replies are searched for its key.

`--growth` counts the instructions of the interpreter in ten early steps and in the last ten: a loop over the
conversation shows there and not in the calls.

`--telemetry` compares the CPU time with that of a session whose trace is exported to a receiver in another process, sending
included.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import subprocess
import sys
import time
from pathlib import Path

import bridle
from bridle import Agent, Budget, Telemetry, flush_telemetry, tool
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.families import find_family
from bridle.transports.inprocess import InProcessTransport
from bridle.values.message import Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.usage import Usage

PACKAGE = str(Path(bridle.__file__).parent)
MODELS = {
    "anthropic": "sim:anthropic/claude-sonnet-5-5",
    "openai_responses": "sim:openai_responses/gpt-6.1-sol",
    "openai_chat": "sim:openai_chat/deepseek-v4-pro",
    "gemini": "sim:gemini/gemini-3.8-flash",
    "bedrock_converse": "sim:bedrock_converse/global.anthropic.claude-sonnet-5-5",
}
KEY = (("authorization", "Bearer sk-0123456789abcdef0123456789"),)
KINDS = {
    f"{family}/{way}{beside}": (family, way == "streamed", headers)
    for family in MODELS
    for way in ("whole", "streamed")
    for beside, headers in (("", ()), (", with a key", KEY))
    if not headers or family == "openai_chat"
}
WARM_STEPS = 3
CPU_ROUNDS = 7
TELEMETRY_ROUNDS = 15
RECEIVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_): pass
server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@tool(effect="read")
async def echo(text: str) -> str:
    """Give the text back."""
    return text


class Replies:
    """An application that gives the replies of one session, in their order."""

    def __init__(self, family, steps, *, stream):
        server, origin = find_family(family), Origin(family=family, endpoint="sim", model="m")
        said = [self._reply(number, origin, last=number > steps) for number in range(1, steps + 2)]
        self._spoken = iter([server.encode_reply(reply, stream=stream) for reply in said])

    @staticmethod
    def _reply(number, origin, *, last):
        """Of every number the same length, so that every reply has as many pieces."""
        call = ToolCall(id=f"call_{number:04}", name="echo", arguments=f'{{"text":"number {number:04}"}}')
        return Reply(
            parts=(Text(text=f"This is step {number:04}, and so on to the end."), *(() if last else (call,))),
            stop=Stop.DONE if last else Stop.TOOLS,
            usage=Usage(input=100, output=20),
            origin=origin,
        )

    async def __call__(self, outgoing):
        return next(self._spoken)


def session(kind, steps, telemetry=False):
    """What is measured: a function that runs one session of so many steps."""
    family, stream, headers = KINDS[kind]
    line = ModelConnection(
        model=find_model_by_name(MODELS[family], {}),
        codec=load_codec(family),
        transport=InProcessTransport(Replies(family, steps, stream=stream)),
        headers=headers,
    )
    limits = Budget(steps=None)
    agent = Agent(
        line, instructions="Be brief.", tools=[echo], budget=limits, max_tokens=1_000, telemetry=telemetry
    )

    async def run():
        if stream:
            async for _ in agent.stream("Count.", session="counted"):
                pass
        else:
            await agent.run("Count.", session="counted")

    return run


def calls(kind, steps):
    """All calls of a session, and those of Bridle's own functions."""

    async def profiled():
        run, profile = session(kind, steps), cProfile.Profile()
        profile.enable()
        await run()
        profile.disable()
        return profile.getstats()

    gc.disable()  # or what is collected, and when, would count
    try:
        found = asyncio.run(profiled())
    finally:
        gc.enable()
    own = [
        each for each in found if not isinstance(each.code, str) and each.code.co_filename.startswith(PACKAGE)
    ]
    return sum(each.callcount for each in found), sum(each.callcount for each in own)


def calls_per_step(kind, steps):
    half = steps // 2
    calls(kind, WARM_STEPS)
    before, after = calls(kind, half), calls(kind, steps)
    return {
        name: round((late - early) / (steps - half))
        for name, early, late in zip(("all", "own"), before, after, strict=True)
    }


def opcodes_by_phase(kind, steps):
    """The interpreter's instructions of one step: early in a session, and at its end."""
    counts, marks, requests, answer = [0], {}, 0, Replies.__call__

    async def mark_request(replies, outgoing):
        nonlocal requests
        requests += 1
        marks[requests] = counts[0]
        return await answer(replies, outgoing)

    def trace(frame, _event, _argument):
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return count

    def count(_frame, event, _argument):
        counts[0] += event == "opcode"
        return count

    asyncio.run(session(kind, WARM_STEPS)())
    gc.disable()
    Replies.__call__ = mark_request
    sys.settrace(trace)
    try:
        asyncio.run(session(kind, steps)())
    finally:
        sys.settrace(None)
        Replies.__call__ = answer
        gc.enable()
    early, late = (round((marks[end] - marks[end - 10]) / 10) for end in (20, steps))
    return {"early": early, "late": late}


async def measure_cpu(kind, steps, telemetry=False):
    run = session(kind, steps, telemetry)
    gc.collect()
    begun = time.process_time()
    await run()
    if telemetry:
        assert flush_telemetry(60)
    return time.process_time() - begun


def cpu_per_step(kind, steps):
    """Microseconds, of the quickest of several sessions."""
    return round(min(asyncio.run(measure_cpu(kind, steps)) for _ in range(CPU_ROUNDS)) / steps * 1e6, 1)


def telemetry_ratio(kind, steps):
    """CPU time with telemetry over that without, of the quickest sessions; measured in turns."""
    with subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True) as receiver:
        try:
            settings = Telemetry(
                endpoint=f"http://127.0.0.1:{receiver.stdout.readline().strip()}", metrics=False
            )
            choices = (False, settings)
            rounds = [
                [asyncio.run(measure_cpu(kind, steps, each)) for each in choices]
                for _ in range(TELEMETRY_ROUNDS)
            ]
        finally:
            receiver.kill()
    off, on = (min(column) for column in zip(*rounds, strict=True))
    return round(on / off, 3)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--telemetry", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measure = cpu_per_step if options.cpu else telemetry_ratio if options.telemetry else calls_per_step
    measure = opcodes_by_phase if options.growth else measure
    figures = {kind: measure(kind, options.steps) for kind in options.kinds or KINDS}
    if options.json:
        print(json.dumps(figures))
        return
    for kind, figure in figures.items():
        if options.growth:
            told = f"{figure['early']:,} opcodes of an early step, {figure['late']:,} of a late one"
        elif options.telemetry:
            told = f"{figure:.3f} of the CPU time without"
        else:
            told = (
                f"{figure:.1f} µs" if options.cpu else f"{figure['all']:,} calls, {figure['own']:,} our own"
            )
        print(f"{kind:<36}{told}")


if __name__ == "__main__":
    main()

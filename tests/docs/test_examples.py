"""The examples run as they stand."""

import asyncio
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


async def request(app, path, query=""):
    """One request to an ASGI application, as a server makes it."""
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []}
    await app(scope, receive, send)
    start, *bodies = sent
    return start, b"".join(each["body"] for each in bodies).decode(), bodies


def test_the_server_streams_an_answer():
    app = runpy.run_path(str(EXAMPLES / "web_stream.py"))["app"]
    start, page, _ = asyncio.run(request(app, "/"))
    assert dict(start["headers"])[b"content-type"].startswith(b"text/html")
    names = set(re.findall(r'addEventListener\("(\w+)"', page))
    start, body, pieces = asyncio.run(request(app, "/ask", "prompt=Is+it+warmer+in+Tokyo+or+New+York%3F"))
    assert dict(start["headers"])[b"content-type"] == b"text/event-stream"
    frames = [frame.split("\n") for frame in body.removesuffix("\n\n").split("\n\n")]
    shown = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in frames]
    assert names <= {name for name, _ in shown}, "the page listens to what is sent"
    assert len(pieces) > len(names) and pieces[-1].get("more_body") is None
    assert shown[-1][0] == "final_answer" and "Tokyo" in shown[-1][1]["text"]
    text = "".join(data["text"] for name, data in shown if name == "text_delta")
    assert text.endswith(shown[-1][1]["text"])
    assert not [name for name, _ in shown if name in ("configured", "model_replied")]


def test_a_run_is_steered_paused_and_resumed(capsys):
    asyncio.run(runpy.run_path(str(EXAMPLES / "steering.py"))["main"]())
    assert capsys.readouterr().out.splitlines() == [
        "paused: paused by the caller, after 1 step",
        "done: Twelve pallets, as you asked in between.",
    ]


def test_the_third_run_waits_for_the_rate_limit(capsys):
    asyncio.run(runpy.run_path(str(EXAMPLES / "rate_limits.py"))["main"]())
    first, second, wait, third = capsys.readouterr().out.splitlines()
    assert (first, second) == ("run 1 asks the model after 0 s", "run 2 asks the model after 0 s")
    assert wait.startswith("run 3 waits 60 s for the rate limit of endpoint:")
    assert third == "run 3 asks the model after 60 s"


def test_the_example_of_telemetry_shows_metadata_only():
    program = [sys.executable, str(EXAMPLES / "telemetry.py")]
    shown = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    assert "invoke_agent support  done\n  turn 1\n    chat " in shown
    assert "WARNING tool_finished" in shown and "reply.usage.input=" in shown
    assert 'duration_seconds_count{gen_ai_operation_name="invoke_agent"' in shown
    assert "jane" not in shown


def test_the_gateway_serves_two_wires_until_a_budget_ends():
    program = [sys.executable, str(EXAMPLES / "gateway.py")]
    shown = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    rows = [line.split()[:3] for line in shown.splitlines()]
    assert rows == [
        ["alice", "chat", "200"], ["alice", "messages", "200"], ["bob", "chat", "200"], ["bob", "messages", "402"],
    ]  # fmt: skip
    assert shown.count("Hello from behind the gateway.") == 3

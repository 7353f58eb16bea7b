"""Streams of replies: their beginning, signs of life while tools run, and the forms that a client may choose."""

import asyncio
import http.client
import json
import threading

import pytest

from bridle import Agent, Budget, tool
from bridle.serve.wires import streaming
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name
from tests.suite.patience import PATIENCE_SECONDS

BODIES = {
    "/openai/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/openai/v1/responses": lambda text: {"input": text},
    "/anthropic/v1/messages": lambda text: {
        "max_tokens": 99,
        "messages": [{"role": "user", "content": text}],
    },
    "/gemini/v1beta/models/helper:streamGenerateContent?alt=sse": lambda text: {
        "contents": [{"role": "user", "parts": [{"text": text}]}]
    },
    "/gemini/v1beta/models/helper:streamGenerateContent": lambda text: {
        "contents": [{"role": "user", "parts": [{"text": text}]}]
    },
}
OPENINGS = {
    "/openai/v1/chat/completions": b'"delta":{"role":"assistant"',
    "/openai/v1/responses": b"event: response.in_progress",
    "/anthropic/v1/messages": b"event: message_start",
}
SIGNS = {
    "/openai/v1/chat/completions": b": keep-alive\n\n",
    "/openai/v1/responses": b": keep-alive\n\n",
    "/anthropic/v1/messages": b'event: ping\ndata: {"type":"ping"}\n\n',
}
GEMINI_SIGN = b'{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"index":0}]'
paths = pytest.mark.parametrize("path", BODIES)


@paths
def test_stream_begins_and_shows_signs_of_life_while_a_tool_runs(path, monkeypatch):
    monkeypatch.setattr(streaming, "KEEP_ALIVE_SECONDS", 0.01)
    go_on = threading.Event()

    @tool(effect="read", timeout=PATIENCE_SECONDS)
    async def work() -> str:
        """Work until the client has seen signs of life."""
        await asyncio.to_thread(go_on.wait, PATIENCE_SECONDS)
        return "worked"

    with serve_by_name({"helper": Agent("sim:", tools=[work])}) as served:
        line = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
        body = {"model": "helper", "stream": True, **BODIES[path]("!call work {}\n!then\n!say done")}
        if "gemini" in path:
            del body["model"], body["stream"]
        line.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        reply = line.getresponse()
        seen, sign = b"", SIGNS.get(path, GEMINI_SIGN)
        while seen.count(sign) < 3:
            piece = reply.read1(65_536)
            assert piece, seen
            seen += piece
        assert OPENINGS.get(path, b"") in seen and b"done" not in seen
        go_on.set()
        rest = reply.read()
        line.close()
        assert b"done" in rest
        if not path.endswith("streamGenerateContent"):
            return
        assert reply.headers["content-type"] == "application/json; charset=UTF-8"
        items = json.loads(seen + rest)
        texts = [part["text"] for item in items for part in item["candidates"][0]["content"]["parts"]]
        assert "".join(texts) == "done" and items[-1]["candidates"][0]["finishReason"] == "STOP"


@paths
def test_failure_before_the_model_begins_has_its_status(path):
    with serve_by_name({"helper": Agent("sim:", budget=Budget(usd=0))}) as served:
        body = {"model": "helper", "stream": True, **BODIES[path]("!say hi")}
        if "gemini" in path:
            del body["model"], body["stream"]
        reply = send(served.url + path, body)
        assert reply.status in (402, 429) and "budget" in json.dumps(reply.json)


def test_failure_of_an_array_is_its_last_item():
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "x"

    with serve_by_name({"helper": Agent("sim:", tools=[look])}) as served:
        path = "/gemini/v1beta/models/helper:streamGenerateContent"
        reply = send(served.url + path, BODIES[path]("!say so far\n!call look {}\n!then\n!error 400\n!say x"))
        assert reply.status == 200
        *_, text, error = reply.json
        assert text["candidates"][0]["content"]["parts"] == [{"text": " far"}]
        assert error["error"]["code"] == 400


PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}}
TOOLS = {
    "/openai/v1/chat/completions": {
        "type": "function",
        "function": {"name": "ask", "parameters": PARAMETERS},
    },
    "/openai/v1/responses": {"type": "function", "name": "ask", "parameters": PARAMETERS},
    "/anthropic/v1/messages": {"name": "ask", "input_schema": PARAMETERS},
}
CALLS = {
    "/openai/v1/chat/completions": lambda events: "".join(
        call["function"].get("arguments", "")
        for event in events
        for choice in event.get("choices", ())
        for call in choice["delta"].get("tool_calls", ())
    ),
    "/openai/v1/responses": lambda events: "".join(
        event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"
    ),
    "/anthropic/v1/messages": lambda events: "".join(
        event["delta"].get("partial_json", "") for event in events if event["type"] == "content_block_delta"
    ),
}
"""The arguments of the calls in the events of each wire that has pieces of them."""


def read_events(body):
    lines = (line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: {"))
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", CALLS)
def test_call_of_the_client_s_tool_arrives_while_the_run_works(path):
    """The agent's own tool, called in the same reply, ends only after the client has the call."""
    go_on = threading.Event()

    @tool(effect="read", timeout=PATIENCE_SECONDS)
    async def work() -> str:
        """Work until the client has its call."""
        await asyncio.to_thread(go_on.wait, PATIENCE_SECONDS)
        return "worked"

    arguments = json.dumps({"q": "which of the three cities, and why"})
    with serve_by_name({"helper": Agent("sim:", tools=[work])}) as served:
        line = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
        prompt = f"!say so\n!call ask {arguments}\n!call work {{}}"
        body = {"model": "helper", "stream": True, **BODIES[path](prompt), "tools": [TOOLS[path]]}
        line.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        reply = line.getresponse()
        seen = b""
        while CALLS[path](read_events(seen)) != arguments:
            piece = reply.read1(65_536)
            assert piece, seen
            seen += piece
        go_on.set()
        seen += reply.read()
        line.close()
        assert CALLS[path](read_events(seen)) == arguments  # and not once more at the end


def test_call_that_is_written_again_fails_and_the_request_can_be_sent_again():
    """A provider breaks off in a call of which the client has a part, which cannot be taken back."""
    path, arguments = "/openai/v1/chat/completions", json.dumps({"q": "long " * 100})
    said = [{"role": "user", "content": "!say one"}]
    with serve_by_name({"helper": Agent("sim:")}) as served:
        first = send(served.url + path, {"model": "helper", "messages": said})
        said += (
            first.json["choices"][0]["message"],
            {"role": "user", "content": f"!cut 1500\n!call ask {arguments}"},
        )
        body = {"model": "helper", "stream": True, "messages": said, "tools": [TOOLS[path]]}
        broken, again = send(served.url + path, body), send(served.url + path, body)
        assert 0 < len(CALLS[path](broken.events)) < len(arguments)
        assert "send the request again" in json.dumps(broken.events[-1])
        assert CALLS[path](again.events) == arguments
        sessions = {each.headers["x-bridle-session"] for each in (first, broken, again)}
        assert len(sessions) == 1


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize(
    "ending", ["!cut 2600\n!call pay {}\n!call ask ARGUMENTS", "!call pay {}\n!then\n!error 400"]
)
def test_first_request_that_failed_and_is_sent_again_goes_on_in_its_session(path, ending):
    """Nothing in it names the session: the server remembers it until the client has a reply."""
    runs, arguments = [], json.dumps({"q": "long " * 200})

    @tool(effect="write")
    def pay() -> str:
        """Pay."""
        runs.append(1)
        return "paid"

    with serve_by_name({"helper": Agent("sim:", tools=[pay])}) as served:
        made = BODIES[path](ending.replace("ARGUMENTS", arguments))
        made |= {"max_tokens": 4_000} if "max_tokens" in made else {}
        body = {"model": "helper", "stream": True, **made, "tools": [TOOLS[path]]}

        def ask(**more):
            reply = send(served.url + path, body | more)
            return reply, reply.headers["x-bridle-session"]

        broken, session = ask()
        assert runs == [1] and b"error" in broken.body
        assert ask(tools=[])[1] != session  # another request
        assert runs == [1, 1]
        again, same = ask()
        assert same == session and runs == [1, 1]
        if "ARGUMENTS" in ending:
            assert CALLS[path](again.events) == arguments
            assert ask()[1] != session  # the client has its reply: this is a new conversation

"""Ends of a run on every wire: a conversation that is too long, limits, and the form of the answer."""

import asyncio
import json
import typing
from typing import Any

import pytest

from bridle import Agent, tool
from bridle.providers.families import load_served_wire
from bridle.serve.wires.options import ClientOptions
from bridle.serve.wires.reply import ReplyCollector, hide_provider, use_words_of_wire
from bridle.sim.families import FAMILIES, list_rules
from bridle.sim.faults.actions import OVERFLOW_FIGURES
from bridle.values.errors import Failure
from bridle.values.events import RunStop
from bridle.values.request import Request
from bridle.values.result import FinalAnswer, Messages, Result
from bridle.values.usage import Budget, Usage
from tests.serve.raw_http import RawReply, send
from tests.serve.served import serve_by_name, serving_gateway
from tests.serve.wires.wire_bodies import WIRES, post

CONTEXT_ERRORS = {
    "openai_chat": (400, "invalid_request_error", "context_length_exceeded", "maximum context length is"),
    "openai_responses": (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "exceeds the context window",
    ),
    "anthropic": (400, "invalid_request_error", None, "prompt is too long"),
    "gemini": (400, "INVALID_ARGUMENT", None, "The input token count exceeds the maximum number of tokens"),
}
"""Status, type, code and words by which clients of each wire notice that they have to compact."""
wires = pytest.mark.parametrize("name", WIRES)


@tool
def look(city: str = "Rome") -> str:
    """Look at a city."""
    return f"{city} is fine"


def check_context_error(name, reply):
    status, kind, code, words = CONTEXT_ERRORS[name]
    error = reply.json["error"]
    assert (reply.status, error.get("type") or error["status"]) == (status, kind), reply.body
    assert code is None or error["code"] == code
    assert words in error["message"]


@wires
def test_a_conversation_that_is_too_long_is_the_vendor_s_own_error(name):
    """Claude Code, Codex, qwen-code, pi and others compact when they read it; 500 ended them."""
    wire = WIRES[name]
    agent = Agent("sim:", context_tokens=8000, max_tokens=1000)
    with serve_by_name({"helper": agent}) as served:
        reply = post(served, wire, [wire.user("word " * 20_000)])
        check_context_error(name, reply)
        assert reply.headers["x-should-retry"] == "false"


@wires
@pytest.mark.parametrize("family", FAMILIES)
def test_the_words_of_another_vendor_become_those_of_the_wire(name, family):
    """At the gateway a provider says that a prompt is too long, in its own words."""
    too_long = list_rules(family)[-1]
    assert too_long.kind == "context"
    told = too_long.wording.format_map(OVERFLOW_FIGURES)
    wire = load_served_wire(name)
    failure = hide_provider(Failure(kind="context", message=told, code=too_long.type, status=400))
    reply = wire.encode_failure(use_words_of_wire(wire, failure))
    check_context_error(name, RawReply(reply.status, {}, b"".join(reply.frames)))
    assert told in json.loads(reply.frames[0])["error"]["message"]


def test_a_stream_of_responses_ends_with_the_error():
    """Codex reads `context_length_exceeded` in the event `response.failed` only."""
    wire = WIRES["openai_responses"]
    agent = Agent("sim:", context_tokens=8000, max_tokens=1000)
    with serve_by_name({"helper": agent}) as served:
        reply = send(served.url + wire.path, wire.body([wire.user("word " * 20_000)], True))
        assert reply.status == 200
        end = reply.events[-1]
        assert (end["type"], end["response"]["error"]["code"]) == (
            "response.failed",
            "context_length_exceeded",
        )
        assert "exceeds the context window" in end["response"]["error"]["message"]


KINDS = {"context": "context", "budget": "quota", "seconds": "timeout"}
ANSWERED = ("done", "waiting", "refused")
STATUSES = {
    "context": {"anthropic": 400, "openai_chat": 400, "openai_responses": 400, "gemini": 400},
    "quota": {"anthropic": 402, "openai_chat": 429, "openai_responses": 429, "gemini": 429},
    "timeout": {"anthropic": 504, "openai_chat": 504, "openai_responses": 504, "gemini": 504},
    "server": {"anthropic": 500, "openai_chat": 500, "openai_responses": 500, "gemini": 500},
}


@wires
@pytest.mark.parametrize("stop", typing.get_args(RunStop))
def test_every_end_without_an_answer_has_a_reply_or_an_error_of_the_wire(name, stop):
    """No stop is left out: a new one is a failure of the server until it has a row."""
    wire = load_served_wire(name)
    request = Request(model=Agent("sim:").settings.model, messages=())
    writer = wire.make_stream("id", request, {}, {})
    collector = ReplyCollector(writer, request, ClientOptions({}, (), {}), "s")
    result = Result(
        text="",
        output=None,
        usage=Usage(),
        cost=None,
        stop=stop,
        reason="why",
        session="s",
        messages=Messages(),
        steps=1,
    )

    async def items():
        yield FinalAnswer(result=result)

    async def write():
        return [piece async for piece in collector.write(items())]

    asyncio.run(write())
    if stop in ANSWERED:
        assert collector.failure is None and collector.reply is not None
        return
    assert collector.reply is None
    failure = use_words_of_wire(wire, collector.failure)  # type: ignore[arg-type]
    kind = KINDS.get(stop, "server")
    assert (failure.kind, failure.should_retry) == (kind, False)
    assert "why" in failure.message
    assert wire.encode_failure(failure).status == STATUSES[kind][name]
    assert b"why" in writer.fail(failure)


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "sunny": {"type": "boolean"}},
    "required": ["city", "sunny"],
    "additionalProperties": False,
}
FORMATS: dict[str, Any] = {
    "openai_chat": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "place", "schema": SCHEMA, "strict": True},
        }
    },
    "openai_responses": {
        "text": {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}}
    },
    "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "gemini": {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}},
}
ANSWER = {"city": "Rome", "sunny": True}


def streamed_text(name, reply):
    texts = {
        "openai_chat": lambda e: e["choices"][0]["delta"].get("content") or "" if e.get("choices") else "",
        "openai_responses": lambda e: e["delta"] if e["type"] == "response.output_text.delta" else "",
        "anthropic": lambda e: e.get("delta", {}).get("text", ""),
        "gemini": lambda e: "".join(p.get("text", "") for p in e["candidates"][0]["content"]["parts"]),
    }[name]
    return "".join(map(texts, reply.events))


@wires
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [(), (look,)], ids=["no tools", "own tool"])
def test_the_response_format_of_a_client_applies_to_a_served_agent(name, stream, tools):
    """It was dropped: the client got prose where it had asked for JSON."""
    wire = WIRES[name]
    script = f"!say Let me look.\n!call look {{}}\n!then\n!say {json.dumps(ANSWER)}"
    if not tools:
        script = f"!say {json.dumps(ANSWER)}"
    with serve_by_name({"helper": Agent("sim:", tools=tools)}) as served:
        path = (
            wire.path.replace(":generateContent", ":streamGenerateContent?alt=sse") if stream else wire.path
        )
        body = {**wire.body([wire.user(script)], stream), **FORMATS[name]}
        reply = send(served.url + path, body)
        assert reply.status == 200, reply.body
        assert "response format" not in reply.headers.get("x-bridle-dropped", "")
        text = streamed_text(name, reply) if stream else wire.read(reply.json)[2]
        assert json.loads(text) == ANSWER


OPEN: dict[str, Any] = {name: value for name, value in SCHEMA.items() if name != "additionalProperties"}
SCHEMAS = {
    "closed": SCHEMA,
    "open": OPEN,
    "optional": {**OPEN, "required": ["city"]},
    "limits": {**OPEN, "properties": {**OPEN["properties"], "city": {"type": "string", "minLength": 2}}},
    "reference": {"$ref": "#/$defs/place", "$defs": {"place": OPEN}},
}


def write_json_schema(schema, strict):
    told = {} if strict is None else {"strict": strict}
    return {"name": "place", "schema": schema, **told}


def write_chat(strict):
    return lambda schema: {
        "response_format": {"type": "json_schema", "json_schema": write_json_schema(schema, strict)}
    }


def write_responses(strict):
    return lambda schema: {
        "text": {"verbosity": "low", "format": {"type": "json_schema", **write_json_schema(schema, strict)}}
    }


def write_old(schema):
    """The schema in the older dialect of Gemini."""
    kinds = {"city": {"type": "STRING", "minLength": "2"}, "sunny": {"type": "BOOLEAN", "nullable": True}}
    return {
        "type": "OBJECT",
        "properties": kinds,
        "required": schema["required"],
        "propertyOrdering": ["sunny", "city"],
    }


WRITTEN = {
    **{f"openai_chat strict {strict}": write_chat(strict) for strict in (True, False, None)},
    **{f"openai_responses strict {strict}": write_responses(strict) for strict in (True, False, None)},
    "anthropic": lambda schema: {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
    "anthropic older": lambda schema: {"output_format": {"type": "json_schema", "schema": schema}},
    "gemini json": lambda schema: {
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}
    },
    "gemini old": lambda schema: {
        "generationConfig": {"responseMimeType": "application/json", "responseSchema": write_old(schema)}
    },
}
"""A schema of the answer in every form that the wires have for one."""


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("kind", ["served", "gateway"])
def test_a_schema_of_the_answer_is_carried_in_every_form(form, kind):
    """Only what our own encoder would write was: openai (npm) leaves `strict` out, @google/genai sends `responseSchema`."""
    wire = WIRES[form.split(" ")[0]]
    chain = {"models": {"helper": {"chain": ["sim:bedrock/anthropic.claude-sonnet-5-5"]}}}
    with serve_by_name({"helper": Agent("sim:")}) if kind == "served" else serving_gateway(chain) as served:
        for name, schema in SCHEMAS.items():
            if form == "gemini old" and name in ("reference", "limits"):
                continue
            script = f"!say {{}}\n!then\n!say {json.dumps(ANSWER)}"
            body = {**wire.body([wire.user(script)], False), **WRITTEN[form](schema)}
            reply = send(served.url + wire.path, body)
            assert reply.status == 200, (name, reply.body)
            assert json.loads(wire.read(reply.json)[2]) == ANSWER, name
            assert "format" not in reply.headers.get("x-bridle-dropped", ""), name


CITIES = [{"city": "Rome"}, {"city": "Oslo"}]
ITEM = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
NO_OBJECTS = {
    "array": ({"type": "array", "items": ITEM}, CITIES),
    "number": ({"type": "integer"}, 1234567890123456789),
    "text": ({"type": "string", "enum": ["sun", "rain"]}, "sun"),
    "union": ({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}]}, [4]),
    "reference": ({"$ref": "#/$defs/all", "$defs": {"all": {"type": "array", "items": ITEM}}}, CITIES),
}
"""Schemas of answers that are no objects, which models write in one, with a value."""


@pytest.mark.parametrize("shape", NO_OBJECTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["served", "own tool", "gateway"])
@pytest.mark.parametrize("form", ["openai_chat", "openai_responses", "anthropic", "gemini"])
def test_an_answer_that_is_no_object_has_the_schema_of_the_client(form, kind, stream, shape):
    """`response_schema=list[City]` of google-genai got `{"value": [...]}`, which is not what it had asked for."""
    wire = WIRES[form]
    schema, value = NO_OBJECTS[shape]
    write = next(WRITTEN[name] for name in (form, f"{form} strict True", f"{form} json") if name in WRITTEN)
    written = write(schema)
    model = "sim:bedrock/anthropic.claude-sonnet-5-5"  # of no served wire: nothing is passed on as it is
    chain = {"models": {"helper": {"chain": [model]}}}
    agent = Agent(model, tools=[look] if kind == "own tool" else [])
    with serving_gateway(chain) if kind == "gateway" else serve_by_name({"helper": agent}) as served:
        path = (
            wire.path.replace(":generateContent", ":streamGenerateContent?alt=sse") if stream else wire.path
        )
        messages = [wire.user(f"!say {json.dumps({'value': value})}")]
        reply = send(served.url + path, {**wire.body(messages, stream), **written})
        assert reply.status == 200, reply.body
        text = streamed_text(form, reply) if stream else wire.read(reply.json)[2]
        assert json.loads(text) == value
        if not stream:  # the client sends back what it got: the session goes on
            messages += [*wire.read(reply.json)[0], wire.user("!say fine")]
            again = send(served.url + path, wire.body(messages, False))
            assert wire.read(again.json)[2] == "fine"
            assert again.headers["x-bridle-session"] == reply.headers["x-bridle-session"]


@wires
def test_the_answer_is_checked_against_the_response_format(name):
    """The agent asks its model again, as for an output type of its own."""
    wire = WIRES[name]
    with serve_by_name({"helper": Agent("sim:")}) as served:
        script = f"!say {{}}\n!then\n!say {json.dumps(ANSWER)}"
        reply = send(served.url + wire.path, {**wire.body([wire.user(script)], False), **FORMATS[name]})
        assert json.loads(wire.read(reply.json)[2]) == ANSWER


@wires
def test_an_output_type_of_the_agent_is_kept(name):
    """Then the client's format is named in the header, as before."""
    wire = WIRES[name]
    with serve_by_name({"helper": Agent("sim:", output=int)}) as served:
        reply = send(served.url + wire.path, {**wire.body([wire.user("!say 7")], False), **FORMATS[name]})
        assert "response format" in reply.headers["x-bridle-dropped"]


def test_a_limit_of_steps_without_text():
    agent = Agent("sim:", tools=[look], budget=Budget(steps=1))
    with serve_by_name({"helper": agent}) as served:
        reply = post(
            served, WIRES["openai_chat"], [{"role": "user", "content": "!call look {}\n!then\n!say x"}]
        )
        assert (reply.status, reply.headers["x-should-retry"]) == (500, "false")

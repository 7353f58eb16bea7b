"""Tools of the client in the forms that its wire has for them."""

import json

import pytest

from bridle import Agent
from bridle.core.recovery.log_repair import fold_log
from bridle.run.archive.sessions import list_sessions
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name, serving_gateway
from tests.serve.wires.wire_bodies import SCHEMA, WIRES

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
PATCH = '*** Begin Patch\n"quoted" {not: json}\n*** End Patch'
PROMPT = '!call apply_patch {"input": "*** Begin Patch\\n\\"quoted\\" {not: json}\\n*** End Patch"}\n!then\n!say fine'


def read_states(served):
    async def read():
        infos = await list_sessions(served.host.store, 100)
        return [fold_log(await served.host.store.read(info.id)).state for info in infos]

    return served.run(read())


def check_session(served, results):
    [state] = read_states(served)
    [spec] = state.settings.tools
    assert "this lark grammar describes:\nstart: WORD" in spec.description and spec.external
    assert [r.text for m in state.conversation.transcript.messages for r in m.results] == results


@pytest.mark.parametrize("stream", [False, True])
def test_free_text_tool_of_responses(stream):
    """Codex has such tools: the input of their calls is text, not JSON."""
    tool = {"type": "custom", "name": "apply_patch", "description": "Patch.", "format": GRAMMAR}
    with serve_by_name({"helper": Agent("sim:")}) as served:
        given = [{"role": "user", "content": PROMPT}]

        def ask():
            body = {"model": "helper", "input": given, "tools": [tool], "stream": stream}
            reply = send(f"{served.url}/openai/v1/responses", body)
            assert reply.status == 200, reply.body
            return reply, reply.events[-1]["response"]["output"] if stream else reply.json["output"]

        reply, [call] = ask()
        assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "apply_patch", PATCH)
        assert call["id"].startswith("ctc_")
        if stream:
            kind = "response.custom_tool_call_input.delta"
            assert "".join(each["delta"] for each in reply.events if each["type"] == kind) == PATCH
        given += [call, {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "patched"}]
        _, [message] = ask()
        assert message["content"][0]["text"] == "fine"
        check_session(served, ["patched"])


@pytest.mark.parametrize("stream", [False, True])
def test_free_text_tool_of_chat_completions(stream):
    inner = {
        "name": "apply_patch",
        "description": "Patch.",
        "format": {"type": "grammar", "grammar": GRAMMAR},
    }
    with serve_by_name({"helper": Agent("sim:")}) as served:
        given = [{"role": "user", "content": PROMPT}]
        body = {"model": "helper", "tools": [{"type": "custom", "custom": inner}], "stream": stream}
        reply = send(f"{served.url}/openai/v1/chat/completions", {**body, "messages": given})
        assert reply.status == 200, reply.body
        if stream:
            deltas = [e["choices"][0]["delta"] for e in reply.events if e["choices"]]
            pieces = [call for delta in deltas for call in delta.get("tool_calls", ())]
            call = {"id": pieces[0]["id"], "type": "custom", "custom": {
                "name": pieces[0]["custom"]["name"],
                "input": "".join(each["custom"].get("input", "") for each in pieces),
            }}  # fmt: skip
        else:
            [call] = reply.json["choices"][0]["message"]["tool_calls"]
        assert (call["type"], call["custom"]) == ("custom", {"name": "apply_patch", "input": PATCH})
        given += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "patched"},
        ]
        second = send(
            f"{served.url}/openai/v1/chat/completions", {**body, "stream": False, "messages": given}
        )
        assert second.json["choices"][0]["message"]["content"] == "fine"
        check_session(served, ["patched"])


def test_tools_in_the_input_and_in_namespaces_of_responses():
    """Codex declares its tools in an item of the input, in namespaces; calls name the namespace."""
    schema = {"type": "object", "properties": {"ms": {"type": "integer"}}}
    spaces = [
        {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]},
        {"type": "namespace", "name": "clock", "tools": [
            {"type": "function", "name": "sleep", "parameters": schema},
            {"type": "function", "name": "exec", "parameters": schema},
        ]},
    ]  # fmt: skip
    given = [
        {"type": "additional_tools", "role": "developer", "tools": spaces},
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": '!call exec {"input": "a b"}\n!call sleep {"ms": 5}\n!then\n!say fine'},
    ]
    with serve_by_name({"helper": Agent("sim:")}) as served:
        reply = send(f"{served.url}/openai/v1/responses", {"model": "helper", "input": given})
        declared = "part additional_tools (its tools are declared one by one)"
        assert reply.headers["x-bridle-dropped"] == f"tool clock.exec; {declared}"
        free, function = reply.json["output"]
        assert (free["type"], free["input"], free["namespace"]) == ("custom_tool_call", "a b", "functions")
        assert (function["type"], function["name"], function["namespace"]) == (
            "function_call",
            "sleep",
            "clock",
        )
        given += [
            free, function,
            {"type": "custom_tool_call_output", "call_id": free["call_id"], "output": "x"},
            {"type": "function_call_output", "call_id": function["call_id"], "output": "y"},
        ]  # fmt: skip
        reply = send(f"{served.url}/openai/v1/responses", {"model": "helper", "input": given})
        assert reply.json["output"][0]["content"][0]["text"] == "fine"
        [state] = read_states(served)
        assert state.settings.instructions == "Be kind."


def test_arguments_of_the_client_s_tools_are_checked_by_the_client():
    """Its schema says nothing about other fields, or is violated: a provider would pass the call on, so we do."""
    schema = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    tool = {"name": "bash", "input_schema": schema}
    with serve_by_name({"helper": Agent("sim:")}) as served:
        for arguments in ('{"command": "ls", "description": "List"}', '{"command": 7}'):
            given = [{"role": "user", "content": f"!call bash {arguments}\n!then\n!say fine"}]
            body = {"model": "helper", "max_tokens": 100, "tools": [tool], "messages": given}
            reply = send(f"{served.url}/anthropic/v1/messages", body)
            assert [each["input"] for each in reply.json["content"]] == [json.loads(arguments)]


@pytest.mark.parametrize(
    "model", ["openai-chat/gpt-5.4", "openai/gpt-6.1-sol", "anthropic/claude-sonnet-5-5"]
)
@pytest.mark.parametrize("kind", ["served", "gateway"])
@pytest.mark.parametrize("name", WIRES)
def test_a_tool_whose_schema_is_a_reference_reaches_every_provider(name, kind, model):
    """Sent as the client wrote it, which only a provider of its own wire gets, it was refused: no object at the top."""
    wire = WIRES[name]
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    schema = {"$ref": "#/$defs/point", "$defs": {"point": point}}
    chain = {"models": {"helper": {"chain": [f"sim:{model}"]}}}
    messages = [wire.user('!call plot {"x": 3}\n!then\n!say fine')]
    asked = json.dumps({**wire.body(messages, False), **wire.with_tools(["plot"])})
    asked = asked.replace(json.dumps(SCHEMA), json.dumps(schema))
    with (
        serving_gateway(chain)
        if kind == "gateway"
        else serve_by_name({"helper": Agent(f"sim:{model}")}) as served
    ):
        reply = send(served.url + wire.path, asked.encode())
        assert reply.status == 200, reply.body
        assert [called for _, called in wire.read(reply.json)[1]] == ["plot"]

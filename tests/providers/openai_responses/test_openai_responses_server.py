"""Requests as the Responses wire sees them: read tolerantly, written again without loss."""

import json

import pytest
from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.providers import load_codec
from bridle.values.message import Media, Opaque, Reasoning, Stop, Text, ToolCall, ToolResult
from bridle.values.request import Extra, OutputSpec, Thinking, ToolChoice

CODEC = load_codec("openai_responses")


def read(path="/v1/responses", **body):
    return CODEC.decode_request(HttpRequest(path=path, body=json.dumps({"model": "m", **body}).encode()))


def encode_unstreamed(request):
    return json.loads(CODEC.encode(replace(request, stream=False)).body)


def test_items_are_cut_into_messages_by_who_speaks():
    request = read(
        input=[
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": "a"},
            {"role": "user", "content": [{"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g"},
            {"type": "function_call", "call_id": "x", "name": "look", "arguments": "{}"},
            {"type": "function_call", "call_id": "x", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "x", "output": "1"},
            {"type": "function_call_output", "call_id": "x", "output": [{"type": "input_text", "text": "2"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"type": "additional_tools", "role": "developer", "tools": []},
        ]
    )
    assert [(message.id, message.role, message.parent) for message in request.messages] == [
        ("m1", "system", ""), ("m2", "user", "m1"), ("m3", "user", "m2"), ("m4", "assistant", "m3"),
        ("m5", "tool", "m4"), ("m6", "assistant", "m5"), ("m7", "system", "m6"),
    ]  # fmt: skip
    assert request.messages[0].parts == (Text(text="be kind", native='{"message":{"role":"developer"}}'),)
    assert request.messages[3].parts == (
        Reasoning(signature="g", native='{"id":"rs_1"}'),
        ToolCall(id="c4_0", name="look", arguments="{}", wire_id="x"),
        ToolCall(id="c4_1", name="look", arguments="{}", wire_id="x"),
    )
    assert request.messages[4].parts == (
        ToolResult(call_id="c4_0", parts=(Text(text="1"),)),
        ToolResult(call_id="c4_1", parts=(Text(text="2"),)),
    )
    assert (request.messages[5].text, request.messages[5].stop) == ("No.", Stop.REFUSED)
    assert isinstance(request.messages[6].parts[0], Opaque)


MINE = {"type": "message", "role": "user"}


def test_what_has_no_place_survives():
    body = {
        "model": "m",
        "instructions": "s",
        "tools": [
            {"type": "function", "name": "a", "parameters": {"type": "object"}, "strict": True},
            {"type": "function", "name": "b", "parameters": {"type": "object"}},
            {"type": "function", "function": {"name": "c"}},
            {"type": "mcp", "server_label": "l", "server_url": "u"},
        ],
        "input": [
            {**MINE, "content": [{"type": "input_audio", "data": "x"}], "id": "msg_0"},
            {**MINE, "content": [{"type": "input_text", "text": "t", "prompt_cache_breakpoint": {}}]},
            {"type": "message", "role": "assistant", "content": [{"type": "tomorrow", "x": 1}]},
            {"type": "message", "role": "tool", "content": [{"type": "input_text", "text": "t"}]},
            {"type": "item_reference", "id": "msg_9"},
            {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}},
            {"type": "custom_tool_call_output", "call_id": "d", "output": "x", "status": "completed"},
            {"type": "mcp_approval_response", "approval_request_id": "r", "approve": True},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []},
        "text": {
            "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
            "verbosity": "low",
        },
        "store": False,
        "reasoning": {"effort": {"x": 1}, "mode": "tomorrow"},
        "service_tier": "flex",
    }
    assert encode_unstreamed(read(**body)) == body


def test_what_has_a_place_is_understood():
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    request = read(
        input="hi",
        reasoning={"effort": "low", "summary": "auto", "mode": "pro", "context": "all_turns"},
        text={
            "format": {
                "type": "json_schema",
                "name": "n",
                "schema": schema,
                "strict": True,
                "description": "d",
            }
        },
        tools=[
            {"type": "function", "name": "look", "parameters": schema, "strict": True, "description": "L."}
        ],
        tool_choice={"type": "function", "name": "look"},
        parallel_tool_calls=False,
        max_output_tokens=100,
        temperature=1,
        store=False,
        stream=True,
    )
    assert request.messages[0].parts == (Text(text="hi"),)
    assert request.thinking == Thinking(mode="pro", effort="low", display="auto")
    assert request.output == OutputSpec(
        name="n", parameters=json.dumps(schema, separators=(",", ":")), description="d"
    )
    assert (request.tools[0].name, request.tools[0].description, request.tools[0].native) == (
        "look",
        "L.",
        None,
    )
    assert request.tool_choice == ToolChoice(mode="tool", name="look", parallel=False)
    assert (request.max_tokens, request.sampling.temperature, request.stream) == (100, 1.0, True)
    assert request.extras == (Extra(name="reasoning", json='{"context":"all_turns"}'),)


def test_pictures_and_files_are_media():
    def given(**piece):
        return read(input=[{"role": "user", "content": [piece]}]).messages[0].parts[0]

    inline = "data:image/png;base64,AAAA"
    assert given(type="input_image", image_url=inline, detail="auto") == Media.from_wire(
        kind="image", media_type="image/png", data="AAAA"
    )
    low = given(type="input_image", image_url="https://x", detail="low")
    assert low == Media.from_wire(kind="image", url="https://x", native='{"part":{"detail":"low"}}')
    assert given(type="input_image", file_id="f") == Media.from_wire(kind="image", file_id="f")
    paper = given(type="input_file", file_data="data:application/pdf;base64,BB", filename="a.pdf")
    assert paper == Media.from_wire(kind="document", media_type="application/pdf", data="BB", name="a.pdf")
    assert isinstance(given(type="input_file", file_data="no url", filename="a"), Opaque)


@pytest.mark.parametrize(
    ("body", "extras"),
    [
        ({}, {"store": "true"}),
        ({"store": True}, {"store": "true"}),
        ({"store": False}, {}),
        ({"previous_response_id": "r"}, {"previous_response_id": '"r"'}),
        ({"previous_response_id": "r", "store": False}, {"previous_response_id": '"r"', "store": "false"}),
        ({"conversation": {"id": "c"}, "store": True}, {"conversation": '{"id":"c"}'}),
        ({"background": True}, {"background": "true"}),
    ],
)
def test_storing_is_the_providers_default_and_not_ours(body, extras):
    request = read(input="x", **body)
    assert {extra.name: extra.json for extra in request.extras} == extras
    assert encode_unstreamed(request)["store"] is body.get("store", True)


def test_outputs_of_calls_the_provider_holds_are_kept():
    output = {"type": "function_call_output", "call_id": "call_9", "output": "x"}
    for body in (
        {"previous_response_id": "r", "input": [output]},
        {"input": [{"type": "item_reference", "id": "f"}, output]},
    ):
        assert encode_unstreamed(read(**body))["input"][-1] == output
    assert encode_unstreamed(read(input=[output]))["input"] == []


def test_paths_of_other_clouds_and_prompts_that_name_the_model():
    assert read("/openai/responses?api-version=v1", input="x").model.id == "m"
    kept = CODEC.decode_request(HttpRequest(path="/responses", body=b'{"prompt":{"id":"p"}}'))
    assert encode_unstreamed(kept) == {"input": [], "store": True, "prompt": {"id": "p"}}


def test_a_reference_may_leave_out_what_it_is():
    body = {"model": "m", "input": [{"role": "user", "content": "hi"}, {"id": "fc_1", "type": None}]}
    asked = HttpRequest(path="/responses", body=json.dumps(body).encode())
    written = json.loads(CODEC.encode(CODEC.decode_request(asked)).body)["input"][1]
    assert {name: value for name, value in written.items() if value is not None} in (
        {"id": "fc_1"},
        {"id": "fc_1", "type": "item_reference"},
    )

"""Requests on the Responses wire, for tests."""

import json

from msgspec.structs import replace

from bridle.values.message import Media, Reasoning, Text
from bridle.values.model import Abilities, Endpoint, Model
from bridle.values.request import Extra, Thinking, ToolChoice
from tests.providers.kit.encode_kit import FOREIGN, EncodeCases, Talk, answer, ask_everything

FAMILY = "openai_responses"
ENDPOINT = Endpoint(name="here", family=FAMILY, reasoning="signed")
ABLE = Abilities(thinking=("standard", "pro"), efforts=("low", "high"))
TALK = Talk(Model(id="gpt-x", endpoint=ENDPOINT, abilities=ABLE), "input")
OWN = TALK.own
SIBLING = replace(OWN, endpoint="elsewhere")


def make_extra(name, value):
    return Extra(name=name, json=json.dumps(value, separators=(",", ":")))


def text_with_id(text, id_, **more):
    return Text(text=text, native=json.dumps({"message": {"id": id_, "status": "completed", **more}}))


def reasoning_with_id(id_, blob="gAAA", text=""):
    return Reasoning(text=text, signature=blob, native=json.dumps({"id": id_}))


def list_items(body, kind):
    return [item for item in body["input"] if item["type"] == kind]


def read_arguments(text):
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def keep(policy, origin, kept):
    return policy, origin, (UNSIGNED,), [{"type": "reasoning", **kept}] if kept else []


UNSIGNED = Reasoning(text="hm", native='{"id":"rs_1"}')
SUMMARY = {"id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
PICTURE = {"type": "input_image", "detail": "auto"}
PDF = Media(kind="document", media_type="application/pdf", data="BBBB")
SENT_PDF = {"type": "input_file", "file_data": "data:application/pdf;base64,BBBB"}
ENCODE = EncodeCases(
    talk=TALK,
    full=ask_everything(
        TALK,
        thinking=Thinking(mode="pro", effort="low", display="auto", budget_tokens=5),
        extras=(make_extra("prompt_cache_key", "k"), make_extra("include", ["file_search_call.results"])),
    ),
    head={"model": "gpt-x", "instructions": "Be brief.", "tools": None, "input": None},
    tail={
        "max_output_tokens": 90,
        "temperature": 0.5,
        "top_p": 0.9,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low", "summary": "auto", "mode": "pro"},
        "text": {
            "format": {
                "type": "json_schema",
                "name": "an_answer",
                "description": "An answer.",
                "schema": {"type": "object"},
                "strict": False,
            }
        },
        "store": False,
        "include": ["reasoning.encrypted_content", "file_search_call.results"],
        "prompt_cache_key": "k",
        "stream": True,
    },
    headers={},
    native='{"type": "web_search",  "filters": null}',
    choices=[
        (ToolChoice(), None),
        (ToolChoice(mode="none"), "none"),
        (ToolChoice(mode="any"), "required"),
        (ToolChoice(mode="tool", name="look"), {"type": "function", "name": "look"}),
        (ToolChoice(mode="tool", name="web"), {"type": "web_search"}),
    ],
    path="/v1/responses",
    other_paths=["/v1/responses/resp_1/cancel", "/v1/chat/completions"],
    no_requests=[
        b"{}",
        b'{"model":"m","input":[1]}',
        b'{"model":"m","input":"x","tools":[1]}',
        b'{"model":"m","input":"x","instructions":[1]}',
    ],
    read_choice=lambda body: body.get("tool_choice"),
    extras=[
        make_extra("input", []),
        make_extra("model", "x"),
        make_extra("stream", False),
        make_extra("max_output_tokens", 30),
    ],
    read_calls=lambda body: [
        (item["call_id"], item["name"], read_arguments(item["arguments"]))
        for item in list_items(body, "function_call")
    ],
    read_results=lambda body: [
        (item["call_id"], item["output"]) for item in list_items(body, "function_call_output")
    ],
    ids=["call_1", "c2", "c3", "c4", "x" * 65, "c6", "c7"],
    legal_name="[a-zA-Z0-9_-]{1,128}",
    is_wrapped=False,
    reasoning=[
        keep("signed", OWN, None),
        keep("may_echo", OWN, SUMMARY),
        keep("must_echo", OWN, SUMMARY),
        keep("strip", OWN, None),
        keep("may_echo", SIBLING, None),
        keep("may_echo", FOREIGN, None),
        keep("must_echo", FOREIGN, {"summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}),
    ],
    read_turn=lambda items: [item for item in items if item["type"] == "reasoning"],
    media=[
        (
            Media(kind="image", media_type="image/png", data="AAAA"),
            {**PICTURE, "image_url": "data:image/png;base64,AAAA"},
        ),
        (Media(kind="image", url="https://x/y.png"), {**PICTURE, "image_url": "https://x/y.png"}),
        (Media(kind="image", file_id="f1"), {**PICTURE, "file_id": "f1"}),
        (PDF, {**SENT_PDF, "filename": "file.pdf"}),
        (replace(PDF, name="a.pdf"), {**SENT_PDF, "filename": "a.pdf"}),
        (
            Media(kind="document", url="https://x/y.pdf"),
            {"type": "input_file", "file_url": "https://x/y.pdf"},
        ),
        (
            Media.from_wire(kind="audio", name="b"),
            {"type": "input_text", "text": "[audio b left out: it cannot be sent to this model]"},
        ),
    ],
    read_media=lambda items: items[0]["content"],
    are_outcomes_read=True,
    outcomes=[
        (answer("c1"), ""),
        (answer("c1", "boom", outcome="error"), "[tool error] boom"),
        (answer("c1", "slow", outcome="timeout"), "[tool error: timeout] slow"),
        (answer("c1", outcome="denied"), "[tool error: denied]"),
    ],
)

"""Requests on Chat Completions, for tests."""

import json

from msgspec.structs import replace

from bridle.values.message import Media, Reasoning
from bridle.values.model import Endpoint, Model
from bridle.values.request import Extra, ToolChoice
from tests.providers.kit.encode_kit import FOREIGN, EncodeCases, Talk, answer, ask_everything

ENDPOINT = Endpoint(name="here", family="openai_chat")
TALK = Talk(Model(id="model-x", endpoint=ENDPOINT), "messages")
OWN = TALK.own
NEAR = replace(OWN, endpoint="there")
THOUGHT = Reasoning(text="Well.")
SIGNED = Reasoning(
    text="Well.", signature="sig", native='{"detail":{"type":"reasoning.text","format":"f","index":0}}'
)
MEET = {("", "user"), ("user", "assistant"), ("assistant", "user"), ("assistant", "tool"), ("tool", "tool"),
        ("tool", "assistant")}  # fmt: skip


def list_complaints(messages, *, alternate=False):
    """What a strict server would say of these messages."""
    open_ids, used, spoke = [], set(), ""
    for message in messages:
        role, content = message["role"], message.get("content")
        if alternate and (spoke, role) not in MEET:
            yield f"{role} after {spoke or 'nobody'}"
        spoke = role
        if role == "tool":
            if message["tool_call_id"] not in open_ids:
                yield f"orphan result {message}"
            else:
                open_ids.remove(message["tool_call_id"])
        elif open_ids:
            yield f"unanswered {open_ids}"
            open_ids = []
        for each in message.get("tool_calls", ()):
            if each["id"] in used:
                yield f"repeated id {each}"
            used.add(each["id"])
            open_ids.append(each["id"])
            if not isinstance(json.loads(each["function"]["arguments"]), dict):
                yield f"arguments {each}"
        if content is None and not {"tool_calls", "audio", "refusal"} & message.keys():
            yield f"no content {message}"
        texts = [content] if isinstance(content, str) else [part.get("text", "x") for part in content or ()]
        if any(not text.strip() for text in texts):
            yield f"blank text {message}"
        if role == "tool" and isinstance(content, list) and any(part["type"] != "text" for part in content):
            yield f"a result holds more than words {message}"
    if open_ids:
        yield f"unanswered {open_ids}"


def keep(policy, origin, thought, fields):
    return policy, origin, (thought,), [fields]


PDF = Media(kind="document", media_type="application/pdf", data="JVBE")
SENT_PDF = {"file_data": "data:application/pdf;base64,JVBE"}
LOST = "[{} left out: it cannot be sent to this model]"
ENCODE = EncodeCases(
    talk=TALK,
    full=ask_everything(TALK, extras=(Extra(name="seed", json="7"),)),
    head={"model": "model-x", "tools": None, "messages": None},
    tail={
        "max_completion_tokens": 90,
        "stop": ["END"],
        "temperature": 0.5,
        "top_p": 0.9,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "an_answer", "description": "An answer.", "schema": {"type": "object"}},
        },
        "seed": 7,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    headers={},
    native='{"type":  "web_search"}',
    choices=[
        (ToolChoice(), None),
        (ToolChoice(mode="none"), "none"),
        (ToolChoice(mode="any"), "required"),
        (ToolChoice(mode="tool", name="look"), {"type": "function", "function": {"name": "look"}}),
        (ToolChoice(parallel=False), None),
    ],
    path="/v1/chat/completions",
    other_paths=["/v1/embeddings"],
    no_requests=[
        b'{"model":"m"}',
        b'{"messages":[],"model":7}',
        b'{"messages":[7]}',
        b'{"messages":[{"role":"nobody"}]}',
        b'{"messages":[{"role":"user","content":7}]}',
        b'{"messages":[],"tools":[7]}',
    ],
    read_choice=lambda body: body.get("tool_choice"),
    extras=[
        Extra(name="messages", json="[]"),
        Extra(name="stream", json="true"),
        Extra(name="max_completion_tokens", json="1"),
    ],
    read_calls=lambda body: [
        (each["id"], each["function"]["name"], json.loads(each["function"]["arguments"]))
        for message in body["messages"]
        for each in message.get("tool_calls", ())
    ],
    read_results=lambda body: [
        (message["tool_call_id"], message["content"])
        for message in body["messages"]
        if message["role"] == "tool"
    ],
    ids=["call_1", "c2", "c3", "c4", "x" * 65, "c6", "c7"],
    legal_name="[a-zA-Z0-9_-]{1,64}",
    reasoning=[
        keep("may_echo", OWN, THOUGHT, {"reasoning_content": "Well."}),
        keep("must_echo", OWN, THOUGHT, {"reasoning_content": "Well."}),
        keep("strip", OWN, THOUGHT, {}),
        keep("strip", OWN, SIGNED, {}),
        keep("signed", OWN, THOUGHT, {}),
        keep(
            "signed",
            OWN,
            SIGNED,
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "format": "f", "index": 0, "text": "Well.", "signature": "sig"}
                ]
            },
        ),
        keep("may_echo", NEAR, THOUGHT, {}),
        keep("may_echo", FOREIGN, SIGNED, {}),
    ],
    read_turn=lambda messages: [
        {name: value for name, value in messages[1].items() if name.startswith("reasoning")}
    ],
    media=[
        (
            Media(kind="image", media_type="image/png", data="iVBORw0KGgo="),
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        ),
        (
            Media(kind="image", url="https://a/b.png"),
            {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
        ),
        (replace(PDF, name="a.pdf"), {"type": "file", "file": {"filename": "a.pdf", **SENT_PDF}}),
        (PDF, {"type": "file", "file": {"filename": "document.pdf", **SENT_PDF}}),
        (Media(kind="document", file_id="file-1"), {"type": "file", "file": {"file_id": "file-1"}}),
        (
            Media(kind="document", media_type="text/plain", data="SGk=", name="a.txt"),
            {"type": "text", "text": "a.txt\n\nHi"},
        ),
        (
            Media(kind="audio", media_type="audio/mpeg", data="AAAA"),
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
        ),
        (
            Media(kind="document", url="https://a/b.pdf"),
            {"type": "text", "text": LOST.format("document https://a/b.pdf")},
        ),
        (
            Media(kind="video", media_type="video/mp4", data="AAAA", name="v.mp4"),
            {"type": "text", "text": LOST.format("video v.mp4")},
        ),
    ],
    read_media=lambda messages: messages[0]["content"],
    are_outcomes_read=True,
    outcomes=[
        (answer("c1"), "(no output)"),
        (answer("c1", outcome="error"), "[error]"),
        (answer("c1", "no", outcome="error"), "[error] no"),
        (answer("c1", "no", outcome="denied"), "[error: denied] no"),
        (answer("c1", "two", outcome="timeout"), "[error: timeout] two"),
    ],
    complain=lambda body: list_complaints(body["messages"]),
)

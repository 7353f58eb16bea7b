"""Every field of the vendors' request types through the gateway: it arrives, or it is named, or it is refused.

`python -m pytest -s` prints the table.
"""

import base64
import json
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from urllib.parse import quote

import pytest

from bridle.providers.families import load_served_wire
from bridle.values.message import Reply, Stop, Text
from bridle.values.model import Origin
from bridle.values.usage import Usage
from tests.serve.gateway.field_requests import (
    MODEL_NAME,
    NAMELESS,
    SCHEMA,
    Field,
    FieldMaker,
    is_default,
    is_named,
    is_present,
    list_fields,
    list_values,
    make_body,
)
from tests.serve.raw_http import send
from tests.serve.served import serving_gateway
from tests.suite.campaign import IS_WHOLE

PATHS = {
    "anthropic": "/anthropic/v1/messages",
    "openai_chat": "/openai/v1/chat/completions",
    "openai_responses": "/openai/v1/responses",
    "gemini": f"/gemini/v1beta/models/{quote(MODEL_NAME)}:generateContent",
}
UPSTREAM = {
    "anthropic": "anthropic:claude-sonnet-5-5@{url}",
    "openai_chat": "openai-chat:gpt-5.4@{url}/v1",
    "openai_responses": "openai:gpt-6.1-sol@{url}/v1",
    "gemini": "gemini:gemini-3.5-flash@{url}/v1beta",
}
ENDINGS = {
    "/messages": "anthropic",
    "/chat/completions": "openai_chat",
    "/responses": "openai_responses",
    "enerateContent": "gemini",
}
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
REPLY = Reply(
    parts=(Text(text='{"zqfield0": "x"}'),),
    stop=Stop.DONE,
    origin=Origin(family="", endpoint="", model="m"),
    usage=Usage(input=1, output=1),
    id="r1",
)
HEADER_FIELDS = {
    "betas": "anthropic-beta",
    "user_profile_id": "anthropic-user-profile-id",
    "workspace_id": "anthropic-workspace-id",
}
"""Parameters of the vendor's SDK that are headers on the wire."""
OWN_MEMBERS = {"model", "messages", "input", "contents", "stream"}
"""Members of the body that are no fields of their own: clients name models of the gateway, and messages have fields."""
LOSSLESS = ("carried", "met", "default")
wires = pytest.mark.parametrize("wire", PATHS)


class Upstream(ThreadingHTTPServer):
    """A provider of every wire that accepts everything and keeps what it was sent."""

    daemon_threads = True

    def __init__(self):
        self.bodies, self.headers = [], []
        super().__init__(("127.0.0.1", 0), _Provider)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)  # type: ignore[attr-defined]
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})  # type: ignore[attr-defined]
        path = self.path.partition("?")[0]
        family = next(family for ending, family in ENDINGS.items() if path.endswith(ending))
        is_streamed = body.get("stream") is True or "stream" in path
        reply = load_served_wire(family).encode_reply(REPLY, stream=is_streamed)
        data = b"".join(reply.frames)
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def upstream(monkeypatch):
    for name in KEYS:
        monkeypatch.setenv(name, "test-key")
    server = Upstream()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def gateway_to(upstream, *providers, **more):
    chain = [UPSTREAM[provider].format(url=upstream.url) for provider in providers]
    with serving_gateway({"models": {MODEL_NAME: {"chain": chain}}, **more}) as served:
        yield served


def send_body(served, upstream, wire, body, headers=(), *, stream=False):
    """The reply of the gateway, and the body that the provider got; None if it got none."""
    upstream.bodies.clear()
    upstream.headers.clear()
    path = PATHS[wire]
    if stream and wire == "gemini":
        path = path.replace(":generateContent", ":streamGenerateContent?alt=sse")
    elif stream:
        body = {**body, "stream": True}
    reply = send(served.url + path, body, headers)
    return reply, upstream.bodies[-1] if upstream.bodies else None


def judge(served, upstream, field, body, *, stream=False):
    """What became of a field: carried, named, refused or lost."""
    reply, sent = send_body(served, upstream, field.wire, body, stream=stream)
    if reply.status == 200 and stream and b"zqfield0" not in reply.body:
        return "failed stream", reply.body.decode()[-200:]
    if reply.status != 200:
        told = reply.json["error"]["message"] if isinstance(reply.json.get("error"), dict) else ""
        return ("refused" if sent is None and is_named(told, field, body) else f"failed {reply.status}"), told
    if field.member in NAMELESS or is_present(sent, field.member, field.value):
        return "carried", ""
    if is_top(field.path) and field.member in HEADER_FIELDS:
        value = upstream.headers[-1].get(HEADER_FIELDS[field.member], "")
        given = field.value if isinstance(field.value, list) else [field.value]
        return ("carried" if value.split(",") == given else "lost"), value
    if field.member == "thread":
        return (
            "met" if continues_thread(served, upstream, read_created(reply, stream=stream), sent) else "lost"
        ), ""
    told = reply.headers.get("x-bridle-dropped", "")
    return ("named" if is_named(told, field, body) else "lost"), told


def read_created(reply, *, stream):
    """The message that a request created, of a whole or of a streamed reply."""
    if not stream:
        return reply.json
    started = next(each["message"] for each in reply.events if each["type"] == "message_start")
    texts = [each["delta"]["text"] for each in reply.events if each["type"] == "content_block_delta"]
    return {**started, "content": [{"type": "text", "text": "".join(texts)}]}


def continues_thread(served, upstream, created, before):
    """Whether a thread that a request created goes on: the provider gets the conversation before the new message."""
    thread = {"type": "continue", "previous_message_id": created["id"]}
    reply, sent = send_body(served, upstream, "anthropic", ask_claude("and then", thread=thread))
    if reply.status != 200 or "x-bridle-dropped" in reply.headers:
        return False
    said = {"role": "assistant", "content": created["content"]}
    new = {"role": "user", "content": [{"type": "text", "text": "and then"}]}
    return sent["messages"] == [*before["messages"], said, new] and sent.get("system") == before.get("system")


def is_top(path):
    return all(step.startswith("|") for step in path)


def read_fields(wire):
    maker = FieldMaker()
    for path, member, node in list_fields(wire, everywhere=IS_WHOLE):
        for value in list_values(maker, member, node, everywhere=IS_WHOLE):
            if value is None or (member in OWN_MEMBERS and is_top(path)):
                continue
            field = Field(wire, path, member, node, value)
            yield field, make_body(maker, wire, field)


NEVER_REFUSED = (
    "cache_control",
    "prompt_cache_breakpoint",
    "stream_options",
    "reasoning without a signature",
    "its tools are declared one by one",
)
"""What strict mode names and does not refuse (docs/gateway.md)."""


def judge_fields(served, upstream, wire, *, strict=False, every=1, stream=False):
    """Judge each field, or one of `every`; fails if one is lost in silence, or if strict mode loses one."""
    counts, wrong = Counter(), []
    for field, body in islice(read_fields(wire), 0, None, every):
        outcome, told = judge(served, upstream, field, body, stream=stream)
        if outcome == "lost" and is_default(field.member, field.value):
            outcome = "default"
        if strict and outcome == "failed 400" and told.startswith("strict mode: "):
            outcome = "refused"  # for another member of the smallest request that has the field
        counts[outcome] += 1
        if strict and outcome == "named" and not any(words in told for words in NEVER_REFUSED):
            outcome = "named in strict mode"
        if outcome not in (*LOSSLESS, "named", "refused"):
            wrong.append(f"{field.name} = {json.dumps(field.value)[:60]}: {outcome} {told[:200]}")
    total, kept = sum(counts.values()), sum(counts[outcome] for outcome in LOSSLESS)
    print(
        f"\n{wire}: {total:,} fields / {kept:,} lossless / {counts['named']:,} named"
        f" / {counts['refused']:,} refused / {len(wrong):,} silent or failed"
    )
    assert kept > total / 3
    assert not wrong, "\n".join(wrong)


@wires
@pytest.mark.slow
def test_every_field_arrives_on_the_same_wire_or_is_named_or_refused(wire, upstream):
    """`BRIDLE_CAMPAIGN=1 pytest -s` tries each field at every place, with every value, and prints the table."""
    with gateway_to(upstream, wire) as served:
        judge_fields(served, upstream, wire)


EVERY = 1 if IS_WHOLE else 5
"""A part of the fields is tried in strict mode and streamed, all of them with BRIDLE_CAMPAIGN=1."""


@wires
@pytest.mark.slow
def test_every_field_arrives_or_is_refused_in_strict_mode(wire, upstream):
    with gateway_to(upstream, wire, strict=True) as served:
        judge_fields(served, upstream, wire, strict=True, every=EVERY)


@wires
@pytest.mark.slow
def test_every_field_of_a_streamed_request_arrives_or_is_named_or_refused(wire, upstream):
    with gateway_to(upstream, wire) as served:
        judge_fields(served, upstream, wire, every=EVERY, stream=True)


TEXT_FILE = {"type": "text", "media_type": "text/plain", "data": "plain"}
PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def ask_claude(content, **more):
    return {
        "model": MODEL_NAME,
        "max_tokens": 500,
        "messages": [{"role": "user", "content": content}],
        **more,
    }


def ask_chat(content="hello", name=None, **more):
    named = {"name": name} if name else {}
    return {"model": MODEL_NAME, "messages": [{"role": "user", "content": content, **named}], **more}


def ask_gemini(part, **more):
    return {"contents": [{"role": "user", "parts": [part, {"text": "hello"}]}], **more}


def claude_tool(**more):
    return ask_claude("hello", tools=[{"name": "look", "input_schema": OBJECT, **more}])


INLINE = {"inlineData": {"mimeType": "image/png", "data": PICTURE.partition(",")[2]}}
REFERENCE = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "find", "input": {}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "tool_reference", "tool_name": "look"}]},
    ]},
]  # fmt: skip
THOUGHT = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "said"},
    ]},
    {"role": "user", "content": "go on"},
]  # fmt: skip
FOUND = {
    "document.citations": ("anthropic", "citations", {"enabled": True}, ask_claude(
        [{"type": "document", "source": TEXT_FILE, "citations": {"enabled": True}}, {"type": "text", "text": "hello"}])),
    "document.context": ("anthropic", "context", "about it", ask_claude(
        [{"type": "document", "source": TEXT_FILE, "context": "about it"}, {"type": "text", "text": "hello"}])),
    "tool strict": ("anthropic", "strict", True, claude_tool(strict=True)),
    "tool input_examples": ("anthropic", "input_examples", [{"a": "x"}], claude_tool(input_examples=[{"a": "x"}])),
    "tool defer_loading": ("anthropic", "defer_loading", True, ask_claude("hello", tools=[
        {"name": "find", "input_schema": OBJECT},
        {"name": "look", "input_schema": OBJECT, "defer_loading": True},
    ])),
    "tool_reference": ("anthropic", "tool_name", "look", {**claude_tool(), "messages": REFERENCE}),
    "file": ("anthropic", "file_id", "file_1", ask_claude(
        [{"type": "image", "source": {"type": "file", "file_id": "file_1"}}, {"type": "text", "text": "hello"}])),
    "thinking": ("anthropic", "thinking", "hm", {**ask_claude("go on"), "messages": THOUGHT}),
    "metadata": ("anthropic", "metadata", {"user_id": "u1"}, ask_claude("hello", metadata={"user_id": "u1"})),
    "name": ("openai_chat", "name", "ann", ask_chat(name="ann")),
    "detail of chat": ("openai_chat", "detail", "low", ask_chat(
        [{"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}}, {"type": "text", "text": "hello"}])),
    "strict of chat": ("openai_chat", "strict", True, ask_chat(
        tools=[{"type": "function", "function": {"name": "look", "parameters": OBJECT, "strict": True}}])),
    "user": ("openai_chat", "user", "u1", ask_chat(user="u1")),
    "safety_identifier": ("openai_chat", "safety_identifier", "u1", ask_chat(safety_identifier="u1")),
    "store": ("openai_chat", "store", True, ask_chat(store=True)),
    "json_object": ("openai_chat", "response_format", {"type": "json_object"}, ask_chat(
        response_format={"type": "json_object"})),
    "name of a schema with a title": ("openai_chat", "name", "final_output", ask_chat(response_format={
        "type": "json_schema", "json_schema": {"name": "final_output", "schema": {**SCHEMA, "title": "Answer"}}})),
    "detail of responses": ("openai_responses", "detail", "low", {"model": MODEL_NAME, "input": [{"role": "user",
        "content": [{"type": "input_image", "image_url": PICTURE, "detail": "low"},
                    {"type": "input_text", "text": "hello"}]}]}),
    "mediaResolution": ("gemini", "mediaResolution", {"level": "MEDIA_RESOLUTION_LOW"}, ask_gemini(
        {**INLINE, "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"}})),
    "videoMetadata": ("gemini", "videoMetadata", {"fps": 2}, ask_gemini({**INLINE, "videoMetadata": {"fps": 2}})),
    "responseSchema": ("gemini", "responseSchema", {"type": "OBJECT"}, ask_gemini(
        {"text": "a"}, generationConfig={"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT"}})),
    "responseMimeType": ("gemini", "responseMimeType", "application/json", ask_gemini(
        {"text": "a"}, generationConfig={"responseMimeType": "application/json"})),
}  # fmt: skip
"""What was lost without a word: the wire, the member and its value, and a request."""
REFUSED = {"json_object", "responseMimeType"}
"""Forms of an answer; on another wire the request is refused, because the answer would be prose."""
CONVERTED = {"responseSchema", "name of a schema with a title"}
"""Schemas of an answer, which every wire has a form for."""
ONLY_NAMED = {"store", "metadata", "user", "safety_identifier", "thinking"}
NAMES = {
    "tool_name": "tool_reference",
    "file_id": "the file is held by anthropic",
    "thinking": "reasoning of another provider",
}
"""Words by which members are named."""
found = pytest.mark.parametrize("case", FOUND)


@found
def test_a_member_of_the_same_wire_arrives_also_in_strict_mode(case, upstream):
    wire, member, value, body = FOUND[case]
    with gateway_to(upstream, wire, strict=True) as served:
        reply, sent = send_body(served, upstream, wire, body)
    assert reply.status == 200, reply.body
    assert is_present(sent, member, value), sent
    assert member not in reply.headers.get("x-bridle-dropped", "")


@found
@pytest.mark.parametrize("provider", UPSTREAM)
def test_a_member_that_another_wire_lacks_is_named_and_refused_in_strict_mode(case, provider, upstream):
    wire, member, _, body = FOUND[case]
    if provider == wire:
        return
    with gateway_to(upstream, provider) as served:
        reply, sent = send_body(served, upstream, wire, body)
        if case in CONVERTED:
            assert sent is not None and '"type": "object"' in json.dumps(sent)
            return
        if case in REFUSED:
            assert reply.status == 400 and member in reply.json["error"]["message"]
            return
        assert reply.status == 200 and NAMES.get(member, member) in reply.headers["x-bridle-dropped"]
    with gateway_to(upstream, provider, strict=True) as served:
        reply, sent = send_body(served, upstream, wire, body)
        assert (reply.status, sent is None) == ((200, False) if case in ONLY_NAMED else (400, True)), (
            reply.body
        )


@pytest.mark.parametrize("provider", UPSTREAM)
@pytest.mark.parametrize("role", ["system", "user"])
def test_a_cache_mark_is_carried_or_named_and_never_refused(role, provider, upstream):
    mark = {"mode": "explicit", "ttl": "12h"}  # ours have no lifetime
    marked = [{"type": "text", "text": "hello", "prompt_cache_breakpoint": mark}]
    body = ask_chat(marked) if role == "user" else ask_chat()
    if role == "system":
        body["messages"].insert(0, {"role": "system", "content": marked})
    with gateway_to(upstream, provider, strict=True) as served:
        reply, sent = send_body(served, upstream, "openai_chat", body)
    is_carried = is_present(sent, "prompt_cache_breakpoint", mark)
    assert reply.status == 200
    assert is_carried == (role == "user" and provider == "openai_chat")
    assert is_carried != ("prompt_cache_breakpoint" in reply.headers.get("x-bridle-dropped", ""))


def test_a_chain_with_another_wire_is_refused_in_strict_mode(upstream):
    wire, member, _, body = FOUND["document.citations"]
    with gateway_to(upstream, "anthropic", "gemini", strict=True) as served:
        reply, sent = send_body(served, upstream, wire, body)
    assert (reply.status, sent) == (400, None) and member in reply.json["error"]["message"]


def test_a_member_that_hooks_would_not_see_is_withheld_and_named(upstream, tmp_path):
    (tmp_path / "rules.py").write_text("from bridle.hooks import RedactPii\n\nredact = RedactPii()\n")
    wire, _, _, body = FOUND["document.context"]
    document = body["messages"][0]["content"][0] | {
        "context": "mail ann@example.com",
        "citations": {"enabled": True},
    }
    hidden = ask_claude([document, {"type": "text", "text": "hello"}])
    with gateway_to(upstream, wire, hooks=[f"{tmp_path}/rules.py:redact"]) as served:
        reply, sent = send_body(served, upstream, wire, hidden)
    assert reply.status == 200 and "document.context" in reply.headers["x-bridle-dropped"]
    assert "ann@example.com" not in json.dumps(sent)


MAIL = "ann@example.com"
CALL_ID = "call_4111111111111111"
URL_SAFE = base64.urlsafe_b64encode(f"ÿÿ?>~ {MAIL}".encode()).decode()
PAST_CALL = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": CALL_ID, "name": "look", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": CALL_ID, "content": "seen"}]},
    {"role": "user", "content": "hello"},
]
HIDDEN = {
    "stop sequences of Messages": ("anthropic", ask_claude("hello", stop_sequences=[MAIL])),
    "stop sequences of Gemini": ("gemini", ask_gemini({"text": "a"}, generationConfig={"stopSequences": [MAIL]})),
    "id of a call": ("anthropic", {**claude_tool(), "messages": PAST_CALL}),
    "id of a file": ("anthropic", ask_claude(
        [{"type": "document", "source": {"type": "file", "file_id": MAIL}}, {"type": "text", "text": "hello"}])),
    "name of a member": ("openai_chat", ask_chat(metadata={MAIL: "a"})),
    "number": ("gemini", ask_gemini({**INLINE, "videoMetadata": {"fps": 4111111111111111}})),
    "document of another type": ("openai_responses", {"model": MODEL_NAME, "input": [{"role": "user", "content": [
        {"type": "input_file", "filename": "a.sql",
         "file_data": "data:application/sql;base64," + base64.b64encode(MAIL.encode()).decode()},
        {"type": "input_text", "text": "hello"}]}]}),
    "base64 for URLs": ("gemini", ask_gemini({"inlineData": {"mimeType": "text/plain", "data": URL_SAFE}})),
    "tool example": ("anthropic", claude_tool(input_examples=[{"a": MAIL}])),
}  # fmt: skip
"""Places of a request that hold text without being a text of the conversation."""


def contains_text(value, text):
    """Whether a body holds the text, also as a name, a number or base64."""
    if isinstance(value, dict):
        return any(contains_text(each, text) for pair in value.items() for each in pair)
    if isinstance(value, list):
        return any(contains_text(each, text) for each in value)
    written = str(value)
    data = written.partition(";base64,")[2] or written
    try:
        decoded = base64.urlsafe_b64decode(data.replace("+", "-").replace("/", "_")).decode(
            "utf-8", "replace"
        )
    except ValueError:
        decoded = ""
    return text in written or text in decoded


@pytest.mark.parametrize("case", HIDDEN)
def test_a_text_outside_the_conversation_does_not_pass_by_the_hooks(case, upstream, tmp_path):
    (tmp_path / "rules.py").write_text("from bridle.hooks import RedactPii\n\nredact = RedactPii()\n")
    wire, body = HIDDEN[case]
    secret = MAIL if contains_text(body, MAIL) else "4111111111111111"
    with gateway_to(upstream, wire) as served:
        reply, sent = send_body(served, upstream, wire, body)
    assert reply.status == 200 and contains_text(sent, secret), (
        "it does not reach the provider, so nothing is tested"
    )
    with gateway_to(upstream, wire, hooks=[f"{tmp_path}/rules.py:redact"]) as served:
        reply, sent = send_body(served, upstream, wire, body)
    assert reply.status == 200, reply.body
    assert not contains_text(sent, secret)


@wires
@pytest.mark.slow
@pytest.mark.full
def test_no_field_of_a_request_passes_by_the_hooks(wire, upstream, tmp_path, monkeypatch):
    """Every text of the vendor's request types is an address."""
    plain, filled = FieldMaker.plain, FieldMaker.filled
    texts = {"str": MAIL, "any": {MAIL: MAIL}, "b64": base64.b64encode(MAIL.encode()).decode()}
    monkeypatch.setattr(FieldMaker, "plain", lambda self, node: texts.get(node) or plain(self, node))
    monkeypatch.setattr(FieldMaker, "filled", lambda self, node: texts.get(str(node)) or filled(self, node))
    (tmp_path / "rules.py").write_text("from bridle.hooks import RedactPii\n\nredact = RedactPii()\n")
    counts, wrong = Counter(), []
    with gateway_to(upstream, wire, hooks=[f"{tmp_path}/rules.py:redact"]) as served:
        for field, body in read_fields(wire):
            reply, sent = send_body(served, upstream, wire, body)
            counts[reply.status] += 1
            if sent is not None and contains_text(sent, MAIL):
                wrong.append(f"{field.name}: {json.dumps(sent)[:300]}")
    assert counts[200] > sum(counts.values()) / 3
    assert not wrong, "\n".join(wrong)


PICTURE_CALL = {
    "type": "image_generation_call",
    "id": "ig_1",
    "status": "completed",
    "result": PICTURE.partition(",")[2],
}
UNSENT = {
    "action": "generate", "background": "opaque", "output_format": "png", "quality": "high",
    "revised_prompt": "a red dot", "size": "1024x1024",
}  # fmt: skip


@pytest.mark.parametrize("member", UNSENT)
def test_a_member_that_the_vendor_does_not_take_back_is_named_by_its_own_name(member, upstream):
    """Only the vendor writes these members; it refuses a request that has them."""
    item = {**PICTURE_CALL, member: UNSENT[member]}
    asked = {
        "model": MODEL_NAME,
        "input": [{"role": "user", "content": "draw"}, item, {"role": "user", "content": "go"}],
    }
    with gateway_to(upstream, "openai_responses") as served:
        reply, sent = send_body(served, upstream, "openai_responses", asked)
    assert reply.status == 200 and reply.headers["x-bridle-dropped"] == f"image_generation_call.{member}"
    assert PICTURE_CALL in sent["input"]
    with gateway_to(upstream, "openai_responses", strict=True) as served:
        reply, sent = send_body(served, upstream, "openai_responses", asked)
    assert (reply.status, sent) == (400, None) and member in reply.json["error"]["message"]


def test_another_form_of_the_answer_is_another_request(upstream):
    """A request that failed is continued only if it is sent again as it was."""
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": {**OBJECT, "required": ["a"]}}}
    with gateway_to(upstream, "openai_chat") as served:
        reply, _ = send_body(served, upstream, "openai_chat", ask_chat(response_format=shape))
        assert reply.status == 500, "the answer does not fit"
        reply, sent = send_body(served, upstream, "openai_chat", ask_chat())
    assert reply.status == 200 and "response_format" not in sent


HEADERS = {
    "anthropic-beta": "context-management-2025-06-27, effort-2025-11-24",
    "anthropic-user-profile-id": "uprof_1",
    "anthropic-workspace-id": "wrkspc_1",
}


@pytest.mark.parametrize("more", [{}, {"strict": True}], ids=["", "strict"])
def test_headers_that_ask_for_something_arrive_on_the_same_wire(more, upstream):
    """Claude Code asks for `context_management` and names its beta; without the header the provider refuses both."""
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    with gateway_to(upstream, "anthropic", **more) as served:
        body = ask_claude("hello", context_management=edits)
        reply, sent = send_body(served, upstream, "anthropic", body, HEADERS)
    assert reply.status == 200, reply.body
    assert "x-bridle-dropped" not in reply.headers
    assert sent["context_management"] == edits
    assert not set(HEADER_FIELDS) & set(sent)
    got = upstream.headers[-1]
    assert got["anthropic-beta"] == "context-management-2025-06-27,effort-2025-11-24"
    assert (got["anthropic-user-profile-id"], got["anthropic-workspace-id"]) == ("uprof_1", "wrkspc_1")


@pytest.mark.parametrize("provider", [each for each in UPSTREAM if each != "anthropic"])
@pytest.mark.parametrize("more", [{}, {"strict": True}], ids=["", "strict"])
def test_headers_of_another_wire_are_named_and_refuse_nothing(provider, more, upstream):
    """The features that betas switch on are fields, which have rows of their own."""
    with gateway_to(upstream, provider, **more) as served:
        reply, _ = send_body(served, upstream, "anthropic", ask_claude("hello"), HEADERS)
    assert reply.status == 200, reply.body
    named = reply.headers["x-bridle-dropped"]
    assert all(field in named for field in HEADER_FIELDS)
    assert not {*HEADER_FIELDS.values()} & set(upstream.headers[-1])


@pytest.mark.parametrize(
    ("headers", "body", "words"),
    [
        ({"anthropic-beta": "one two"}, {}, "anthropic-beta"),
        ({"anthropic-beta": ",".join(f"b{each}" for each in range(101))}, {}, "anthropic-beta"),
        ({"anthropic-workspace-id": "x" * 201}, {}, "anthropic-workspace-id"),
        ({"anthropic-beta": "a-1"}, {"betas": ["b-1"]}, "twice"),
    ],
)
def test_a_header_that_is_no_list_of_names_is_refused(headers, body, words, upstream):
    with gateway_to(upstream, "anthropic") as served:
        reply, sent = send_body(served, upstream, "anthropic", ask_claude("hello", **body), headers)
    assert (reply.status, sent) == (400, None)
    assert words in reply.json["error"]["message"]

"""Requests to Bedrock Converse, for tests."""

import json
import re
from itertools import zip_longest

from msgspec.structs import replace

from bridle.values.message import Media, Reasoning, Text, ToolResult
from bridle.values.model import Abilities, Endpoint, Model
from bridle.values.request import Breakpoint, Extra, Thinking, ToolChoice, ToolSpec
from tests.providers.kit.encode_kit import (
    FOREIGN,
    EncodeCases,
    Talk,
    answer,
    ask_everything,
    call,
    results,
    user,
)

ENDPOINT = Endpoint(name="bedrock", family="bedrock_converse")
TALK = Talk(Model(id="maker.model-v1:0", endpoint=ENDPOINT, abilities=Abilities(cache_marks=4)), "messages")
OWN = TALK.own
SIBLING = replace(OWN, model="other.model-v2:0")
LOOK = ToolSpec(name="look", description="Looks.")
SIGNED = Reasoning(text="hm", signature="sig")
REDACTED = Reasoning(signature="YmxvYg==", redacted=True)
UNSIGNED = Reasoning(text="aha")
ALL = (SIGNED, REDACTED, UNSIGNED)
AS_SENT = {
    "signed": {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
    "redacted": {"reasoningContent": {"redactedContent": "YmxvYg=="}},
    "plain": {"reasoningContent": {"reasoningText": {"text": "aha"}}},
    "bare": {"reasoningContent": {"reasoningText": {"text": "hm"}}},
}
ID, NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,64}"), re.compile(r"[a-zA-Z0-9_-]{1,64}")
DOCUMENT_NAME = re.compile(r"(?!.*\s\s)[a-zA-Z0-9\s()\[\]-]{1,200}")


def list_blocks(body, kind):
    return [block[kind] for turn in body["messages"] for block in turn["content"] if kind in block]


def find_offences(body):
    """The rules of the wire a body breaks, by a reading of its own."""
    turns = body["messages"]
    if turns and turns[0]["role"] != "user":
        yield "the user begins"
    asked, names, used, tools = [], [], [], False
    for turn, following in zip_longest(turns, turns[1:]):
        kinds = [next(iter(block)) for block in turn["content"]]
        if not kinds or (following and following["role"] == turn["role"]):
            yield "speakers alternate and say something"
        if turn["role"] == "assistant" and kinds[-1] == "reasoningContent":
            yield "a turn ends in reasoning"
        results = [block["toolResult"] for block in turn["content"] if "toolResult" in block]
        if sorted(result["toolUseId"] for result in results) != sorted(asked):
            yield f"{asked} answered by {results}"
        if kinds[: len(results)] != ["toolResult"] * len(results):
            yield "results come first"
        if any(not result["content"] for result in results):
            yield "a result says something"
        asked = [block["toolUse"]["toolUseId"] for block in turn["content"] if "toolUse" in block]
        used += asked
        tools = tools or bool(asked)
        names += [block["toolUse"]["name"] for block in turn["content"] if "toolUse" in block]
        if "document" in kinds and "text" not in kinds:
            yield "a document has words beside it"
    if asked:
        yield "the last calls are answered"
    if len(set(used)) != len(used) or not all(map(ID.fullmatch, used)) or not all(map(NAME.fullmatch, names)):
        yield f"ids and names are legal: {used} {names}"
    if tools and not body.get("toolConfig", {}).get("tools"):
        yield "tools are declared"
    titles = [block["document"]["name"] for block in list_inner(body) if "document" in block]
    if len(set(titles)) != len(titles) or not all(map(DOCUMENT_NAME.fullmatch, titles)):
        yield f"documents have names of their own: {titles}"
    if any(not block["text"].strip() for block in list_inner(body) if "text" in block):
        yield "no text is blank"


def list_inner(body):
    for turn in body["messages"]:
        for block in turn["content"]:
            yield block
            yield from block.get("toolResult", {}).get("content", ())


def keep(policy, origin, *names):
    return policy, origin, ALL, [*(AS_SENT[name] for name in names), {"text": "so"}]


ENCODE = EncodeCases(
    talk=TALK,
    full=ask_everything(TALK, extras=(Extra(name="serviceTier", json='{"type": "flex"}'),)),
    head={"system": [{"text": "Be brief."}], "messages": None},
    tail={
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "look",
                        "description": "Looks.",
                        "inputSchema": {"json": json.loads(LOOK.parameters)},
                    }
                }
            ],
            "toolChoice": {"any": {}},
        },
        "inferenceConfig": {"maxTokens": 90, "stopSequences": ["END"], "temperature": 0.5, "topP": 0.9},
        "additionalModelRequestFields": {"thinking": {"type": "adaptive", "display": "summarized"}},
        "outputConfig": {
            "effort": "low",
            "textFormat": {
                "type": "json_schema",
                "structure": {
                    "jsonSchema": {
                        "schema": '{"type": "object"}',
                        "name": "an answer",
                        "description": "An answer.",
                    }
                },
            },
        },
        "serviceTier": {"type": "flex"},
    },
    headers={},
    native='{"systemTool":  {"name": "grounding"}}',
    choices=[
        (ToolChoice(), None),
        (ToolChoice(mode="any", parallel=False), {"any": {}}),
        (ToolChoice(mode="tool", name="look"), {"tool": {"name": "look"}}),
    ],
    path="/model/maker.x-v1%3A0/converse",
    other_paths=["/model/x/invoke", "/model/x/count-tokens"],
    no_requests=[
        b'{"messages":{}}',
        b'{"messages":[{"role":"tool","content":[]}]}',
        b'{"messages":[{"role":"user","content":"x"}]}',
        b'{"messages":[{"role":"user","content":[1]}]}',
        b'{"messages":[],"system":"x"}',
        b'{"messages":[],"system":[1]}',
    ],
    read_choice=lambda body: body.get("toolConfig", {}).get("toolChoice"),
    extras=[
        Extra(name="messages", json="[]"),
        Extra(name="modelId", json='"m"'),
        Extra(name="inferenceConfig", json="[]"),
    ],
    read_calls=lambda body: [
        (block["toolUseId"], block["name"], block["input"]) for block in list_blocks(body, "toolUse")
    ],
    read_results=lambda body: [
        (block["toolUseId"], "".join(part["text"] for part in block["content"]))
        for block in list_blocks(body, "toolResult")
    ],
    ids=["call_1", "c2", "c3", "c4", "c5", "c6", "c7"],
    legal_name=NAME.pattern,
    reasoning=[
        keep("signed", OWN, "signed", "redacted"),
        keep("may_echo", OWN, "signed", "redacted", "plain"),
        keep("must_echo", OWN, "signed", "redacted", "plain"),
        keep("strip", OWN),
        keep("may_echo", SIBLING),
        keep("signed", SIBLING),
        keep("may_echo", replace(OWN, endpoint="proxy")),
        keep("must_echo", SIBLING, "bare", "plain"),
        keep("must_echo", FOREIGN, "bare", "plain"),
        keep("may_echo", FOREIGN),
    ],
    read_turn=lambda turns: turns[1]["content"],
    media=[
        (
            Media(kind="image", media_type="image/jpg", data="aGk="),
            {"image": {"format": "jpeg", "source": {"bytes": "aGk="}}},
        ),
        (
            Media(kind="image", url="s3://bucket/a.png", media_type="image/png"),
            {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/a.png"}}}},
        ),
        (Media(kind="image", url="https://example.com/a.png"), "https://example.com/a.png"),
        (Media(kind="image", media_type="image/tiff", data="aGk="), "left out"),
        (Media(kind="document", file_id="file_1", name="b"), "b left out"),
        (
            Media(kind="video", media_type="video/quicktime", data="aGk="),
            {"video": {"format": "mov", "source": {"bytes": "aGk="}}},
        ),
        (
            Media(kind="audio", media_type="audio/x-wav", data="aGk="),
            {"audio": {"format": "wav", "source": {"bytes": "aGk="}}},
        ),
    ],
    read_media=lambda turns: turns[0]["content"],
    outcomes=[
        (answer("c1"), "(no output)"),
        (answer("c1", "one"), "one"),
        (answer("c1", " ", outcome="denied"), "The call ended without a word: denied."),
    ],
    complain=find_offences,
)


def make_own_request():
    """A request that only this family makes, for the laws of codecs."""
    picture = Media(kind="image", media_type="image/png", data="aGk=")
    paper = Media(kind="document", media_type="text/markdown", data="aGk=", name="paper (1)")
    return TALK.ask(
        user("see", picture, paper, origin=OWN),
        TALK.assistant(SIGNED, REDACTED, "so", call("c2_0", "t1")),
        results(
            ToolResult(call_id="c2_0", parts=(picture, Text(text='{"a":1}', native='{"json":null}'))),
            origin=OWN,
        ),
        user(Text(text="safe", native='{"guardContent":{"text":{"qualifiers":["query"]}}}'), origin=OWN),
        system=(Text(text="s"), Text(text="t")),
        tools=(LOOK, ToolSpec(name="g", native='{"systemTool":{"name":"g"}}')),
        thinking=Thinking(mode="enabled", budget_tokens=7, effort="low"),
        breakpoints=(
            Breakpoint(position="tools"),
            Breakpoint(position="system", block=0),
            Breakpoint(position="system", ttl="1h"),
            Breakpoint(position="message", message=1),
        ),
        extras=(Extra(name="guardrailConfig", json='{"guardrailIdentifier":"g"}'),),
    )


OWN_REQUESTS = (make_own_request(),)

"""Requests to Gemini, for tests."""

import json

from msgspec.structs import replace

from bridle.values.message import Media, Reasoning
from bridle.values.model import Endpoint, Model
from bridle.values.request import Extra, ToolChoice, ToolSpec
from tests.providers.kit.encode_kit import FOREIGN, EncodeCases, Talk, answer, ask_everything, user

ENDPOINT = Endpoint(name="here", family="gemini", reasoning="signed")
MODEL = Model(id="gemini-x", endpoint=ENDPOINT)
TALK = Talk(MODEL, "contents")
CODEC, OWN = TALK.codec, TALK.own
COUSIN = replace(OWN, endpoint="there")
LENIENT = replace(MODEL, endpoint=replace(ENDPOINT, reasoning="may_echo"))
SIGNED = '{"thoughtSignature":"c2ln"}'
SKIP = "skip_thought_signature_validator"
LOST = {"error": "No result: this call was interrupted, or what came of it was lost."}


def result(call_id, text="fine", **more):
    return answer(call_id, text, **more)


def response(name="look", said="fine", **more):
    return {"functionResponse": {"name": name, "response": {"output": said}, **more}}


def in_turn(*messages, **fields):
    """What is written of these messages behind a first question."""
    return TALK.written(user("q"), *messages, **fields)[1:]


def list_parts(body, kind):
    return [part[kind] for turn in body["contents"] for part in turn["parts"] if kind in part]


def keep(policy, origin, *, is_echoed=True):
    signature = {"thoughtSignature": "cw=="} if origin is OWN else {}
    kept = [{"text": "hm", "thought": True, **signature}] if is_echoed else []
    return policy, origin, (Reasoning(text="hm", signature="cw=="),), [*kept, {"text": "so"}]


ENCODE = EncodeCases(
    talk=TALK,
    full=ask_everything(
        TALK,
        tools=(
            ToolSpec(name="look", description="Looks."),
            ToolSpec(name="web", native='{"googleSearch":{}}'),
        ),
        tool_choice=ToolChoice(mode="tool", name="look"),
        extras=(
            Extra(name="safetySettings", json="[]"),
            Extra(name="generationConfig", json='{"seed": 7}'),
            Extra(name="toolConfig", json='{"includeServerSideToolInvocations": true}'),
        ),
    ),
    head={
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "look",
                        "description": "Looks.",
                        "parametersJsonSchema": json.loads(ToolSpec(name="").parameters),
                    }
                ]
            },
            {"googleSearch": {}},
        ],
        "contents": None,
    },
    tail={
        "toolConfig": {
            "includeServerSideToolInvocations": True,
            "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]},
        },
        "generationConfig": {
            "seed": 7,
            "maxOutputTokens": 90,
            "temperature": 0.5,
            "topP": 0.9,
            "topK": 3,
            "stopSequences": ["END"],
            "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True},
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object"},
        },
        "safetySettings": [],
    },
    headers={},
    native='{"googleSearch":  {}}',
    choices=[
        (ToolChoice(), None),
        (ToolChoice(parallel=False), None),
        (ToolChoice(mode="any"), {"mode": "ANY"}),
        (ToolChoice(mode="none"), {"mode": "NONE"}),
        (ToolChoice(mode="tool", name="look"), {"mode": "ANY", "allowedFunctionNames": ["look"]}),
    ],
    path="/models/gemini-x:generateContent",
    other_paths=["/v1beta/models/gemini-x:countTokens", "/v1beta/models", "/v1beta/cachedContents"],
    no_requests=[
        b'{"contents":"x"}',
        b'{"contents":["x"]}',
        b'{"contents":[{"role":"assistant","parts":[]}]}',
        b'{"contents":[{"parts":"x"}]}',
        b'{"contents":[],"tools":"x"}',
        b'{"contents":[],"tools":[{"functionDeclarations":["x"]}]}',
        b'{"contents":[],"systemInstruction":7}',
        b'{"contents":[],"systemInstruction":{"parts":[{"inlineData":{"mimeType":"a/b","data":"AA"}}]}}',
    ],
    read_choice=lambda body: body.get("toolConfig", {}).get("functionCallingConfig"),
    extras=[Extra(name="contents", json="[]"), Extra(name="generationConfig", json="7")],
    read_calls=lambda body: [
        (part.get("id"), part["name"], part["args"]) for part in list_parts(body, "functionCall")
    ],
    read_results=lambda body: [
        (part.get("id"), next(iter(part["response"].values())))
        for part in list_parts(body, "functionResponse")
    ],
    ids=["call_1", "c2", None, "no way", "x" * 65, None, None],
    legal_name="[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}",
    reasoning=[
        keep("signed", OWN),
        keep("may_echo", OWN),
        keep("must_echo", OWN),
        keep("strip", OWN, is_echoed=False),
        keep("signed", COUSIN, is_echoed=False),
        keep("must_echo", COUSIN),
        keep("must_echo", FOREIGN, is_echoed=False),
    ],
    read_turn=lambda contents: contents[1]["parts"],
    media=[
        (
            Media(kind="audio", media_type="audio/mp3", data="AAAA"),
            {"inlineData": {"mimeType": "audio/mp3", "data": "AAAA"}},
        ),
        (
            Media(kind="document", data="AAAA"),
            {"inlineData": {"mimeType": "application/pdf", "data": "AAAA"}},
        ),
        (
            Media(kind="video", media_type="video/mp4", url="https://example.com/v"),
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.com/v"}},
        ),
        (Media(kind="image", url="gs://bucket/i"), {"fileData": {"fileUri": "gs://bucket/i"}}),
        (
            Media(kind="document", file_id="files/abc", media_type="application/pdf"),
            {"fileData": {"mimeType": "application/pdf", "fileUri": "files/abc"}},
        ),
    ],
    read_media=lambda contents: contents[0]["parts"],
    outcomes=[
        (answer("c1", "a", " ", "b"), "a\nb"),
        (answer("c1"), ""),
        (answer("c1", outcome="timeout"), "The call ended without a word: timeout."),
        (answer("c1", "no", outcome="denied"), "no"),
    ],
)

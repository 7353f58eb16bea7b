"""Requests by the vendors' own types: random conversations are judged, and planted faults are found.

Every request of the whole suite is judged as well (guard.py).  `make oracles` plays 2,500 conversations and checks that
`vendor_shapes.json` is what the packages say; here a few are played, from data alone.
"""

import asyncio
import copy
import json
import random
from collections import Counter
from typing import Any

import pytest

from tests.suite.campaign import FIRST_SEED, scale
from tests.wire.vendors import vendor_scenarios
from tests.wire.vendors.vendor_shapes import Maker, Shapes, load_shapes
from tests.wire.vendors.vendor_types import ADDITIONS, judge, root_of, type_violations

SCENARIOS = scale(50, least=60)
BATCHES = 6
FAMILIES = ("anthropic", "openai_responses", "openai_chat", "gemini", "bedrock_converse")
URLS = {
    "anthropic": "/v1/messages",
    "openai_responses": "/v1/responses",
    "openai_chat": "/v1/chat/completions",
    "gemini": "/models/gemini-3.8-flash:generateContent",
    "bedrock_converse": "/model/anthropic.claude-sonnet-5-5/converse",
}
GOOD: dict[str, Any] = {
    "anthropic": {
        "model": "claude-sonnet-5-5",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be short."}],
        "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "fine"}]},
        ],
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"},
    },
    "openai_responses": {
        "model": "gpt-6.1-sol",
        "input": [
            {"role": "user", "content": "Look."},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "fine"},
        ],
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}],
        "tool_choice": "auto",
    },
    "openai_chat": {
        "model": "gpt-5.4",
        "messages": [
            {"role": "user", "content": "Look."},
            {
                "role": "assistant",
                "tool_calls": [
                    {"type": "function", "id": "c1", "function": {"name": "look", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "fine"},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
        "tool_choice": "auto",
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "Look."}]},
            {
                "role": "model",
                "parts": [{"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "YWJj"}],
            },
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "look", "response": {"output": "fine"}}}],
            },
        ],
        "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": {"type": "object"}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "generationConfig": {"maxOutputTokens": 100},
    },
    "bedrock_converse": {
        "messages": [
            {"role": "user", "content": [{"text": "Look."}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}]},
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "t1", "content": [{"text": "fine"}], "status": "success"}}
                ],
            },
        ],
        "toolConfig": {
            "tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}]
        },
        "inferenceConfig": {"maxTokens": 100},
    },
}
ASKED, FOUND, EXPLAINED = Counter(), Counter(), Counter()
"""Over all batches: requests by wire, violations by kind, and those that are rows of `ADDITIONS`."""
FREE = ("input", "args", "response", "input_schema", "parameters", "parametersJsonSchema", "json")
"""Members with content of users and tools, which may have any form."""


async def run_batch(batch):
    return [
        sent
        for seed in range(FIRST_SEED + batch, FIRST_SEED + SCENARIOS, BATCHES)
        for sent in await vendor_scenarios.play(seed)
    ]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_conversations_are_valid_by_the_vendors_types(batch):
    found, asked = Counter(), Counter()
    for sent in asyncio.run(run_batch(batch)):
        asked[root_of(sent.url)] += 1
        for wrong in judge(sent.url, sent.body, sent.betas, EXPLAINED):
            found[(root_of(sent.url), wrong.kind, wrong.place, wrong.told, sent.seed)] += 1
    ASKED.update(asked)
    FOUND.update(kind for _, kind, *_ in found)
    if batch == BATCHES - 1:
        print(f"\nrequests {dict(ASKED)}\nviolations {dict(FOUND)}\nexplained {dict(EXPLAINED)}")
    assert not found
    assert sum(asked.values()) >= SCENARIOS / BATCHES


def list_object_paths(value, free=False, path=()):
    """The path of every object inside a body whose members are the vendor's."""
    if isinstance(value, dict) and not free:
        yield path
        for name, each in value.items():
            yield from list_object_paths(each, name in FREE and isinstance(each, dict), (*path, name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from list_object_paths(each, free, (*path, number))


def find_value(body, path):
    for step in path:
        body = body[step]
    return body


@pytest.mark.parametrize("family", FAMILIES)
def test_a_good_request_has_nothing_wrong(family):
    assert judge(URLS[family], json.dumps(GOOD[family]).encode()) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unknown_member_is_found_wherever_it_stands(family):
    paths = list(list_object_paths(GOOD[family]))
    assert len(paths) >= 5
    for path in paths:
        body = copy.deepcopy(GOOD[family])
        find_value(body, path)["planted_member"] = 1
        assert type_violations(root_of(URLS[family]), body), path


@pytest.mark.parametrize("family", FAMILIES)
def test_a_value_of_another_type_is_found_wherever_it_stands(family):
    for path in list_object_paths(GOOD[family]):
        for name in find_value(GOOD[family], path):
            if name not in FREE or name == LISTED[family]:
                body = copy.deepcopy(GOOD[family])
                find_value(body, path)[name] = [[7.5]]
                assert type_violations(root_of(URLS[family]), body), (*path, name)


REQUIRED: dict[str, Any] = {
    "anthropic": [("max_tokens",), ("messages",), ("model",), ("messages", 0, "role"), ("tools", 0, "input_schema"),
                  ("messages", 1, "content", 0, "id"), ("messages", 2, "content", 0, "tool_use_id")],
    "openai_responses": [("input", 1, "call_id"), ("input", 1, "arguments"), ("input", 2, "output"), ("tools", 0, "name")],
    "openai_chat": [("messages",), ("messages", 1, "tool_calls", 0, "id"), ("messages", 2, "tool_call_id"),
                    ("tools", 0, "function", "name")],
    "bedrock_converse": [("messages", 0, "role"), ("messages", 1, "content", 0, "toolUse", "toolUseId"),
                         ("messages", 2, "content", 0, "toolResult", "content"), ("toolConfig", "tools")],
}  # fmt: skip
"""The Gemini types require nothing."""


@pytest.mark.parametrize("family", REQUIRED)
def test_a_missing_member_is_found(family):
    for *path, name in REQUIRED[family]:
        body = copy.deepcopy(GOOD[family])
        del find_value(body, path)[name]
        assert type_violations(root_of(URLS[family]), body), (*path, name)


VALUES: dict[str, Any] = {
    "anthropic": [(("messages", 0, "role"), "model"), (("tool_choice", "type"), "required"), (("stream",), "yes")],
    "openai_responses": [(("tool_choice",), "any"), (("input", 1, "type"), "tool_use"), (("service_tier",), "gold")],
    "openai_chat": [(("tool_choice",), "any"), (("reasoning_effort",), "huge"), (("messages", 0, "role"), "model")],
    "gemini": [
        (("toolConfig", "functionCallingConfig", "mode"), "auto"),
        (("contents", 1, "parts", 0, "thoughtSignature"), "not base64!"),
        (("generationConfig", "mediaResolution"), "HIGH"),
    ],
    "bedrock_converse": [
        (("messages", 0, "role"), "model"), (("messages", 2, "content", 0, "toolResult", "status"), "failed"),
        (("messages", 0, "content", 0), {"text": "a", "image": {"format": "png", "source": {"bytes": "YWJj"}}}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("family", VALUES)
def test_a_value_that_is_none_of_the_literals_is_found(family):
    for (*path, name), value in VALUES[family]:
        body = copy.deepcopy(GOOD[family])
        find_value(body, path)[name] = value
        assert type_violations(root_of(URLS[family]), body), (*path, name)


LISTED: dict[str, Any] = {"anthropic": "messages", "openai_responses": "input", "openai_chat": "messages", "gemini": "contents",
          "bedrock_converse": "messages"}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_without_its_result_and_a_result_without_its_call_are_found(family):
    for gone in (1, 2):
        body = copy.deepcopy(GOOD[family])
        del body[LISTED[family]][gone]
        found = judge(URLS[family], json.dumps(body).encode())
        assert [wrong.kind for wrong in found][:1] == ["forbidden combination"], gone


COMBINED = [
    ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 100}}),
    ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 2_000}, "max_tokens": 2_000}),
    ("anthropic", {"tool_choice": {"type": "tool", "name": "ghost"}}),
    ("anthropic", {"messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]}),
    ("openai_responses", {"previous_response_id": "r", "conversation": "c"}),
    ("openai_responses", {"tool_choice": {"type": "function", "name": "ghost"}}),
    ("openai_chat", {"max_tokens": 1, "max_completion_tokens": 1}),
    ("openai_chat", {"tools": [], "tool_choice": "none"}),
    ("gemini", {"generationConfig": {"stopSequences": list("abcdef")}}),
    ("gemini", {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 1}}}),
    ("gemini", {"toolConfig": {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["look"]}}}),
    ("gemini", {"cachedContent": "cachedContents/a"}),
    ("bedrock_converse", {"toolConfig": None}),
    ("bedrock_converse", {"messages": [{"role": "user", "content": [{"text": " "}]}]}),
]


@pytest.mark.parametrize(("family", "change"), COMBINED)
def test_a_forbidden_combination_is_found(family, change):
    body = {name: value for name, value in {**GOOD[family], **change}.items() if value is not None}
    found = judge(URLS[family], json.dumps(body).encode())
    assert [wrong.kind for wrong in found][:1] == ["forbidden combination"]


def test_a_member_of_a_beta_is_found_where_no_beta_is_asked_for():
    body = {**GOOD["anthropic"], "thread": {"type": "create"}}
    assert type_violations("anthropic", body, betas="")
    assert not type_violations("anthropic", body, betas="message-threads-2026-08-12")


@pytest.mark.parametrize("row", ADDITIONS, ids=lambda row: f"{row.shape} {row.member}")
def test_an_addition_is_needed(row):
    """The published types do not contain it; a row that they contain now must be removed."""
    said = Shapes().shape(row.shape)
    known = said.get("req", {}).get(row.member) or said.get("opt", {}).get(row.member)
    if row.node is None:
        assert row.member in said["req"]
    else:
        assert known is None or row.node not in (known[1:] if known[0] == "|" else [known])


@pytest.mark.parametrize("root", sorted(load_shapes()["roots"]))
def test_both_readings_of_the_types_agree(root):
    """The compiled schema and the explaining check agree, on values drawn from the types and on damaged ones."""
    chance, shapes = random.Random(root), Shapes()
    maker = Maker(chance)
    for _ in range(20):
        value = maker.root(root)
        assert shapes.is_valid(root, value), shapes.violations(root, value)
        assert not shapes.violations(root, value)
        spoilt = {**value, "planted_member": 1}
        assert not shapes.is_valid(root, spoilt)
        assert shapes.violations(root, spoilt)

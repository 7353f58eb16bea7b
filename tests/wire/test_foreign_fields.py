"""The comparison behind `run.py --gateway`: a field is lost if the provider does not get it and the reply does not name it."""

import json

import pytest

from tests.serve.raw_http import send
from tests.suite.paths import load_program

run = load_program("bench/foreign/run.py")
served = load_program("bench/foreign/served.py")

TOOL = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
CALLED = [
    {"role": "user", "content": "!call look {}"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": ""}]},
]
BODY = {"model": "any", "max_tokens": 500, "messages": [{"role": "user", "content": "!say hi"}]}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    log = tmp_path_factory.mktemp("gateway") / "log.jsonl"
    with run.running_served("gateway", log) as url:
        yield url, log


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": {"type": "any"}},
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look"}},
        {"temperature": 0.5, "top_k": 5},
        {"inference_geo": "us", "metadata": {"user_id": "me"}},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        {"tools": [TOOL], "messages": CALLED},
    ],
    ids=["carried", "forced tools", "one forced tool", "sampling", "extras", "allowance", "empty result"],
)
def test_field_that_a_gateway_carries_or_names_is_not_lost(fields, streamed, gateway):
    url, log = gateway
    reply = send(f"{url}/v1/messages", {**BODY, **fields, "stream": streamed})
    assert reply.status == 200, reply.body
    assert json.loads(log.read_text().splitlines()[-1])["lost"] == []


@pytest.mark.parametrize(
    ("named", "lost"),
    [
        ("", ["toolchoice", "toolchoice.type", "topk"]),
        ("tool_choice", ["topk"]),
        ("tool choice 'any' became 'auto': a model cannot be forced", ["topk"]),
        ("a tool; choice of the model", ["toolchoice", "toolchoice.type", "topk"]),
        ("temperature, top_k left out", ["toolchoice", "toolchoice.type"]),
        ("the choice of a tool, top_k", ["toolchoice", "toolchoice.type"]),
    ],
)
def test_field_that_is_neither_sent_nor_named_is_lost(named, lost, tmp_path):
    log = tmp_path / "log.jsonl"
    asked = served.Exchange(
        "anthropic", {**BODY, "tools": [TOOL], "tool_choice": {"type": "any"}, "top_k": 5}, served.Log(log)
    )
    asked.add_sent({**BODY, "tools": [TOOL]})
    asked.add_named(named)
    assert [json.loads(line)["lost"] for line in log.read_text().splitlines()] == [lost]

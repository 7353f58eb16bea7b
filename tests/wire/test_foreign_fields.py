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


def test_what_a_run_loses_is_named_in_each_of_its_replies(gateway):
    """A result of a tool continues a run, which records an adjustment once."""
    url, log = gateway
    messages = [{"role": "user", "content": "!call look {}\n!then\n!say it"}]
    asked = {**BODY, "max_tokens": 5000, "thinking": {"type": "enabled", "budget_tokens": 2000}}
    for _ in range(2):
        reply = send(f"{url}/v1/messages", {**asked, "tools": [TOOL], "messages": messages})
        assert "thinking mode 'enabled' was left out" in reply.headers["x-bridle-dropped"]
        assert json.loads(log.read_text().splitlines()[-1])["lost"] == []
        results = [
            {"type": "tool_result", "tool_use_id": part["id"], "content": "seen"}
            for part in reply.json["content"]
            if part["type"] == "tool_use"
        ]
        messages += [
            {"role": "assistant", "content": reply.json["content"]},
            {"role": "user", "content": results},
        ]
    assert reply.json["content"][-1]["text"] == "it"


def compare(given, sent, tmp_path, family="openai_chat"):
    log = tmp_path / "log.jsonl"
    asked = served.Exchange(family, given, served.Log(log))
    asked.add_sent(sent)
    asked.add_named("")
    return json.loads(log.read_text())


def describe_tool(name, **more):
    return {"type": "function", "function": {"name": name, **more}}


@pytest.mark.parametrize(
    ("given", "sent", "lost", "changed"),
    [
        ({"seed": 1}, {"seed": 2}, [], ["seed=1"]),
        ({"seed": 1}, {}, ["seed"], []),
        ({"max_tokens": 5}, {"max_completion_tokens": 5}, [], []),
        ({"max_tokens": 5}, {"max_completion_tokens": 4}, [], ["maxtokens=5"]),
        (
            {"tools": [describe_tool("a", strict=True), describe_tool("b", strict=True)]},
            {"tools": [describe_tool("a", strict=True), describe_tool("b")]},
            [],
            ["tools[].function.strict=true"],
        ),
        (
            {"messages": [{"role": "user", "content": "one"}, {"role": "user", "content": "one"}]},
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}]}]},
            [],
            ['messages[].content="one"', 'messages[].role="user"'],
        ),
    ],
)
def test_values_and_their_number_are_compared(given, sent, lost, changed, tmp_path):
    found = compare(given, sent, tmp_path)
    assert (found["lost"], found["changed"]) == (lost, changed)


REPORT = {"column": "shape:chat:whole", "looked": ["Oslo"], "answer": {"city": "Rome", "sunny": True}}


@pytest.mark.parametrize(
    ("seen", "cell"),
    [
        ([], "no request was compared"),
        ([{"compared": "gemini", "lost": ["stream"], "changed": ['model="m"']}], "ok"),
        ([{"compared": "gemini", "lost": ["user", "store"], "changed": []}], "lost store, user"),
        ([{"compared": "gemini", "lost": ["a"], "changed": ["seed=1"]}], "lost a; changed seed=1"),
    ],
)
def test_a_cell_of_a_gateway_needs_a_comparison_without_losses(seen, cell):
    assert run.judge(REPORT, seen, {}, "gateway") == cell


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

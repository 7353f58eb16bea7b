"""The independent rules find what each family refuses, and nothing that it accepts."""

import pytest

from bridle.values.model import Abilities
from tests.sim.rules.family_rules import SENTINEL, Demands, Handed, violations

ABLE = Abilities(sampling=False, thinking=("adaptive",))
HEADERS = {"anthropic-version": "2026-10-21"}


def make_message(role, *content):
    return {"role": role, "content": list(content)}


def text(words="Hm."):
    return {"type": "text", "text": words}


def use(id_="t1", name="look"):
    return {"type": "tool_use", "id": id_, "name": name, "input": {}}


def tool_result(id_="t1"):
    return {"type": "tool_result", "tool_use_id": id_, "content": [text()]}


def thinking_block(signature="s1", words="w"):
    return {"type": "thinking", "thinking": words, "signature": signature}


def item(kind, **more):
    return {"type": kind, **more}


def fc(id_="t1", **more):
    return item("function_call", call_id=id_, name="look", arguments="{}", **more)


def out(id_="t1"):
    return item("function_call_output", call_id=id_, output="x")


def message_item(role="user", words="Hm.", **more):
    return item("message", role=role, content=words, **more)


def rs(blob="s1", id_="rs_1", words="w"):
    return item(
        "reasoning", id=id_, encrypted_content=blob, summary=[{"type": "summary_text", "text": words}]
    )


def line(role, content="Hm.", *calls, **more):
    tools = [
        {"id": id_, "type": "function", "function": {"name": "look", "arguments": "{}"}} for id_ in calls
    ]
    return {"role": role, "content": content, **({"tool_calls": tools} if calls else {}), **more}


def tool(id_="t1"):
    return {"role": "tool", "tool_call_id": id_, "content": "x"}


def parts(role, *given):
    return {"role": role, "parts": list(given)}


def gcall(signature=None, name="look"):
    return {
        "functionCall": {"name": name, "args": {}},
        **({"thoughtSignature": signature} if signature else {}),
    }


GRESULT = {"functionResponse": {"name": "look", "response": {"output": "x"}}}
BUSE = {"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}
BRESULT = {"toolResult": {"toolUseId": "t1", "content": [{"text": "x"}]}}
BTHOUGHT = {"reasoningContent": {"reasoningText": {"text": "w", "signature": "s1"}}}
ASK = make_message("user", text())
ALTERNATE = Demands(signed=False, alternates=True)
ECHO = Demands(signed=False, must_echo=True)
STRIP = Demands(signed=False, strip=True)
SIGNED = Demands()
HANDED = Handed(
    proofs={"s1": "w", "g1": {"name": "look", "args": {}}},
    item_ids={"rs_1", "fc_1", "msg_1"},
    led_to={"rs_1": "fc_1"},
)


def find_demands(family, content, demands=SIGNED):
    body = {
        "anthropic": {"model": "m", "max_tokens": 10, "messages": content},
        "openai_responses": {"input": content, "store": False},
        "openai_chat": {"messages": content},
        "gemini": {"contents": content},
        "bedrock_converse": {
            "messages": content,
            "toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {}}}}]},
        },
    }[family]
    return violations(family, body, headers=HEADERS, sent_before=HANDED, demands=demands, abilities=ABLE)


@pytest.mark.parametrize(
    ("family", "content", "demands"),
    [
        ("anthropic", [ASK, make_message("assistant", thinking_block(), text(), use()), make_message("user", tool_result(), text())], SIGNED),
        ("openai_responses", [message_item(), rs(), fc(id="fc_1"), out(), message_item("assistant", "So.")], SIGNED),
        ("openai_chat", [line("user"), line("assistant", None, "t1", "t2"), tool("t2"), tool("t1")], SIGNED),
        ("openai_chat", [line("user"), line("assistant", None, "t1", reasoning_content=" "), tool()], ECHO),
        ("openai_chat", [line("user"), line("assistant", None, "t1"), tool()], ALTERNATE),
        ("gemini", [parts("user", text()), parts("model", gcall("g1")), parts("user", GRESULT)], SIGNED),
        ("gemini", [parts("user", text()), parts("model", gcall(SENTINEL)), parts("user", GRESULT)], SIGNED),
        ("bedrock_converse", [make_message("user", {"text": "x"}), make_message("assistant", BTHOUGHT, BUSE), make_message("user", BRESULT)], SIGNED),
    ],
)  # fmt: skip
def test_what_is_legal_passes(family, content, demands):
    assert find_demands(family, content, demands) == []


@pytest.mark.parametrize(
    ("family", "content", "demands", "words"),
    [
        ("anthropic", [ASK, make_message("assistant", use()), ASK], SIGNED, "without results"),
        ("anthropic", [ASK, make_message("assistant", use())], SIGNED, "without results"),
        ("anthropic", [ASK, make_message("assistant", text()), make_message("user", tool_result())], SIGNED, "unexpected result"),
        ("anthropic", [ASK, make_message("assistant", use()), make_message("user", tool_result(), tool_result())], SIGNED, "multiple results"),
        ("anthropic", [ASK, make_message("assistant", use()), make_message("user", text(), tool_result())], SIGNED, "come first"),
        ("anthropic", [ASK, make_message("assistant", use("a.b")), make_message("user", tool_result("a.b"))], SIGNED, "letters"),
        ("anthropic", [ASK, *[make_message("assistant", use()), make_message("user", tool_result())] * 2], SIGNED, "unique"),
        ("anthropic", [make_message("user", text(" "))], SIGNED, "non-whitespace"),
        ("anthropic", [ASK, make_message("assistant", text())], SIGNED, "must end with a user"),
        ("anthropic", [ASK, make_message("assistant", thinking_block("s9"), text()), ASK], SIGNED, "never gave it"),
        ("anthropic", [ASK, make_message("assistant", thinking_block(words="v"), text()), ASK], SIGNED, "modified"),
        ("anthropic", [ASK, make_message("assistant", thinking_block(""), text()), ASK], SIGNED, "Field required"),
        ("anthropic", [ASK, make_message("assistant", text(), thinking_block()), ASK], SIGNED, "final block"),
        ("anthropic", [make_message("user", text("\ud83d"))], SIGNED, "half a character"),
        ("openai_responses", [message_item(), fc()], SIGNED, "No tool output"),
        ("openai_responses", [message_item(), out()], SIGNED, "No tool call"),
        ("openai_responses", [message_item(), fc(), out(), out()], SIGNED, "No tool call"),
        ("openai_responses", [message_item(), fc("x" * 65), out("x" * 65)], SIGNED, "too long"),
        ("openai_responses", [message_item(), rs()], SIGNED, "following item"),
        ("openai_responses", [message_item(), rs(), message_item("assistant", id="msg_1")], SIGNED, "not by its own"),
        ("openai_responses", [message_item(), fc(id="fc_1"), out()], SIGNED, "without its required 'reasoning'"),
        ("openai_responses", [message_item(), rs("s9"), fc(id="fc_1"), out()], SIGNED, "could not be verified"),
        ("openai_responses", [message_item(), fc(id="fc_9"), out()], SIGNED, "not found"),
        ("openai_responses", [message_item(id="msg_1"), message_item(id="msg_1")], SIGNED, "Duplicate item"),
        ("openai_responses", [message_item(words=" ")], SIGNED, "blank text"),
        ("openai_chat", [line("user"), line("assistant", None, "t1"), line("user")], SIGNED, "did not have"),
        ("openai_chat", [line("user"), tool()], SIGNED, "must be a response"),
        ("openai_chat", [line("user"), line("assistant", None, "x" * 41), tool("x" * 41)], SIGNED, "too long"),
        ("openai_chat", [line("user", " ")], SIGNED, "blank text"),
        ("openai_chat", [line("user"), line("assistant")], SIGNED, "ends with the model"),
        ("openai_chat", [line("user"), line("assistant", None, "t1"), tool()], ECHO, "must be passed back"),
        ("openai_chat", [line("user"), line("assistant", reasoning="w"), line("user")], STRIP, "not enabled"),
        ("openai_chat", [line("user"), line("assistant", reasoning="w"), line("user")], SIGNED, "not this endpoint"),
        ("openai_chat", [line("user"), line("user")], ALTERNATE, "alternate"),
        ("openai_chat", [line("user"), line("assistant", None, "t1"), tool(), line("user")], ALTERNATE, "alternate"),
        ("gemini", [parts("user", text()), parts("model", gcall()), parts("user", GRESULT)], SIGNED, "missing a thought"),
        ("gemini", [parts("user", text()), parts("model", gcall("s9")), parts("user", GRESULT)], SIGNED, "never gave it"),
        ("gemini", [parts("user", text()), parts("model", gcall("s1")), parts("user", GRESULT)], SIGNED, "something else"),
        ("gemini", [parts("user", text()), parts("model", gcall("g1"))], SIGNED, "ends with a user"),
        ("gemini", [parts("user", text()), parts("model", gcall("g1"), gcall()), parts("user", GRESULT)], SIGNED, "number of"),
        ("gemini", [parts("user", GRESULT)], SIGNED, "immediately after a function call"),
        ("gemini", [parts("model", gcall("g1")), parts("user", GRESULT)], SIGNED, "after a user turn"),
        ("bedrock_converse", [make_message("user", {"text": "x"}), make_message("user", {"text": "y"})], SIGNED, "alternate"),
        ("bedrock_converse", [make_message("user", {"text": "x"}), make_message("assistant", BUSE), make_message("user", {"text": "y"})], SIGNED, "without results"),
        ("bedrock_converse", [make_message("user", BRESULT)], SIGNED, "unexpected result"),
        ("bedrock_converse", [make_message("user", {"text": " "})], SIGNED, "blank text"),
    ],
)  # fmt: skip
def test_what_is_refused_is_found(family, content, demands, words):
    assert words in "\n".join(find_demands(family, content, demands))

"""The independent rules find what each family refuses, and nothing that it accepts."""

import pytest

from bridle.values.model import Abilities
from tests.sim.rules.family_rules import SENTINEL, Demands, Handed, violations

ABLE = Abilities(sampling=False, thinking=("adaptive",))
HEADERS = {"anthropic-version": "2026-10-21"}


def said(role, *content):
    return {"role": role, "content": list(content)}


def text(words="Hm."):
    return {"type": "text", "text": words}


def use(id_="t1", name="look"):
    return {"type": "tool_use", "id": id_, "name": name, "input": {}}


def came(id_="t1"):
    return {"type": "tool_result", "tool_use_id": id_, "content": [text()]}


def thought(signature="s1", words="w"):
    return {"type": "thinking", "thinking": words, "signature": signature}


def item(kind, **more):
    return {"type": kind, **more}


def fc(id_="t1", **more):
    return item("function_call", call_id=id_, name="look", arguments="{}", **more)


def out(id_="t1"):
    return item("function_call_output", call_id=id_, output="x")


def told(role="user", words="Hm.", **more):
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
ASK = said("user", text())
ALTERNATE = Demands(signed=False, alternates=True)
ECHO = Demands(signed=False, must_echo=True)
STRIP = Demands(signed=False, strip=True)
SIGNED = Demands()
HANDED = Handed(
    proofs={"s1": "w", "g1": {"name": "look", "args": {}}},
    item_ids={"rs_1", "fc_1", "msg_1"},
    led_to={"rs_1": "fc_1"},
)


def found(family, content, demands=SIGNED):
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
        ("anthropic", [ASK, said("assistant", thought(), text(), use()), said("user", came(), text())], SIGNED),
        ("openai_responses", [told(), rs(), fc(id="fc_1"), out(), told("assistant", "So.")], SIGNED),
        ("openai_chat", [line("user"), line("assistant", None, "t1", "t2"), tool("t2"), tool("t1")], SIGNED),
        ("openai_chat", [line("user"), line("assistant", None, "t1", reasoning_content=" "), tool()], ECHO),
        ("openai_chat", [line("user"), line("assistant", None, "t1"), tool()], ALTERNATE),
        ("gemini", [parts("user", text()), parts("model", gcall("g1")), parts("user", GRESULT)], SIGNED),
        ("gemini", [parts("user", text()), parts("model", gcall(SENTINEL)), parts("user", GRESULT)], SIGNED),
        ("bedrock_converse", [said("user", {"text": "x"}), said("assistant", BTHOUGHT, BUSE), said("user", BRESULT)], SIGNED),
    ],
)  # fmt: skip
def test_what_is_legal_passes(family, content, demands):
    assert found(family, content, demands) == []


@pytest.mark.parametrize(
    ("family", "content", "demands", "words"),
    [
        ("anthropic", [ASK, said("assistant", use()), ASK], SIGNED, "without results"),
        ("anthropic", [ASK, said("assistant", use())], SIGNED, "without results"),
        ("anthropic", [ASK, said("assistant", text()), said("user", came())], SIGNED, "unexpected result"),
        ("anthropic", [ASK, said("assistant", use()), said("user", came(), came())], SIGNED, "multiple results"),
        ("anthropic", [ASK, said("assistant", use()), said("user", text(), came())], SIGNED, "come first"),
        ("anthropic", [ASK, said("assistant", use("a.b")), said("user", came("a.b"))], SIGNED, "letters"),
        ("anthropic", [ASK, *[said("assistant", use()), said("user", came())] * 2], SIGNED, "unique"),
        ("anthropic", [said("user", text(" "))], SIGNED, "non-whitespace"),
        ("anthropic", [ASK, said("assistant", text())], SIGNED, "must end with a user"),
        ("anthropic", [ASK, said("assistant", thought("s9"), text()), ASK], SIGNED, "never gave it"),
        ("anthropic", [ASK, said("assistant", thought(words="v"), text()), ASK], SIGNED, "modified"),
        ("anthropic", [ASK, said("assistant", thought(""), text()), ASK], SIGNED, "Field required"),
        ("anthropic", [ASK, said("assistant", text(), thought()), ASK], SIGNED, "final block"),
        ("anthropic", [said("user", text("\ud83d"))], SIGNED, "half a character"),
        ("openai_responses", [told(), fc()], SIGNED, "No tool output"),
        ("openai_responses", [told(), out()], SIGNED, "No tool call"),
        ("openai_responses", [told(), fc(), out(), out()], SIGNED, "No tool call"),
        ("openai_responses", [told(), fc("x" * 65), out("x" * 65)], SIGNED, "too long"),
        ("openai_responses", [told(), rs()], SIGNED, "following item"),
        ("openai_responses", [told(), rs(), told("assistant", id="msg_1")], SIGNED, "not by its own"),
        ("openai_responses", [told(), fc(id="fc_1"), out()], SIGNED, "without its required 'reasoning'"),
        ("openai_responses", [told(), rs("s9"), fc(id="fc_1"), out()], SIGNED, "could not be verified"),
        ("openai_responses", [told(), fc(id="fc_9"), out()], SIGNED, "not found"),
        ("openai_responses", [told(id="msg_1"), told(id="msg_1")], SIGNED, "Duplicate item"),
        ("openai_responses", [told(words=" ")], SIGNED, "blank text"),
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
        ("bedrock_converse", [said("user", {"text": "x"}), said("user", {"text": "y"})], SIGNED, "alternate"),
        ("bedrock_converse", [said("user", {"text": "x"}), said("assistant", BUSE), said("user", {"text": "y"})], SIGNED, "without results"),
        ("bedrock_converse", [said("user", BRESULT)], SIGNED, "unexpected result"),
        ("bedrock_converse", [said("user", {"text": " "})], SIGNED, "blank text"),
    ],
)  # fmt: skip
def test_what_is_refused_is_found(family, content, demands, words):
    assert words in "\n".join(found(family, content, demands))

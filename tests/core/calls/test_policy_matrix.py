"""A rule that asks or denies applies however a call is spelled, nested or left to its defaults."""

import asyncio
import itertools
import json
import unicodedata

import pytest

from bridle import Agent, tool
from bridle.core.calls.pending import PendingCall
from bridle.core.calls.permission import decide_permission
from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.core.state import State
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import RawTool
from bridle.values.calls import PermissionRule, Policy
from bridle.values.errors import MisuseError
from bridle.values.message import ToolCall
from bridle.values.request import ToolSpec
from bridle.values.settings import Settings

TEXT, ANY = {"type": "string"}, {}


def respell_word(word):
    """The same word for a reader, written in other characters."""
    wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in word)
    middle = len(word) // 2
    hidden = [word[:middle] + c + word[middle:] for c in "\u200b\u00ad\u2060\ufeff\u202e\ufe0f\U000e0041\x07"]
    forms = [unicodedata.normalize(form, word) for form in ("NFC", "NFD", "NFKC", "NFKD")]
    found = [word, word.upper(), word.title(), word.swapcase(), wide, wide.upper(), f" {word}\t\n"]
    return [*dict.fromkeys([*found, *hidden, *forms])]


KINDS = [
    ("text", TEXT, "casino", respell_word("casino"), "shop"),
    ("accents", TEXT, "Grüßcafé*", respell_word("grüßcafé nord"), "office"),
    ("brackets", TEXT, "[admin]", respell_word("[admin]"), "a"),
    (
        "path",
        TEXT,
        "/etc/*",
        [
            *respell_word("/etc/passwd"),
            "//etc//passwd",
            "/tmp/../etc/passwd",
            "/./etc/passwd",
            "\\etc\\passwd",
        ],
        "/tmp/x",
    ),
    ("lines", TEXT, "rm -rf*", [*respell_word("rm -rf /"), "rm \t -rf /\nls"], "ls"),
    (
        "amount",
        ANY,
        "> 100",
        [101, 500.5, 1e300, 10**30, "500", "\uff15\uff10\uff10", " 500 ", "5e2", "inf", "nan"],
        5,
    ),
    ("equal", ANY, "= 3", [3, 3.0, "3", "3.0", "\u0663"], 4),
    ("number as text", ANY, "17", [17, 17.0, "17", "\uff11\uff17"], 18),
    ("truth", {"type": "boolean"}, "true", [True], False),
    ("null", ANY, "null", [None, "null"], "set"),
    ("anything", ANY, "*", [{"a": 1}, {}, [], [{}], "x", 0, False, [[{"b": None}]]], None),
    ("inside", ANY, "secret", [{"a": {"b": "secret"}}, [["Secret"]], [{"x": [{"y": "SECRET"}]}]], {"a": "b"}),
    ("amount inside", ANY, ">= 100", [{"a": {"b": 100}}, [[1, "200"]], {"x": [{"y": 1e9}]}], [{"a": 1}]),
]
NAMES = ["to", "pay.to", "customer.account.id", "Größe", "a[0]", "x*"]


def obj(name, schema, **more):
    return {"type": "object", "properties": {name: schema}, **more}


# nesting: the schema around a field, the arguments around its object, the path to it
NESTINGS = {
    "top": (lambda field: field, lambda held: held, ""),
    "object": (lambda field: obj("deep", field), lambda held: {"deep": held}, "deep."),
    "dotted object": (lambda field: obj("a.b", field), lambda held: {"a.b": held}, "a.b."),
    "two objects": (
        lambda field: obj("one", obj("two", field)),
        lambda held: {"one": {"two": held}},
        "one.two.",
    ),
    "list": (
        lambda field: obj("many", {"type": "array", "items": field}),
        lambda held: {"many": [held]},
        "many.",
    ),
    "lists": (
        lambda field: obj("many", {"type": "array", "items": {"type": "array", "items": field}}),
        lambda held: {"many": [[], [held]]},
        "many.",
    ),
    "list in object": (
        lambda field: obj("o", obj("l", {"type": "array", "prefixItems": [field], "items": field})),
        lambda held: {"o": {"l": [held]}},
        "o.l.",
    ),
    "open": (
        lambda field: obj("bag", {"type": "object", "additionalProperties": field}),
        lambda held: {"bag": {"Any.Key": held}},
        "bag.any.key.",
    ),
    "union": (
        lambda field: obj("u", {"anyOf": [{"type": "null"}, {"type": "string"}, field]}),
        lambda held: {"u": held},
        "u.",
    ),
    "all of": (lambda field: obj("u", {"allOf": [field]}), lambda held: {"u": held}, "u."),
}
SUPPLIES = ("given", "field default", "reference", "reference default", "whole default", "empty default")
STEP = 7
EXTRAS = ("closed", "open", "extra before", "extra after")


def attempt(kind, value, name, nesting, supply, extra):
    """A schema and arguments by which the tool gets `value`, and the path of it."""
    _, schema, _, _, harmless = kind
    wrap, around, prefix = NESTINGS[nesting]
    defs = {}
    field = dict(schema)
    if supply == "field default":
        field["default"] = value
    elif supply == "reference":
        defs["F"], field = field, {"$ref": "#/$defs/F"}
    elif supply == "reference default":
        defs["F"], field = {**field, "default": value}, {"$ref": "#/$defs/F"}
    elif supply == "empty default":
        field["default"] = value
    holder = obj(name, field, additionalProperties=extra != "closed")
    held = {name: value} if supply in ("given", "reference") else {}
    if extra == "extra before":
        held = {f"{name}x": harmless, **held}
    elif extra == "extra after":
        held = {**held, f"{name}x": harmless}
    if supply in ("whole default", "empty default"):
        # The object around it is left out altogether, and its own default stands for it.
        inner = {**holder, "default": {name: value} if supply == "whole default" else {}}
        holder, held, prefix = obj("around", inner), {}, f"{prefix}around."
    whole = {**wrap(holder), "$defs": defs}
    return whole, around(held), f"{prefix}{name}"


def attempts():
    for kind, name, nesting, supply, extra in itertools.product(KINDS, NAMES, NESTINGS, SUPPLIES, EXTRAS):
        for value in kind[3]:
            yield kind, value, *attempt(kind, value, name, nesting, supply, extra)


def decide(schema, arguments, path, pattern, decision):
    policy = Policy(rules=(PermissionRule(decision=decision, name="guard", arguments={path: pattern}),))
    spec = ToolSpec(name="act", parameters=json.dumps(schema))
    text = json.dumps(arguments)
    if isinstance(check_arguments(spec, text), ArgumentProblem):
        return None
    item = PendingCall(call=ToolCall(id="c1_0", name="act", arguments=text))
    return decide_permission(State(settings=Settings(policy=policy)), item, spec).permission


@pytest.mark.slow
def test_no_generated_call_gets_past_a_rule_that_asks_or_denies():
    tried, bypassed = 0, []
    # A prime step, so that every pair of dimensions is met; the whole matrix has 161,280 cells.
    for number, (kind, value, schema, arguments, path) in enumerate(
        itertools.islice(attempts(), 0, None, STEP)
    ):
        decision = "deny" if number % 2 else "ask"
        found = decide(schema, arguments, path, kind[2], decision)
        if found is not None:
            tried += 1
            if found != decision:
                bypassed.append((kind[0], value, arguments, path, schema))
    assert bypassed[:5] == []
    assert tried >= 10_000, tried


@pytest.mark.parametrize("kind", KINDS, ids=[kind[0] for kind in KINDS])
def test_what_a_rule_does_not_mean_runs(kind):
    for nesting, supply in itertools.product(NESTINGS, SUPPLIES):
        schema, arguments, path = attempt(kind, kind[4], "to", nesting, supply, "closed")
        assert decide(schema, arguments, path, kind[2], "deny") == "allow", (nesting, supply)


@pytest.mark.parametrize("decision", ["deny", "ask"])
def test_a_sample_of_them_against_an_agent(decision):
    sample = list(itertools.islice(attempts(), 7, None, 4001))
    assert len(sample) >= 10
    ran = []
    for kind, _, schema, arguments, path in sample:
        act = RawTool("act", "Act.", schema, lambda given: ran.append(given) or "done", effect="write")
        rule = PermissionRule(decision=decision, arguments={path: kind[2]})
        agent = Agent(
            scripted(call_reply(("act", arguments)), "ok"), tools=[act], policy=Policy(rules=(rule,))
        )
        stop = agent.run_sync("go").stop
        assert (stop, ran) == ("waiting" if decision == "ask" else "done", []), (kind[0], arguments, path)


def test_a_list_of_objects_and_a_nested_default_do_not_slip_past():
    ran = []
    order = {
        "type": "object",
        "properties": {"to": TEXT, "limit": {"$ref": "#/$defs/Limit"}},
        "required": ["to"],
    }
    schema = {
        "type": "object",
        "properties": {"orders": {"type": "array", "items": order}},
        "$defs": {"Limit": {"type": "integer", "default": 500}},
    }
    act = RawTool("act", "Act.", schema, lambda given: ran.append(given) or "done")
    for path, pattern in (("orders.to", "casino"), ("orders.limit", "> 100")):
        rules = (PermissionRule(decision="deny", arguments={path: pattern}),)
        script = scripted(
            call_reply(("act", {"orders": [{"to": "shop", "limit": 1}, {"to": "casino"}]})), "ok"
        )
        Agent(script, tools=[act], policy=Policy(rules=rules)).run_sync("go")
    assert ran == []


def test_a_second_name_of_a_field_is_refused():
    pydantic = pytest.importorskip("pydantic")

    class Payment(pydantic.BaseModel):  # type: ignore[name-defined]
        model_config = pydantic.ConfigDict(populate_by_name=True, extra="allow")
        amount: int = pydantic.Field(5, alias="sum")
        to: str = pydantic.Field("shop", validation_alias=pydantic.AliasChoices("to", "target"))

    Payment.model_rebuild()
    ran = []

    def pay(payment: Payment) -> str:
        """Pay."""
        ran.append(payment)
        return "paid"

    pay.__annotations__["payment"] = Payment
    rules = (
        PermissionRule(decision="deny", arguments={"payment.sum": "> 100"}),
        PermissionRule(decision="deny", arguments={"payment.to": "casino"}),
    )
    for given in ({"amount": 500}, {"target": "casino"}, {"sum": 500}, {"to": "CASINO"}):
        script = scripted(call_reply(("pay", {"payment": given})), "ok")
        result = Agent(script, tools=[tool(pay)], policy=Policy(rules=rules)).run_sync("go")
        assert (result.stop, ran) == ("done", []), given
    script = scripted(call_reply(("pay", {"payment": {"sum": 5, "note": "extra"}})), "ok")
    Agent(script, tools=[tool(pay)], policy=Policy(rules=rules)).run_sync("go")
    assert len(ran) == 1


@pytest.mark.parametrize(
    ("decision", "arguments", "why"),
    [
        ("deny", {"amuont": "> 5"}, "has no argument 'amuont' (it has: amount, to, orders, flag)"),
        ("deny", {"orders.amount": "> 5"}, "has no argument 'orders.amount'"),
        ("ask", {"to": "casino"}, "no value that pay takes for 'to' fits 'casino'"),
        ("deny", {"amount": "lots"}, "no value that pay takes for 'amount' fits 'lots'"),
        ("deny", {"flag": "> 1"}, "no value that pay takes for 'flag' fits '> 1'"),
        ("allow", {"orders.id": "7"}, "has no argument 'orders.id'"),
        ("allow", {"orders": "*"}, "no value that pay takes for 'orders' fits '*'"),
        ("deny", {"to": "SHOP"}, ""),
        ("deny", {"orders.id": "7"}, ""),
        ("deny", {"amount": "5*"}, ""),
        ("deny", {"flag": "True"}, ""),
    ],
)
def test_a_rule_that_can_never_match_is_an_error_when_the_agent_is_built(decision, arguments, why):
    schema = {
        "type": "object",
        "properties": {
            "amount": {"type": "integer"},
            "to": {"enum": ["shop", "bank"]},
            "orders": {"type": "array", "items": obj("id", {"type": "string"})},
            "flag": {"type": "boolean"},
        },
    }
    act = RawTool("pay", "Pay.", schema, lambda given: "done")
    policy = Policy(rules=(PermissionRule(decision=decision, name="guard", arguments=arguments),))
    if not why:
        Agent(scripted("x"), tools=[act], policy=policy)
        return
    with pytest.raises(MisuseError) as caught:
        Agent(scripted("x"), tools=[act], policy=policy)
    assert "'guard' can never match" in str(caught.value)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_rule_for_a_tool_that_the_agent_does_not_have_is_left_alone():
    rule = PermissionRule(decision="deny", tools=("wipe",), arguments={"disk": "*"})
    agent = Agent(scripted("hello"), policy=Policy(rules=(rule,)))
    assert asyncio.run(agent.run("hi")).text == "hello"

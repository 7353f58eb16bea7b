"""Hosted tools in whole runs: offered, refused, switched between providers, approved, priced and kept within budgets."""

import asyncio
import json
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, Limits, Media, PermissionRule, Policy, SharedBudget, Text, hosted, tool
from bridle.core.budget.ledger import list_entries
from bridle.errors import BadTool
from bridle.ports.codec import HttpReply
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.model_connection import ModelConnection
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values.events import ModelReplied, RequestAdjusted
from bridle.values.message import Opaque
from bridle.values.usage import HostedRate, Price, Rates

CLAUDE, GPT, GEMINI = "anthropic/claude-sonnet-5-5", "openai/gpt-6.1-sol", "gemini/gemini-3.8-flash"
ROUTER, BEDROCK = "openrouter/meta/llama", "bedrock/global.anthropic.claude-sonnet-5-5"
GROQ, OLDER_GEMINI = "groq/openai/gpt-oss-120b", "gemini/gemini-2.5-flash"
WIRES = (CLAUDE, GPT, GEMINI, ROUTER, GROQ, BEDROCK)
TOKEN = "tok-6f1f7c0b9d"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class World:
    """Simulated providers that record what they were sent, and one store."""

    def __init__(self):
        self.sent, self.answers, self.store = [], [], MemoryStore()
        self.clock = FakeClock(1_794_787_200.0)
        self.simulator = Simulator(clock=self.clock)

    async def answer(self, outgoing):
        timeline = await self.simulator.answer(outgoing)
        self.sent.append((timeline.status, outgoing))
        return timeline

    async def fail(self, outgoing):
        await self.simulator.answer(outgoing)  # the request is judged, and its answer is lost
        self.sent.append((401, outgoing))
        body = b'{"error":{"message":"no key","type":"invalid_request_error","code":"invalid_api_key"}}'
        return HttpReply(status=401, headers=(("content-type", "application/json"),), frames=(body,))

    def connect(self, wire, *, fails=False, price=None):
        model = find_model(f"sim:{wire}", environ={})
        model = replace(model, price=price or model.price)
        codec = load_codec(model.endpoint.family)
        return ModelConnection(
            model=model, codec=codec, transport=InProcessTransport(self.fail if fails else self.answer)
        )

    def agent(self, *wires, **options):
        models = [wire if isinstance(wire, ModelConnection) else self.connect(wire) for wire in wires]
        return Agent(models, store=self.store, clock=self.clock, **options)

    def events(self, *kinds):
        records = asyncio.run(self.store.read("s"))
        return [record.event for record in records if isinstance(record.event, kinds)]

    @property
    def bodies(self):
        return [json.loads(outgoing.body) for _, outgoing in self.sent]

    @property
    def statuses(self):
        return {status for status, _ in self.sent}

    def hosted_items(self):
        replies = self.events(ModelReplied)
        return [part for event in replies for part in event.reply.parts if isinstance(part, Opaque)]


def tools_for(wire):
    model = find_model(f"sim:{wire}", environ={})
    known = dict(model.abilities.hosted)
    return [made() for name, made in (("web_search", hosted.web_search), ("code_execution", hosted.code_execution))
            if name in known]  # fmt: skip


SCRIPT = "!hosted web_search ducks\n!hosted code_execution 1+1\n!say Found."


@pytest.mark.parametrize(("first", "second"), list(permutations(WIRES, 2)))
def test_items_go_back_unchanged_and_other_families_get_their_text(first, second):
    world = World()
    agent = world.agent(first, tools=tools_for(first))
    assert agent.run_sync(SCRIPT, session="s").text == "Found."
    items = world.hosted_items()
    other = agent.run_sync(SCRIPT, session="s", model=world.connect(second), tools=tools_for(second))
    assert other.stop == "done", other.reason
    assert agent.run_sync("!say Back.", session="s").text == "Back."
    assert world.statuses == {200}
    there, back = json.dumps(world.bodies[1], ensure_ascii=False), world.sent[2][1].body.decode()
    for item in items:
        if item.kind != "candidate.fields":
            kept = json.loads(item.native)
            assert all(json.dumps(kept[name], separators=(",", ":")) in back for name in kept), item
        assert not item.text or json.dumps(item.text, ensure_ascii=False)[1:-1] in there, item


@pytest.mark.parametrize("wire", [CLAUDE, GPT, GEMINI, ROUTER, GROQ])
@pytest.mark.parametrize("stream", [False, True])
def test_streamed_and_whole_replies_are_the_same(wire, stream):
    logs = []
    for streamed in (stream, not stream):
        world = World()
        agent = world.agent(wire, tools=tools_for(wire))
        if streamed:

            async def watch(agent=agent):
                return [each async for each in agent.stream(SCRIPT, session="s")]

            asyncio.run(watch())
        else:
            agent.run_sync(SCRIPT, session="s")
        (event,) = world.events(ModelReplied)
        items = [part for part in event.reply.parts if isinstance(part, Opaque)]
        logs.append((items, event.reply.text, event.reply.usage, event.usd))
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("wire", "usd"),
    [
        (CLAUDE, Decimal("0.01")),
        (GPT, Decimal("0.01")),
        (GEMINI, Decimal("0.014")),
        (OLDER_GEMINI, Decimal("0.035") / 3),
    ],
)
def test_the_cost_is_what_the_provider_bills(wire, usd):
    world = World()
    agent = world.agent(wire, tools=[hosted.web_search(max_uses=3)])
    result = agent.run_sync(
        "!hosted web_search a\n!hosted web_search b\n!hosted web_search c\n!say Done.", session="s"
    )
    price = agent.settings.model.price
    tokens = price.rates(result.usage.prompt, world.clock.now()).cost(result.usage)
    assert result.usage.searches == 3
    assert result.cost == pytest.approx(float(tokens + 3 * usd), abs=1e-12)
    (entry,) = list_entries("s", asyncio.run(world.store.read("s")))
    assert (entry.usage.searches, float(entry.usd)) == (3, result.cost)  # type: ignore[arg-type]


TOKENS = Rates(
    input=Decimal(1), output=Decimal(2), cache_read=Decimal(1), cache_write=Decimal(1), cache_write_1h=None
)
SEARCH = HostedRate(count="searches", usd=Decimal("0.005"))
PAGE = HostedRate(count="pages", usd=Decimal("0.001"))


@pytest.mark.parametrize(
    ("wire", "prices", "usd"),
    [
        (GROQ, (SEARCH, PAGE), Decimal("0.012")),
        (GROQ, (SEARCH,), None),  # each search opened a page
        (ROUTER, (SEARCH,), Decimal("0.010")),
        (ROUTER, (), None),
    ],
)
def test_open_servers_charge_uses_by_the_users_table_and_otherwise_the_cost_is_unknown(wire, prices, usd):
    world = World()
    connection = world.connect(wire, price=Price(tiers=(TOKENS,), hosted=prices))
    agent = world.agent(connection, tools=[hosted.web_search()])
    result = agent.run_sync("!hosted web_search a\n!hosted web_search b\n!say Done.", session="s")
    assert (result.usage.searches, result.usage.pages) == (2, 2 if wire == GROQ else 0)
    assert result.cost == (None if usd is None else pytest.approx(float(TOKENS.cost(result.usage) + usd)))
    (entry,) = list_entries("s", asyncio.run(world.store.read("s")))
    assert (entry.usage.searches, entry.usage.pages) == (result.usage.searches, result.usage.pages)
    assert (entry.usd is None) == (usd is None)


def test_code_at_groq_is_a_container_of_unknown_price():
    world = World()
    connection = world.connect(GROQ, price=Price(tiers=(TOKENS,), hosted=(SEARCH, PAGE)))
    agent = world.agent(connection, tools=[hosted.code_execution()])
    result = agent.run_sync("!hosted code_execution 1\n!hosted code_execution 2\n!say Done.", session="s")
    assert (result.usage.containers, result.cost) == (1, None)


def test_a_container_is_charged_once_while_it_is_used():
    world = World()
    agent = world.agent(GPT, tools=[hosted.code_execution()])
    counts = [
        agent.run_sync(
            "!hosted code_execution 1\n!hosted code_execution 2\n!say Done.", session="s"
        ).usage.containers
        for _ in range(3)
    ]
    assert counts == [1, 0, 0]


def test_an_unknown_price_stays_unknown():
    world = World()
    agent = world.agent(CLAUDE, tools=[hosted.code_execution()])
    result = agent.run_sync("!hosted code_execution 1\n!say Done.", session="s")
    assert (result.usage.containers, result.cost) == (1, None)
    limited = agent.run_sync("!say More.", session="t", budget=Budget(usd=5))
    assert limited.stop == "budget"
    assert (
        "a price among the hosted tools code_execution of sim:claude-sonnet-5-5 is unknown" in limited.reason
    )
    assert len(world.sent) == 1


@pytest.mark.parametrize("wire", [CLAUDE, GPT, OLDER_GEMINI])
def test_a_budget_holds_however_often_the_model_searches(wire):
    world, pool = World(), SharedBudget(usd=0.20)
    agent = world.agent(wire, tools=[hosted.web_search(max_uses=3)], pool=pool, max_tokens=2_000)
    asked = "\n".join(f"!hosted web_search {number}" for number in range(20)) + "\n!say Done."
    results = [agent.run_sync(asked) for _ in range(9)]
    assert {result.stop for result in results} == {"done", "budget"}
    most = 20 if wire == OLDER_GEMINI else 3  # a reply is charged once there, and nothing limits its searches
    assert {result.usage.searches for result in results} == {0, most}
    assert sum(result.cost for result in results) <= 0.20
    assert pool.excess.usd == 0


def test_the_worst_case_includes_every_use():
    world = World()
    for uses, stop in ((4, "done"), (6, "budget")):
        agent = world.agent(GPT, tools=[hosted.web_search(max_uses=uses)], max_tokens=100)
        assert agent.run_sync("!say Hello.", budget=Budget(usd=0.05)).stop == stop


NO_LIMIT = (
    "(sim:gemini-3.8-flash has no limit for the uses of web_search, $0.014 each; for a dollar limit, state how many to"
    " reserve for a reply, such as hosted.web_search(max_uses=20))"
)


@pytest.mark.parametrize(
    "limit",
    [
        {"budget": Budget(usd=5)},
        {"budget": Budget(session=Limits(usd=5))},
        {"budget": Budget(tenant=Limits(usd=5)), "tenant": "a"},
        {"pool": SharedBudget(usd=5)},
    ],
)
def test_uses_that_nothing_limits_are_not_begun_under_a_dollar_limit(limit):
    world = World()
    options = {"pool": limit["pool"]} if "pool" in limit else {}
    agent = world.agent(GEMINI, tools=[hosted.web_search()], **options)
    given = {name: value for name, value in limit.items() if name != "pool"}
    result = agent.run_sync("!say Hello.", session="s", **given)
    assert (result.stop, len(world.sent)) == ("budget", 0)
    assert NO_LIMIT in result.reason
    assert "no limit" not in agent.run_sync("!say Hello.", budget=Budget(tokens=50)).reason


@pytest.mark.parametrize("strict", [False, True])
def test_a_stated_number_is_reserved_and_told(strict):
    world = World()
    tools = [hosted.web_search(max_uses=20)]
    agent = world.agent(
        GEMINI,
        tools=tools,
        max_tokens=1_000,
        on_adjusted="error" if strict else "event",
        budget=Budget(usd=0.30),
    )
    asked = "\n".join(f"!hosted web_search {number}" for number in range(20)) + "\n!say Done."
    result = agent.run_sync(asked, session="s")
    told = "20 uses of the hosted tool 'web_search' are reserved for a reply, $0.014 each"
    (event,) = world.events(RequestAdjusted)
    assert told in str(event)
    if strict:
        assert (result.stop, len(world.sent)) == ("failed", 0)
        assert told in result.reason
        return
    assert (result.stop, result.usage.searches) == ("done", 20)
    assert 0.28 < result.cost <= 0.30
    short = agent.run_sync(asked, session="t", budget=Budget(usd=0.28))
    assert (short.stop, short.cost) == ("budget", 0)
    unlimited = world.agent(GEMINI, tools=tools, max_tokens=1_000)
    assert unlimited.run_sync("!say Hello.", session="u", budget=Budget(tokens=9_000)).stop == "done"
    assert told not in str(asyncio.run(world.store.read("u")))


DEAR_PAGE = HostedRate(count="pages", usd=Decimal("0.5"))


@pytest.mark.parametrize(
    ("rates", "tool_", "reason"),
    [
        ((SEARCH, DEAR_PAGE), hosted.web_search(max_uses=3), "the next call would not fit"),
        ((SEARCH, DEAR_PAGE), hosted.web_search(), "has no limit for the uses of web_search, $0.505 each"),
        ((replace(SEARCH, usd=Decimal(0)), PAGE), hosted.web_search(), "the uses of web_search, $0.001 each"),
        ((SEARCH,), hosted.web_search(max_uses=3), "a price among the hosted tools web_search"),
    ],
)
def test_pages_of_a_search_are_reserved_where_they_are_charged(rates, tool_, reason):
    world = World()
    agent = world.agent(world.connect(GROQ, price=Price(tiers=(TOKENS,), hosted=rates)), tools=[tool_])
    result = agent.run_sync("!hosted web_search a\n!say Done.", max_tokens=100, budget=Budget(usd=0.05))
    assert (result.stop, len(world.sent)) == ("budget", 0)
    assert reason in result.reason


def test_a_budget_holds_for_searches_with_their_pages():
    world = World()
    connection = world.connect(GROQ, price=Price(tiers=(TOKENS,), hosted=(SEARCH, PAGE)))
    agent = world.agent(connection, tools=[hosted.web_search(max_uses=3)], max_tokens=100)
    asked = "!hosted web_search a\n!hosted web_search b\n!hosted web_search c\n!say Done."
    result = agent.run_sync(asked, session="s", budget=Budget(usd=0.02))
    assert (result.stop, result.usage.searches, result.usage.pages) == ("done", 3, 3)
    assert 0.018 < result.cost <= 0.02
    assert "3 uses of the hosted tool 'web_search' are reserved for a reply, $0.006 each" in str(
        world.events(RequestAdjusted)
    )


def test_more_uses_than_reserved_are_charged_and_end_the_session_budget():
    world = World()
    agent = world.agent(GEMINI, tools=[hosted.web_search(max_uses=2)], max_tokens=1_000)
    limits = Budget(session=Limits(usd=0.05))
    asked = "\n".join(f"!hosted web_search {number}" for number in range(9)) + "\n!say Done."
    first = agent.run_sync(asked, session="s", budget=limits)
    assert (first.stop, first.usage.searches) == ("done", 9)
    assert first.cost > 0.05  # by the uses beyond the two that were reserved
    assert agent.run_sync(asked, session="s", budget=limits).stop == "budget"
    assert len(world.sent) == 1


@pytest.mark.parametrize(
    ("wire", "tool_", "message"),
    [
        (CLAUDE, hosted.file_search(stores=["vs_1"]), "has no hosted file_search; use Agent(retrieve=…)"),
        (BEDROCK, hosted.web_search(), "has no hosted web_search; use toolkit.fetch(allow=[…])"),
        (BEDROCK, hosted.code_execution(), "has no hosted code_execution; use toolkit.python()"),
        (GEMINI, hosted.web_search(allowed_domains=["a.example"]), "does not enforce allowed_domains; use toolkit.fetch"),
        (CLAUDE, hosted.remote_mcp("https://a.example", name="crm"), "does not enforce require_approval; use bridle.mcp"),
        (GEMINI, hosted.image_generation(), "has no hosted image_generation; use a tool of your own"),
    ],
)  # fmt: skip
def test_a_model_without_the_tool_is_refused_with_the_alternative(wire, tool_, message):
    with pytest.raises(BadTool) as caught:
        World().agent(wire, tools=[tool_])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("strict", [False, True])
def test_a_fallback_without_the_tool_is_an_event_or_with_strictness_an_error(strict):
    world = World()
    agent = world.agent(
        world.connect(GPT, fails=True),
        BEDROCK,
        tools=[hosted.web_search()],
        on_adjusted="error" if strict else "event",
    )
    result = agent.run_sync("!say Hello.", session="s")
    (event,) = world.events(RequestAdjusted)
    (note,) = event.adjustments
    assert note == (
        "the hosted tool 'web_search' is not offered: sim:global.anthropic.claude-sonnet-5-5 has no hosted"
        " web_search; use toolkit.fetch(allow=[…])"
    )
    assert (result.stop, len(world.sent)) == (("failed", 1) if strict else ("done", 2))
    assert not strict or "use toolkit.fetch(allow=[…])" in result.reason


def test_a_switch_of_the_model_is_an_event_and_the_way_back_offers_it_again():
    world = World()
    agent = world.agent(GPT, tools=[hosted.web_search(), hosted.image_generation()])
    agent.run_sync("!say One.", session="s")
    assert agent.run_sync("!say Two.", session="s", model=world.connect(GEMINI)).stop == "done"
    agent.run_sync("!say Three.", session="s")
    assert [tuple(next(iter(each)) if "type" not in each else each["type"] for each in body["tools"])
            for body in world.bodies] == [
        ("web_search", "image_generation"), ("googleSearch",), ("web_search", "image_generation")
    ]  # fmt: skip
    (event,) = world.events(RequestAdjusted)
    assert "'image_generation' is not offered: sim:gemini-3.8-flash has no hosted image_generation" in str(
        event
    )


def test_an_option_without_a_member_on_the_wire_is_noted():
    world = World()
    world.agent(GEMINI, tools=[hosted.web_search(max_uses=2)]).run_sync("!say Hello.", session="s")
    assert "declared without max_uses: sim:gemini-3.8-flash has no such option" in str(world.events(object))


def test_own_tools_and_hosted_tools_work_in_one_reply():
    @tool
    def look(place: str) -> str:
        """Look at a place."""
        return f"a duck at {place}"

    for wire in (CLAUDE, GPT, GEMINI):
        world = World()
        agent = world.agent(wire, tools=[look, hosted.web_search()])
        asked = '!hosted web_search ducks\n!call look {"place": "pond"}\n!then\n!say Seen.'
        assert agent.run_sync(asked, session="s").text == "Seen."
        assert agent.run_sync("!say Again.", session="s").text == "Again."
        assert world.statuses == {200}


@pytest.mark.parametrize("approved", [True, False])
def test_a_remote_mcp_call_is_put_to_a_person(approved):
    world = World()
    agent = world.agent(
        GPT, tools=[hosted.remote_mcp("https://crm.example/mcp", name="crm", authorization=TOKEN)]
    )
    waiting = agent.run_sync(
        "!hosted mcp_approval refund\n!then\n!hosted remote_mcp refund\n!say Done.", session="s"
    )
    assert waiting.stop == "waiting"
    (question,) = asyncio.run(agent.approvals("s"))
    assert question.tool == "mcp_approval"
    assert json.loads(question.arguments)["name"] == "refund"
    if approved:
        asyncio.run(agent.approve("s", question.call_id))
    else:
        asyncio.run(agent.reject("s", question.call_id, reason="not today"))
    assert asyncio.run(agent.resume("s")).text == "Done."
    (answer,) = [item for item in world.bodies[-1]["input"] if item.get("type") == "mcp_approval_response"]
    assert answer["approve"] is approved
    assert world.statuses == {200}
    assert all(each["type"] == "mcp" for body in world.bodies for each in body["tools"])


def test_a_policy_that_denies_a_hosted_tool_keeps_it_out_of_the_request():
    world = World()
    policy = Policy(rules=(PermissionRule(tools=("web_search",), decision="deny"),))
    world.agent(GPT, tools=[hosted.web_search()], policy=policy).run_sync("!say Hello.", session="s")
    assert "tools" not in world.bodies[0]
    assert "it is not allowed (rule 1)" in str(world.events(RequestAdjusted))


@pytest.mark.parametrize("wire", ["openai/gpt-6.1-sol", "anthropic/claude-opus-4-8"])
def test_the_client_performs_the_actions_on_a_computer(wire):
    done = []

    async def act(action):
        done.append(action)
        return [Media(kind="image", media_type="image/png", data=PIXEL)]

    world = World()
    agent = world.agent(wire, tools=[hosted.computer_use(act, width=800, height=600)])
    step = (
        "!hosted computer_use screenshot"
        if wire.startswith("openai")
        else '!call computer {"action": "screenshot"}'
    )
    assert agent.run_sync(f"{step}\n!then\n!say Seen.", session="s").text == "Seen."
    assert done in ([{"action": {"type": "screenshot"}}], [{"action": "screenshot"}])
    assert world.statuses == {200}
    assert PIXEL in json.dumps(world.bodies[-1])
    assert [len(body["tools"]) for body in world.bodies] == [1, 1]


@pytest.mark.parametrize("wire", [CLAUDE, GPT, GEMINI])
def test_credentials_of_a_remote_server_reach_the_provider_only(wire):
    world = World()
    options: Any = {} if wire == CLAUDE else {"headers": {"X-Key": TOKEN[::-1]}}
    server = hosted.remote_mcp(
        "https://crm.example/mcp", name="crm", authorization=TOKEN, require_approval=False, **options
    )
    agent = world.agent(wire, tools=[server])
    result = agent.run_sync("!say Hello.", session="s")
    assert result.text == "Hello."
    assert TOKEN in json.dumps(world.bodies[0])
    kept = f"{asyncio.run(world.store.read('s'))}{agent.settings}{server!r}{result}"
    assert TOKEN not in kept
    assert TOKEN[::-1] not in kept
    refused = world.agent(wire, tools=[server]).run_sync(f"!error 400\n!say {TOKEN}", session="t")
    assert TOKEN not in refused.reason


def test_a_session_is_resumed_with_its_hosted_items():
    world = World()
    world.agent(CLAUDE, tools=[hosted.web_search()]).run_sync(SCRIPT, session="s")
    again = world.agent(CLAUDE, tools=[hosted.web_search()])
    assert again.run_sync("!say Again.", session="s").text == "Again."
    blocks = [block["type"] for message in world.bodies[-1]["messages"] for block in message["content"]]
    assert blocks == ["text", "server_tool_use", "web_search_tool_result", "text", "text"]
    (cited,) = [
        block
        for message in world.bodies[-1]["messages"]
        for block in message["content"]
        if "citations" in block
    ]
    assert cited["citations"][0]["url"] == "https://example.com/simulated"
    assert Text(
        text="Found.", native=json.dumps({"citations": cited["citations"]}, separators=(",", ":"))
    ) in (world.events(ModelReplied)[0].reply.parts)

"""Changed code and calls that wait for a person: what voids an approval, what is refused, what runs as it was approved."""

import json

import pytest

from bridle import Agent, Handover, tool
from bridle.stores.memory import MemoryStore
from bridle.values.calls import PermissionRule, Policy
from bridle.values.errors import BadTool, CannotContinue, MisuseError
from bridle.values.events import ApprovalAnswered, ApprovalAsked, Configured, ToolFinished
from tests.suite.in_loop import in_loop

MODEL = "sim:"
PROMPT = '!call refund {"order": "17", "amount": 5}\n!then\n!say settled'


class Bank:
    """Payments, and versions of the tool that makes them."""

    def __init__(self):
        self.paid = []

    def first(self, **options):
        @tool(name="refund", **{"effect": "write", "approve": True, **options})
        def refund(order: str, amount: int, note: str = "sorry") -> str:
            """Pay back."""
            self.paid.append((order, amount, note))
            return "paid"

        return refund

    def other_docstring(self):
        @tool(
            name="refund",
            effect="write",
            approve=True,
            timeout=7,
            description="Pay money back to a customer.",
        )
        def refund(order: str, amount: int, note: str = "sorry") -> str:
            self.paid.append((order, amount, note))
            return "paid"

        return refund

    def other_default(self):
        @tool(name="refund", effect="write", approve=True)
        def refund(order: str, amount: int, note: str = "our pleasure", urgent: bool = False) -> str:
            self.paid.append((order, amount, note))
            return "paid"

        return refund

    def renamed(self, **options):
        @tool(name="pay_back", effect="write", approve=True, **options)
        def pay_back(order: str, amount: int, note: str = "sorry") -> str:
            self.paid.append((order, amount, note))
            return "paid"

        return pay_back

    def renamed_argument(self, **options):
        @tool(name="refund", effect="write", approve=True, **options)
        def refund(order_id: str, amount: int, note: str = "sorry") -> str:
            self.paid.append((order_id, amount, note))
            return "paid"

        return refund

    def required_argument(self):
        @tool(name="refund", effect="write", approve=True)
        def refund(order: str, amount: int, currency: str, note: str = "sorry") -> str:
            self.paid.append((order, amount, note))
            return "paid"

        return refund

    def other_type(self, **options):
        @tool(name="refund", effect="write", approve=True, **options)
        def refund(order: str, amount: float, note: str = "sorry") -> str:
            self.paid.append((order, amount, note))
            return "paid"

        return refund


@pytest.fixture
def bank():
    return Bank()


@pytest.fixture
def store():
    return MemoryStore()


def agent(store, *tools, **options):
    return Agent(MODEL, tools=list(tools), store=store, **options)


async def wait_for_answer(store, made, **options):
    result = await agent(store, made, **options).run(PROMPT, session="s")
    assert result.stop == "waiting"
    return (await agent(store, made, **options).approvals("s"))[0]


async def list_events(store, kind):
    return [record.event for record in await store.read("s") if isinstance(record.event, kind)]


@pytest.mark.parametrize("where", ["answered before", "answered after"])
@pytest.mark.parametrize("version", ["other_docstring", "other_default"])
@in_loop
async def test_declarations_that_do_not_matter_to_the_person_keep_the_approval(bank, store, version, where):
    question = await wait_for_answer(store, bank.first())
    second = agent(store, getattr(bank, version)())
    await (agent(store, bank.first()) if where == "answered before" else second).approve("s", question.id)
    result = await second.resume("s")
    assert (result.stop, result.text) == ("done", "settled")
    # The person saw the default of the first version.
    assert bank.paid == [("17", 5, "sorry")]
    assert len(await list_events(store, ApprovalAsked)) == 1


@pytest.mark.parametrize("version", ["renamed", "renamed_argument", "required_argument", "removed"])
@in_loop
async def test_approval_that_cannot_be_honoured_is_refused(bank, store, version):
    question = await wait_for_answer(store, bank.first())
    second = agent(store, agent_tool() if version == "removed" else getattr(bank, version)())
    before = await store.read("s")
    with pytest.raises(CannotContinue, match="nothing was recorded and its questions stay open") as refused:
        await second.approve("s", question.id)
    assert refused.value.obstacles[0].call_id == question.call_id
    assert "reject the call" in str(refused.value)
    with pytest.raises(CannotContinue):
        await second.resume("s")
    assert await store.read("s") == before
    assert [each.id for each in await second.approvals("s")] == [question.id]
    assert bank.paid == []
    # The code that has the tool can still pay.
    await agent(store, bank.first()).approve("s", question.id)
    assert (await agent(store, bank.first()).resume("s")).stop == "done"
    assert len(bank.paid) == 1


def agent_tool():
    @tool(effect="read")
    def look(order: str) -> str:
        return "nothing"

    return look


@pytest.mark.parametrize("version", ["renamed", "renamed_argument", "required_argument"])
@in_loop
async def test_approval_waits_for_code_that_can_honour_it(bank, store, version):
    question = await wait_for_answer(store, bank.first())
    await agent(store, bank.first()).approve("s", question.id)
    before = await store.read("s")
    with pytest.raises(CannotContinue):
        await agent(store, getattr(bank, version)()).resume("s")
    assert await store.read("s") == before
    assert (await agent(store, bank.first()).resume("s")).stop == "done"
    assert bank.paid == [("17", 5, "sorry")]


@in_loop
async def test_call_whose_tool_is_gone_can_be_rejected(bank, store):
    question = await wait_for_answer(store, bank.first())
    second = agent(store, agent_tool())
    await second.reject("s", question.id, reason="no receipt")
    result = await second.resume("s")
    assert result.stop == "done"
    (finished,) = await list_events(store, ToolFinished)
    assert finished.result.outcome == "denied"
    assert "no receipt" in finished.result.text


@pytest.mark.parametrize("where", ["answered before", "answered after"])
@pytest.mark.parametrize("edited", [None, {"order": "18", "amount": 4}])
@in_loop
async def test_alias_and_upgrade_map_an_approved_call(bank, store, where, edited):
    question = await wait_for_answer(store, bank.first())

    @tool(
        effect="write",
        approve=True,
        aliases=["refund"],
        upgrade=lambda old: {"order_id": old["order"], "cents": old["amount"] * 100, "note": old["note"]},
    )
    def pay_back(order_id: str, cents: int, note: str) -> str:
        bank.paid.append((order_id, cents, note))
        return "paid"

    second = agent(store, pay_back)
    answering = agent(store, bank.first()) if where == "answered before" else second
    await answering.approve("s", question.id, arguments=edited)
    result = await second.resume("s")
    assert (result.stop, result.text) == ("done", "settled")
    assert bank.paid == [("17", 500, "sorry") if edited is None else ("18", 400, "sorry")]
    upgraded = [each for event in await list_events(store, Configured) for each in event.upgraded_calls]
    assert [(each.call_id, each.name) for each in upgraded] == [(question.call_id, "pay_back")]
    # Resuming again, and the first version, change nothing any more.
    assert (await second.resume("s")).stop == "done"
    assert len(bank.paid) == 1


@in_loop
async def test_upgrade_that_fails_is_refused_with_its_reason(bank, store):
    question = await wait_for_answer(store, bank.first())
    second = agent(store, bank.renamed_argument(upgrade=lambda old: {"order_id": old["number"]}))
    with pytest.raises(CannotContinue, match="its upgrade function failed: KeyError"):
        await second.approve("s", question.id)
    assert len(await second.approvals("s")) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("effect", "the effect of refund changed from write to exclusive"),
        ("type", "the argument 'amount' of refund is declared in another way"),
        ("preview", "what its preview shows has changed"),
    ],
)
@in_loop
async def test_change_that_matters_to_the_person_is_asked_again_and_never_accepted_first(
    bank, store, change, reason
):
    question = await wait_for_answer(store, bank.first(preview=lambda amount: f"pays {amount}"))
    made = {
        "effect": lambda: bank.first(effect="exclusive", preview=lambda amount: f"pays {amount}"),
        "type": lambda: bank.other_type(preview=lambda amount: f"pays {amount}"),
        "preview": lambda: bank.first(preview=lambda amount: f"pays {amount} twice", timeout=9),
    }[change]()
    second = agent(store, made)
    with pytest.raises(CannotContinue, match=reason):
        await second.approve("s", question.id)
    assert await list_events(store, ApprovalAnswered) == []
    assert (await second.resume("s")).stop == "waiting"
    (again,) = await second.approvals("s")
    assert again.id != question.id
    assert reason in again.rule
    await second.approve("s", again.id)
    assert (await second.resume("s")).stop == "done"
    assert len(bank.paid) == 1


@in_loop
async def test_approval_before_a_change_that_matters_is_asked_again_with_the_reason(bank, store):
    question = await wait_for_answer(store, bank.first())
    await agent(store, bank.first()).approve("s", question.id)
    second = agent(store, bank.first(effect="exclusive"))
    assert (await second.resume("s")).stop == "waiting"
    assert bank.paid == []
    (again,) = await second.approvals("s")
    assert "the effect of refund changed from write to exclusive" in again.rule


@in_loop
async def test_answer_under_other_rules_is_refused_instead_of_discarded(bank, store):
    question = await wait_for_answer(store, bank.first())
    rules = Policy(rules=(PermissionRule(decision="ask", name="boss", tools=("refund",)),))
    second = agent(store, bank.first(), policy=rules)
    with pytest.raises(CannotContinue, match="the rules of the policy have changed"):
        await second.approve("s", question.id)
    assert (await second.resume("s")).stop == "waiting"
    (again,) = await second.approvals("s")
    await second.approve("s", again.id)
    assert (await second.resume("s")).stop == "done"
    assert len(bank.paid) == 1


@in_loop
async def test_answer_to_a_call_that_the_present_rules_deny_is_refused(bank, store):
    question = await wait_for_answer(store, bank.first())
    rules = Policy(rules=(PermissionRule(decision="deny", name="closed", tools=("refund",)),))
    with pytest.raises(CannotContinue, match=r"the rules deny the call now \(closed\)"):
        await agent(store, bank.first(), policy=rules).approve("s", question.id)
    assert await list_events(store, ApprovalAnswered) == []


@in_loop
async def test_answer_to_a_call_that_the_present_rules_allow_is_taken(bank, store):
    question = await wait_for_answer(store, bank.first())
    rules = Policy(rules=(PermissionRule(decision="allow", name="small", tools=("refund",)),))
    second = agent(store, bank.first(), policy=rules)
    await second.approve("s", question.id)
    assert (await second.resume("s")).stop == "done"
    assert len(bank.paid) == 1


@in_loop
async def test_agent_without_tools_only_records_the_answer(bank, store):
    question = await wait_for_answer(store, bank.first())
    await Agent(MODEL, store=store).approve("s", question.id)
    with pytest.raises(CannotContinue):
        await agent(store, bank.renamed()).resume("s")
    assert (await agent(store, bank.renamed(aliases=["refund"])).resume("s")).stop == "done"
    assert bank.paid == [("17", 5, "sorry")]


@in_loop
async def test_question_of_a_run_inside_a_tool_is_compared_with_the_code_of_that_agent(bank, store):
    def team(made):
        inner = Agent(MODEL, tools=[made], name="payer")
        return agent(store, inner.as_tool(), name="desk")

    script = json.dumps({"prompt": PROMPT})
    result = await team(bank.first()).run(f"!call payer {script}\n!then\n!say all settled", session="outer")
    assert result.stop == "waiting"
    (inner,) = [info.id for info in await store.sessions(limit=10) if info.id.startswith("payer")]
    (question,) = await team(bank.first()).approvals(inner)
    before = await store.read(inner), await store.read("outer")
    changed = team(bank.renamed())
    with pytest.raises(CannotContinue, match="refund"):
        await changed.approve(inner, question.id)
    with pytest.raises(CannotContinue, match="refund"):
        await changed.resume("outer")
    assert (await store.read(inner), await store.read("outer")) == before
    mapped = team(bank.renamed(aliases=["refund"]))
    await mapped.approve(inner, question.id)
    assert (await mapped.resume("outer")).text == "all settled"
    assert bank.paid == [("17", 5, "sorry")]


@pytest.mark.parametrize("depth", [1, 2])
@in_loop
async def test_question_inside_a_call_that_a_prompt_gave_up_takes_no_approval(bank, store, depth):
    made, script = Agent(MODEL, tools=[bank.first()], name="payer"), PROMPT
    for number in range(depth):
        script = f"!call {made.settings.name} {json.dumps({'prompt': script})}\n!then\n!say all settled"
        shared = {"store": store} if number == depth - 1 else {}
        made = Agent(MODEL, tools=[made.as_tool()], name=f"desk{number}", **shared)
    await made.run(script, session="outer")
    (inner,) = [info.id for info in await store.sessions(limit=10) if info.id.startswith("payer")]
    (question,) = await made.approvals(inner)
    await made.run("!say never mind", session="outer")
    before = await store.read(inner)
    for answering in (made, Agent(MODEL, store=store)):
        with pytest.raises(MisuseError, match="inside a call of session 'outer' that has ended"):
            await answering.approve(inner, question.id)
    assert await store.read(inner) == before
    await made.reject(inner, question.id)
    assert bank.paid == []


@in_loop
async def test_answer_and_resume_are_refused_when_the_agent_of_a_handover_is_gone(bank, store):
    def team(*handovers):
        return agent(store, agent_tool(), name="desk", handover=list(handovers))

    payer = Agent(MODEL, tools=[bank.first()], name="payer")
    result = await team(payer).run(f"!call transfer_to_payer {{}}\n!then\n{PROMPT}", session="s")
    assert result.stop == "waiting"
    (question,) = await team(payer).approvals("s")
    before = await store.read("s")
    for other in (team(), team(Handover(agent=Agent(MODEL, name="clerk")))):
        with pytest.raises(CannotContinue, match="handed over to the agent 'payer'"):
            await other.approve("s", question.id)
        with pytest.raises(CannotContinue, match="handed over to the agent 'payer'"):
            await other.resume("s")
    assert await store.read("s") == before
    await team(payer).approve("s", question.id)
    assert (await team(payer).resume("s")).stop == "done"
    assert len(bank.paid) == 1


@in_loop
async def test_two_answers_wait_for_code_that_has_both_tools(bank, store):
    audited = []

    @tool(effect="write", approve=True, resource="audit")
    def audit(order: str) -> str:
        audited.append(order)
        return "noted"

    first = agent(store, bank.first(resource="bank"), audit)
    prompt = '!call refund {"order": "17", "amount": 5}\n!call audit {"order": "17"}\n!then\n!say settled'
    await first.run(prompt, session="s")
    questions = {each.tool: each.id for each in await first.approvals("s")}
    second = agent(store, bank.first(resource="bank"))
    with pytest.raises(CannotContinue, match="'audit'"):
        await second.approve("s", questions["refund"])
    await second.reject("s", questions["audit"])
    await second.approve("s", questions["refund"])
    assert (await second.resume("s")).stop == "done"
    assert (len(bank.paid), audited) == (1, [])


@in_loop
async def test_voided_question_is_still_promised_to_a_person(bank, store):
    await wait_for_answer(store, bank.first())

    class Dead(Exception):
        pass

    append = store.append

    async def die_after_settings(session, after, records, **more):
        await append(session, after, records, **more)
        if isinstance(records[-1].event, Configured):
            raise Dead

    store.append = die_after_settings
    with pytest.raises(Dead):
        await agent(store, bank.first(effect="exclusive")).resume("s")
    store.append = append
    assert await agent(store, bank.first()).approvals("s") == ()
    with pytest.raises(CannotContinue, match="'refund'"):
        await agent(store, bank.renamed()).resume("s")
    assert (await agent(store, bank.first()).resume("s")).stop == "waiting"


@in_loop
async def test_version_label_keeps_a_run_for_code_that_continues_it(bank, store):
    question = await wait_for_answer(store, bank.first(), version="1")
    before = await store.read("s")
    for other in ({}, {"version": "2"}):
        made = agent(store, bank.first(), **other)
        for answer in (made.approve, made.reject):
            with pytest.raises(CannotContinue, match=r"Agent\(continues=\['1'\]\)"):
                await answer("s", question.id)
        with pytest.raises(CannotContinue):
            await made.resume("s")
    assert await store.read("s") == before
    second = agent(store, bank.first(), version="2", continues=["1"])
    await second.approve("s", question.id)
    assert (await second.resume("s")).stop == "done"
    assert len(bank.paid) == 1


@in_loop
async def test_run_keeps_the_hooks_and_the_output_type_that_it_waits_with(bank, store):
    class Guard:
        name = "guard"

        def before_tool(self, call, context):
            return None

    guard = Guard()
    question = await wait_for_answer(store, bank.first(), hooks=[guard], output=int)
    for other, problem in (
        ({"output": int}, "the hook 'guard'"),
        ({"hooks": [guard]}, "another output type"),
    ):
        with pytest.raises(CannotContinue, match=problem):
            await agent(store, bank.first(), **other).approve("s", question.id)
        with pytest.raises(CannotContinue, match=problem):
            await agent(store, bank.first(), **other).resume("s")
    await agent(store, bank.first(), hooks=[guard], output=int).approve("s", question.id)


@in_loop
async def test_long_numbers_of_an_approved_call_are_not_rewritten(bank, store):
    prompt = '!call refund {"order": "17", "amount": 90071992547409931234}\n!then\n!say settled'
    first = agent(store, bank.first())
    await first.run(prompt, session="s")
    (question,) = await first.approvals("s")
    second = agent(store, bank.other_default())
    await second.approve("s", question.id)
    await second.resume("s")
    assert bank.paid == [("17", 90071992547409931234, "sorry")]


@pytest.mark.parametrize(
    "options", [{"aliases": "refund"}, {"aliases": ["pay"]}, {"aliases": [3]}, {"upgrade": 3}]
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(BadTool, match=r"tool `pay`: (aliases|upgrade)"):

        @tool(**options)
        def pay(amount: int) -> str:
            return "paid"


def test_alias_that_means_two_tools_is_refused(bank, store):
    with pytest.raises(BadTool, match="also means the tool `refund`"):
        agent(store, bank.first(), bank.renamed(aliases=["refund"]))


@in_loop
async def test_three_versions_map_the_call_one_after_the_other(bank, store):
    question = await wait_for_answer(store, bank.first())
    second = agent(store, bank.renamed(aliases=["refund"]))
    assert (await second.resume("s")).stop == "waiting"  # its settings are recorded, with the new name
    (waiting,) = await second.approvals("s")
    assert (waiting.id, waiting.tool) == (question.id, "pay_back")

    @tool(
        effect="write",
        approve=True,
        aliases=["refund", "pay_back"],
        upgrade=lambda old: {"number": old["order"], "amount": old["amount"]},
    )
    def send_money(number: str, amount: int) -> str:
        bank.paid.append((number, amount, ""))
        return "paid"

    with pytest.raises(CannotContinue):
        await agent(store, bank.first()).approve("s", question.id)
    third = agent(store, send_money)
    await third.approve("s", question.id)
    assert (await third.resume("s")).stop == "done"
    assert bank.paid == [("17", 5, "")]

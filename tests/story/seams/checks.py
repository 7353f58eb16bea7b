"""What must hold after a scene, whatever features it has: each check is for a feature, and looks at the whole of it."""

import json
from collections import Counter
from decimal import Decimal

import pytest

from bridle import TextDelta
from bridle.cli.commands.cost import list_all_entries, list_session_entries
from bridle.events import SubrunDelta, SubrunItem
from bridle.run.budget.stored import BudgetLog
from bridle.sessions import replay
from bridle.values.budget import (
    Amount,
    BudgetSettled,
    SubrunStarted,
    budget_log_name,
    caller_budget_name,
    tenant_budget_name,
)
from bridle.values.errors import MisuseError
from bridle.values.events import ApprovalAnswered, Configured, ModelReplied, RunEnded, ToolFinished
from bridle.values.result import DELTA_TYPES, FinalAnswer

from .scene import AMOUNT, EDITED, LIMIT_STOPS, REASON


async def check_scene(scene):
    """Check all that holds for every plan, and what each feature of this one promises."""
    await check_ends(scene)
    await check_payments(scene)
    check_owners_apart(scene)
    await check_tenants_apart(scene)
    await check_layers(scene)
    if scene.plan.budgets:
        await check_budgets(scene)
    if scene.plan.streams:
        await check_streams(scene)
    if scene.plan.has_notes:
        check_notes(scene)
    if scene.plan.upgrades:
        await check_upgrades(scene)


async def read_events(scene, session):
    return [record.event for record in await scene.store.read(session)]


async def read_all(scene, owner, kind):
    """The events of one kind in all sessions of a customer."""
    found = []
    for session in await scene.list_sessions(owner):
        found += [event for event in await read_events(scene, session) if isinstance(event, kind)]
    return found


async def check_ends(scene):
    """Each run is done with the answer of the last agent, its log is whole, and replaying it does the same again."""
    for visit in scene.visits:
        final = visit.results[-1]
        mark = visit.owner.mark
        told = f"told {mark}" if "nested" in scene.plan.layers else f"settled for {mark}"
        assert (final.stop, final.text) == ("done", told)
        for session in await scene.list_sessions(visit.owner):
            assert (await replay(session, store=scene.store)).is_identical, session


async def check_payments(scene):
    """What was approved is paid once, with the amount that the person saw or set; what was rejected is refused."""
    expected = {}
    for visit in scene.visits:
        if given_up := await list_given_up(scene, visit.owner):
            assert all("stopped as 'budget' without an answer" in text for text in given_up), given_up
            paid = [order for _, order, _ in scene.bank.payments if visit.owner.mark in order]
            assert len(paid) <= 1, "given up before or after the payment"
            expected |= dict.fromkeys(paid, AMOUNT)
            continue
        orders = [each for batch in scene.list_orders(visit.owner) for each in batch]
        denied = [
            event.result.text
            for event in await read_all(scene, visit.owner, ToolFinished)
            if event.result.outcome == "denied"
        ]
        rejected = [order for kind, order in orders if kind == "rejected"]
        assert len(denied) == len(rejected), denied
        assert all(REASON in text for text in denied), denied
        expected |= {
            order: EDITED if kind == "edited" else AMOUNT for kind, order in orders if kind != "rejected"
        }
        answers = await read_all(scene, visit.owner, ApprovalAnswered)
        assert len(answers) == (len(orders) if scene.plan.waits else 0)
    assert Counter((order, amount) for _, order, amount in scene.bank.payments) == Counter(expected.items())


async def list_given_up(scene, owner):
    """Errors of inner agents that had no budget left before they paid; the agent around them reads the reason."""
    results = [event.result for event in await read_all(scene, owner, ToolFinished)]
    return [result.text for result in results if result.outcome == "error"] if scene.steps_max else []


def check_owners_apart(scene):
    """No request has a text of two customers."""
    marks = [visit.owner.mark for visit in scene.visits]
    for agent, body in scene.wire.requests:
        assert sum(mark in body for mark in marks) == 1, (agent, body)


async def check_tenants_apart(scene):
    """Another tenant reads, answers, resumes and prompts nothing of a session, and is refused before anything is recorded."""
    for visit in scene.visits:
        logs = await scene.read_logs(visit.owner)
        agent = scene.make_agent(visit)
        for session in logs:
            with pytest.raises(MisuseError):
                await agent.run("!say mine now", session, tenant="other")
            with pytest.raises(MisuseError):
                await agent.resume(session, tenant="other")
            with pytest.raises(MisuseError):
                await agent.approvals(session, tenant="other")
        assert await scene.read_logs(visit.owner) == logs


async def check_layers(scene):
    """Each hand-over is recorded once and each inner agent starts once, and the innermost one did the work."""
    layers = scene.plan.layers
    for visit in scene.visits:
        if await list_given_up(scene, visit.owner):
            continue
        times = 2 if scene.plan.has_notes else 1
        configured = await read_all(scene, visit.owner, Configured)
        transfers = Counter(event.handed_over_to for event in configured if event.handed_over_to)
        names = [f"{kind}{place}" for place, kind in enumerate(layers, 1)]
        assert transfers == Counter({name: times for name in names if name.startswith("handover")}), transfers
        started = await read_all(scene, visit.owner, SubrunStarted)
        assert len({event.session for event in started}) == layers.count("nested") * times
        sessions = await scene.list_sessions(visit.owner)
        assert len(sessions) == times * (1 + layers.count("nested"))
        asked_by = {agent for agent, body in scene.wire.requests if visit.owner.mark in body}
        assert asked_by == {"first0", *names}, "each agent did its part"


async def sum_replies(scene, owners):
    """Dollars, tokens and steps of all replies in the logs of some customers."""
    replies = [reply for owner in owners for reply in await read_all(scene, owner, ModelReplied)]
    usd = sum((reply.usd for reply in replies), Decimal(0))
    return usd, sum(reply.reply.usage.total for reply in replies), len(replies)


def list_accounts(scene):
    """The shared budgets of the scene, and the customers whose runs each counts."""
    owners = scene.plan.owners
    tenants = {
        tenant_budget_name(each): [o for o in owners if o.tenant == each] for each in scene.plan.tenants
    }
    return {"all": owners, **tenants, **{caller_budget_name(*owner): [owner] for owner in owners}}


async def check_budgets(scene):
    """Tenant, caller and pool have what `bridle cost` adds up and what a crash left unknown; no limit was exceeded."""
    for name, owners in list_accounts(scene).items():
        log = BudgetLog(scene.store, name)
        await log.catch_up()
        await log.settle_abandoned("", 0, scene.make_agent(scene.visits[0]).clock.now)
        account = await log.catch_up()
        events = await read_events(scene, budget_log_name(name, 1))
        settled = [event for event in events if isinstance(event, BudgetSettled)]
        lost = sum((each.amount for each in settled if each.source == "presumed"), Amount())
        entries = [
            entry
            for tenant in {owner.tenant for owner in owners}
            for entry in await list_all_entries(scene.store, tenant)
            if (entry.tenant, entry.caller) in owners
        ]
        known = account.spent - lost
        cost = sum((entry.usd or Decimal(0) for entry in entries), Decimal(0))
        assert (known.usd, known.tokens) == (cost, sum(entry.usage.total for entry in entries)), name
        assert (known.usd, known.tokens, known.steps) == await sum_replies(scene, owners), name
        assert account.reserved == account.excess == Amount(), name
        if not any(visit.life.deaths for visit in scene.visits):
            assert lost == Amount(), name
    for visit in scene.visits:
        final = visit.results[-1]
        usd, tokens, _ = await sum_replies(scene, [visit.owner])
        if not scene.plan.has_notes:
            assert (round(final.cost, 9), final.usage.total) == (round(float(usd), 9), tokens)
            booked = await list_session_entries(scene.store, visit.owner.session)
            assert sum((entry.usd or Decimal(0) for entry in booked), Decimal(0)) == usd


async def check_streams(scene):
    """Each viewer sees each record of the run and of the runs inside it, once and in order; deltas add up to the reply."""
    for visit in scene.visits:
        for before, after, viewers in visit.watched:
            for items in viewers:
                shown = {visit.owner.session: []}
                texts = {}
                for item in items:
                    session, inner = visit.owner.session, item
                    while isinstance(inner, SubrunItem | SubrunDelta):
                        session, inner = inner.session, inner.item
                    if isinstance(inner, TextDelta):
                        texts[session] = texts.get(session, "") + inner.text
                    elif not isinstance(inner, (*DELTA_TYPES, FinalAnswer)):
                        shown.setdefault(session, []).append(inner)
                for session, events in shown.items():
                    records = (await scene.store.read(session))[before.get(session, 0) : after[session]]
                    assert events == [record.event for record in records], session
                    replies = [each.reply.text for each in events if isinstance(each, ModelReplied)]
                    assert texts.get(session, "") == "".join(replies)
                grown = {name for name in after if after[name] > before.get(name, 0)}
                assert grown == {*shown}, "the viewer saw every session that grew"


def check_notes(scene):
    """Each agent is shown the notes of the caller, also the one written in the visit before, and no other's."""
    for visit in scene.visits:
        mark = visit.owner.mark
        for requests, texts in (
            (scene.first_requests, [f"{mark} is allergic to nuts"]),
            (scene.later_requests, [f"{mark} is allergic to nuts", f"{mark} drinks tea"]),
        ):
            own = [(agent, body) for agent, body in requests if mark in body]
            assert len({agent for agent, _ in own}) == len(scene.plan.layers) + 1
            for agent, body in own:
                for text in texts:
                    assert text in body, (agent, text)


async def check_upgrades(scene):
    """The version that could not pay refused each approval with its reason; the others took the calls over."""
    for visit in scene.visits:
        assert visit.refusals
        assert all("needs the tool" in reason for reason in visit.refusals), visit.refusals
        answered = await read_all(scene, visit.owner, Configured)
        names = {call.name for event in answered for call in event.upgraded_calls}
        assert names <= {"pay_back", "send_money"}
        assert {"send_money" if scene.plan.upgrades > 1 else "pay_back"} <= names


def list_limit_stops(scene):
    return [stop for visit in scene.visits for stop in visit.stops if stop in LIMIT_STOPS]


def count_steps(scene, scope):
    """Steps that a limit of this scope counts in an undisturbed scene before its customers are done."""
    first, owners = scene.plan.owners[0], scene.plan.owners
    of_tenant = [owner for owner in owners if owner.tenant == first.tenant]
    counted = {"tenant": of_tenant, "pool": owners}.get(scope, [first])
    requests = scene.first_requests if scene.plan.has_notes else scene.wire.requests
    return sum(owner.mark in body for owner in counted for _, body in requests)


async def summarize(scene):
    """What happened, without ids, times and the marks of deaths: equal for two performances of the same plan."""
    found = {}
    for visit in scene.visits:
        for place, session in enumerate(await scene.list_sessions(visit.owner)):
            events = await read_events(scene, session)
            found[visit.owner, place] = [
                describe(event)
                for event in events
                if isinstance(event, (ModelReplied, ToolFinished, RunEnded))
            ]
    return found


def describe(event):
    if isinstance(event, ModelReplied):
        return (
            "reply",
            event.reply.text,
            [(call.id, call.name, json.loads(call.arguments)) for call in event.reply.calls],
        )
    if isinstance(event, ToolFinished):
        return "result", event.result.outcome, event.result.text
    return "end", event.stop

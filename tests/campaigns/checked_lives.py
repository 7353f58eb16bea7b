"""A random life of a session (lives.py), after which the session must go on, and nothing was done twice."""

import asyncio
import contextlib
import json
from collections import Counter

from bridle.core.loop import apply_event
from bridle.core.state import Phase, State
from bridle.run.memory.notes import notes_log_name
from bridle.values import events as e
from tests.campaigns.lives import COMMON_MODELS, MODELS, Life

TOO_LONG = (
    "prompt-window", "request-size", "body-size", "local-window", "strip-window", "short-ids-window", "compatible-window",
)  # fmt: skip
"""Refusals that cannot be foreseen: only the provider can count the tokens."""
FORGOTTEN = "Previous response with id"
"""A reply that broke off is not kept by the provider; the conversation is sent whole instead."""


async def live(seed, *, hooked=True):
    life = Life(seed, hooked=hooked)
    for number in range(1 + life.draws.number(4)):
        for result in (await life.turn(number), await life.between()):
            if result is not None:
                await no_budget_was_exceeded(life, result)
    life.provider.fail()
    await play_left_over_scripts(life)
    others = [life.draws.pick("last model", MODELS) for _ in range(3)]
    for model in (*COMMON_MODELS, *others):
        agent = life.agent(model, last=True)
        script = '!call look {"at": "end"}\n!then\n!say well'
        result = await agent.run(script, session=life.session, tenant=life.tenant)
        assert result.done and result.text, f"seed {seed} on {model}: {result.stop} {result.reason}"
    refusals = [
        each for each in life.provider.refusals if each.rule not in TOO_LONG and FORGOTTEN not in each.message
    ]
    assert not refusals, f"seed {seed}: refused {refusals[0]}"
    await nothing_was_done_twice(life)
    await every_call_has_one_result(life.store, life.session, seed)
    await every_note_was_written_once(life.store, life.session, seed)
    await no_receipt_was_given_twice(life.store, life.session, seed)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, f"seed {seed}: left behind {left}"
    return life


async def play_left_over_scripts(life):
    """A prompt that was never answered is part of the next one, script and all: let it be played first."""
    for _ in range(3):
        result = await life.agent(COMMON_MODELS[0], last=True).run(
            "!say well", session=life.session, tenant=life.tenant
        )
        if result.done:
            return


async def no_budget_was_exceeded(life, result):
    """The budget is in dollars where every model has a price, else in tokens."""
    events = [record.event for record in await life.store.read(life.session)]
    limits = next(event.budget for event in reversed(events) if isinstance(event, e.Prompted))
    if limits.usd is not None and result.cost is not None:
        assert result.cost <= limits.usd, f"seed {life.seed}: ${result.cost} of ${limits.usd} spent"
    if limits.tokens is not None:
        assert result.usage.total <= limits.tokens, f"seed {life.seed}: {result.usage.total} tokens used"


async def nothing_was_done_twice(life):
    """A payment runs at most once for every call by which a model asked for it; so do its refund and an answer."""
    asked = {}
    for session in ("s", life.session):
        for record in await life.store.read(session):
            if isinstance(record.event, e.ModelReplied):
                for call in record.event.reply.calls:
                    asked.setdefault(call.arguments, set()).add(call.id)
    calls = Counter()
    for arguments, ids in asked.items():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            given = json.loads(arguments)
            calls[f"{given['account']}:{given['amount']}" if "account" in given else given["title"]] += len(
                ids
            )
    for counts in (life.paid, life.refunded, life.concluded):
        twice = {what: count for what, count in counts.items() if count > calls[what]}
        assert not twice, f"seed {life.seed}: done more often than asked for: {twice}"


async def every_note_was_written_once(store, session, seed):
    for line in (session, notes_log_name("acme"), notes_log_name("zeta")):
        events = [record.event for record in await store.read(line)]
        keys = [event.key for event in events if isinstance(event, e.NoteWritten)]
        assert len(keys) == len(set(keys)), f"seed {seed}: a note was written twice"


async def no_receipt_was_given_twice(store, session, seed):
    """`greet` is done once per session: a call that is in doubt has no receipt, so the model may ask again."""
    events = [record.event for record in await store.read(session)]
    asked = {event.call_id: event.arguments for event in events if isinstance(event, e.ToolStarted)}
    ran = [
        json.dumps(json.loads(asked[event.result.call_id]), sort_keys=True)
        for event in events
        if isinstance(event, e.ToolFinished) and event.name == "greet" and event.source == "run"
        if event.result.outcome == "ok" and event.result.call_id in asked
    ]
    assert len(ran) == len(set(ran)), (
        f"seed {seed}: an action that is done once per session was done twice: {ran}"
    )


async def every_call_has_one_result(store, session, seed):
    state, results = State(), {}
    for record in await store.read(session):
        state = apply_event(state, record.event, record.at, record.hash)
    for message in state.conversation.transcript.messages:
        for result in message.results:
            results[result.call_id] = results.get(result.call_id, 0) + 1
    calls = [call.id for message in state.conversation.transcript.messages for call in message.calls]
    assert state.phase is Phase.IDLE, f"seed {seed}"
    assert sorted(calls) == sorted(results), f"seed {seed}: calls and results differ"
    assert set(results.values()) <= {1}, f"seed {seed}: a call has two results"

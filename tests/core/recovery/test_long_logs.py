"""The fold of a long log takes time linear in its length, and gives the state that folding step by step gives."""

import asyncio
import re
from functools import partial

import msgspec
import pytest

from bridle import Agent, tool
from bridle.cli.commands.log import _list_places
from bridle.core.audit.report import audit_log
from bridle.core.budget.ledger import list_entries, list_nested_charges
from bridle.core.cache.report import list_cache_calls
from bridle.core.lineage.compare import compare_logs
from bridle.core.lineage.fork import find_fork_point
from bridle.core.recovery.growing import GROWING_MIN, GrowingTuple
from bridle.core.recovery.log_repair import GROWING_RECORDS, LogReader, fold_log
from bridle.core.tracing.session_trace import SessionTrace
from bridle.serve.wires.client_view import read_client_view
from bridle.stores.memory import MemoryStore
from bridle.values.record import GENESIS, seal_record
from tests.suite.growth import assert_cost_per_item


@tool(effect="read")
def look_up(number: int) -> str:
    """Look something up."""
    return f"value {number}"


@pytest.fixture(scope="module")
def records():
    """Return a function that repeats a real run until there are this many records."""

    async def record_run():
        store = MemoryStore()
        agent = Agent("sim:", tools=[look_up], store=store)
        steps = "\n!then\n".join(f'!say Step {n}.\n!call look_up {{"number": {n}}}' for n in range(3))
        await agent.run(f"{steps}\n!then\n!say Done.", "short")
        return await store.read("short")

    short = asyncio.run(record_run())
    first = [record for record in short if record.event.__struct_config__.tag == "configured"]
    body = [record for record in short if record not in first]
    made, head = [], GENESIS

    def repeat(count):
        nonlocal head
        rounds = len(made) // len(body)
        while len(made) < count:
            for record in [*first, *body] if not made else body:
                data = re.sub(rb"\bc(\d+_\d+)\b", rb"c%d_\1" % rounds, record.data)
                event = msgspec.json.decode(data, type=type(record.event))
                made.append(seal_record(len(made) + 1, 1.0 + len(made), event, head))
                head = made[-1].hash
            rounds += 1
        return made[:count]

    return repeat


@pytest.mark.slow
def test_the_fold_of_a_log_is_linear(records):
    records(48_000)

    def prepare(count):
        log = records(count)
        return lambda: fold_log(log)

    assert_cost_per_item(prepare, 6_000, 48_000, ratio_max=1.8)


READERS = {
    "observer": lambda log: fold_log(log, lambda record, before, after: len(after.conversation.view)),  # type: ignore[arg-type]
    "audit": lambda log: audit_log("s", log),
    "ledger": lambda log: list_entries("s", log),
    "charges": list_nested_charges,
    "cache": list_cache_calls,
    "fork": lambda log: find_fork_point("s", log, len(log)),
    "compare": lambda log: compare_logs("a", log, "b", log),
    "client": lambda log: asyncio.run(read_client_view(log)),
    "spans": lambda log: fold_log(log, partial(apply_to_trace, SessionTrace("s", str))),
    "places": lambda log: [*_list_places(log)],
}
"""Every reader that looks at the states on the way."""


def apply_to_trace(trace, record, before, after):
    return [*trace.apply(record, before, after)]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_a_log_is_linear(records, reader):
    records(40_000)

    def prepare(count):
        log = records(count)
        return lambda: READERS[reader](log)

    assert_cost_per_item(prepare, 5_000, 40_000, ratio_max=1.8)


def test_no_state_on_the_way_copies_its_conversation(records):
    log, copied = records(6_000), []

    def observe(record, before, after):
        messages = after.conversation.transcript.messages
        if len(messages) > 2 * GROWING_RECORDS and isinstance(messages, tuple):
            copied.append(record.seq)

    assert not list(find_growing(fold_log(log, observe).state))
    assert not copied
    kept = [find_fork_point("s", log, 5_000).state, asyncio.run(read_client_view(log)).state]
    assert not list(find_growing(kept))


@pytest.mark.parametrize("count", [50, 1_000, 3_001, 3_002, 3_003, 3_004, 3_005, 3_006, 3_007])
def test_the_fold_gives_the_state_of_single_steps(records, count):
    log = records(count)
    folded, single = fold_log(log), LogReader(grows=False)
    for record in log:
        single.apply_record(record)
    single.continue_numbering()
    assert folded == (single.state, tuple(single.repairs))
    assert not list(find_growing(folded.state))
    conversation = folded.state.conversation
    assert conversation.view is conversation.transcript.messages
    assert count < 3_000 or len(conversation.view) > GROWING_MIN


def find_growing(held):
    """Yield every sequence in a value that only the fold may have."""
    if isinstance(held, GrowingTuple):
        yield held
    elif isinstance(held, msgspec.Struct):
        for name in held.__struct_fields__:
            yield from find_growing(getattr(held, name))
    elif isinstance(held, tuple | list | frozenset):
        for item in held:
            yield from find_growing(item)
    elif isinstance(held, dict):
        for item in held.values():
            yield from find_growing(item)


def test_two_sequences_that_grow_from_one_do_not_see_each_other():
    base = GrowingTuple([1, 2], 2)
    one, other = base + (3,), base + (4,)  # noqa: RUF005
    assert (tuple(base), tuple(one), tuple(other)) == ((1, 2), (1, 2, 3), (1, 2, 4))
    assert (one[-1], one[1:], one[:-1]) == (3, (2, 3), (1, 2))
    with pytest.raises(IndexError):
        base[2]

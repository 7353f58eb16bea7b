"""Random lives replay: every event of their logs comes out again, and every request has its recorded digest.

The lives are those of lives.py: all wires, faults, cancels, crashes, forks, imports, approvals, compensations, hooks,
compaction. Each rebuilt request is also compared with the bytes that were sent. BRIDLE_CAMPAIGN=40 replays 1,000 lives.
`python -m tests.campaigns.test_replays COUNT [FROM]` replays that many and prints what was compared.
"""

import asyncio
import sys
from collections import Counter

import pytest
from msgspec.structs import replace

from bridle.core.lineage.replay import LogReplay
from bridle.run.replay.log_wire import LogWire
from bridle.values.events import ModelAsked
from tests.campaigns.checked_lives import TOO_LONG
from tests.campaigns.replayed_lives import live
from tests.suite.campaign import list_seeds
from tests.suite.replayed import replay_records

BATCHES = 5
SEEDS = list_seeds(25, least=BATCHES)
SENT: list[tuple[str, bytes]] = []
"""Digest and body of every request sent while `IS_LISTENING`."""
IS_LISTENING = []


def listen(event, given):
    if event == "bridle.asked" and IS_LISTENING:
        SENT.append((given[0], given[2]))


sys.addaudithook(listen)


def list_bodies(records, agents):
    """Both forms of every rebuilt request, streamed and whole, with its digest."""
    wire = LogWire(extras=[agent.parts.private_extras for agent in agents])
    replay = LogReplay(wire)
    for record in records:
        replay.apply_record(record)
        if isinstance(record.event, ModelAsked):
            request = replay.asked.effect.request
            forms = [wire.encode_http(replace(request, stream=stream)) for stream in (True, False)]
            yield request.model.endpoint.family, record.event.digest, {form.body for form in forms}


async def replay_life(seed):
    SENT.clear()
    IS_LISTENING.append(seed)
    try:
        life = await live(seed)
    finally:
        IS_LISTENING.clear()
    counts, sent = Counter(), {}
    for digest, body in SENT:
        sent.setdefault(digest, set()).add(body)
    for session in dict.fromkeys(("s", life.session)):
        records = await life.store.read(session)
        replay, difference = replay_records(records, life.agents)
        assert difference is None, f"seed {seed}, session {session}: {difference}"
        assert replay.unchecked == [], f"seed {seed}"
        assert not records or replay.head == records[-1].hash, f"seed {seed}: another head"
        counts.update(sessions=1, records=len(records))
        for family, digest, forms in list_bodies(records, life.agents):
            counts[family] += 1
            # A request that was recorded and then cancelled was never sent.
            assert digest not in sent or sent[digest] & forms, f"seed {seed}: other bytes were sent"
            counts["compared with the bytes sent"] += digest in sent
    return counts


@pytest.mark.refusals(*TOO_LONG)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_life_replays_to_an_equal_log(batch):
    async def main():
        total = Counter()
        for seed in SEEDS[batch::BATCHES]:
            total += await replay_life(seed)
        assert total["records"] > 0
        assert total["compared with the bytes sent"] > 0

    asyncio.run(main())


def main(count, first):
    total, failed = Counter(), 0
    for seed in range(first, first + count):
        try:
            total += asyncio.run(replay_life(seed))
        except AssertionError as error:
            failed += 1
            print(error, flush=True)
    print(f"{count} lives from seed {first}: {failed} failed; {dict(total)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)

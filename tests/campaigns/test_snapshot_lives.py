"""A snapshot and the records after it give the same reader as all records, at every record of every log.

The logs are those of random lives (lives.py: all wires, faults, crashes, forks, imports, hooks, compaction, hand-overs,
nested runs), and the samples of every format. BRIDLE_CAMPAIGN=40 lives 1,000 lives.
`python -m tests.campaigns.test_snapshot_lives COUNT [FROM]` prints what was compared.
"""

import asyncio
import random
import shutil
import sys
from collections import Counter

import pytest

from bridle.core.recovery.log_repair import LogReader
from bridle.run.recovery.snapshot_codec import (
    decode_parts,
    decode_snapshot,
    encode_snapshot,
    record_parts,
    restore_reader,
)
from bridle.stores import open_store
from bridle.stores.conflicts import RESERVED_PREFIXES
from tests.campaigns.checked_lives import TOO_LONG
from tests.campaigns.replayed_lives import live
from tests.golden.format_sample import SAMPLES
from tests.suite.campaign import list_seeds

BATCHES = 3
SEEDS = list_seeds(15, least=BATCHES)
TAILS = 3
"""Snapshots of a log that are continued to its end, chosen at random."""


def restore(data, records):
    snapshot = decode_snapshot(data)
    contents = {seq: decode_parts(records[seq - 1].data) for seq in snapshot.sources}
    return restore_reader(snapshot, contents), contents


def list_shared(conversation):
    """The view as places in the transcript, -1 for a message of its own."""
    messages = conversation.transcript.messages
    places = {id(message): place for place, message in enumerate(messages)}
    return [places.get(id(message), -1) for message in conversation.view]


def list_fields(reader):
    """What a reader knows, without its count of records until it looks for long tuples."""
    return {name: value for name, value in vars(reader).items() if name != "_until_look"}


def compare_log(records, chance, counts):
    """Compare a snapshot at every record; continue some, with another snapshot on the way."""
    reader, contents, snapshots = LogReader(), {}, []
    for record in records:
        reader.apply_record(record)
        contents[record.seq] = record_parts(record.event)
        data = encode_snapshot(reader, contents)
        snapshots.append(data)
        restored, _ = restore(data, records)
        assert list_fields(restored) == list_fields(reader), f"record {record.seq}"
        # The same objects are shared, so that memory and the next fold cost the same.
        assert list_shared(restored.state.conversation) == list_shared(reader.state.conversation)
        counts["snapshots"] += 1
    for at in chance.sample(range(len(records)), min(TAILS, len(records))):
        middle = chance.randint(at, len(records))
        continued, known = restore(snapshots[at], records)
        for record in records[at + 1 : middle]:
            continued.apply_record(record)
            known[record.seq] = record_parts(record.event)
        continued, _ = restore(encode_snapshot(continued, known), records)
        for record in records[max(at + 1, middle) :]:
            continued.apply_record(record)
        assert list_fields(continued) == list_fields(reader), f"continued after record {at + 1}"
        counts["continued"] += 1
    counts["logs"] += 1
    counts["log bytes"] += sum(len(record.data) for record in records)
    counts["snapshot bytes"] += len(snapshots[-1]) if snapshots else 0


async def compare_logs(store, seed, counts):
    chance = random.Random(seed)
    for info in await store.sessions(limit=1_000):
        if info.id.startswith(RESERVED_PREFIXES):
            continue
        records = await store.read(info.id)
        try:
            compare_log(records, chance, counts)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, session {info.id}") from error
        counts.update(type(record.event).__name__ for record in records)


async def compare_life(seed, counts):
    await compare_logs((await live(seed)).store, seed, counts)


@pytest.mark.refusals(*TOO_LONG)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_snapshot_at_every_record_of_a_life_restores_the_reader(batch):
    async def main():
        counts = Counter()
        for seed in SEEDS[batch::BATCHES]:
            await compare_life(seed, counts)
        assert counts["ModelReplied"] > counts["logs"]
        assert counts["continued"] > 0

    asyncio.run(main())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_a_snapshot_at_every_record_of_a_sample_restores_the_reader(sample, tmp_path):
    shutil.copy(sample / "store.db", tmp_path / "log.db")
    counts = Counter()

    async def main():
        store = open_store(tmp_path / "log.db")
        await compare_logs(store, sample.name, counts)
        await store.close()

    asyncio.run(main())
    assert counts["snapshots"] > 100


def main(count, first):
    counts, failed = Counter(), 0
    for seed in range(first, first + count):
        try:
            asyncio.run(compare_life(seed, counts))
        except AssertionError as error:
            failed += 1
            print(error, error.__cause__, flush=True)
    print(f"{count} lives from seed {first}: {failed} failed; {dict(counts.most_common())}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)

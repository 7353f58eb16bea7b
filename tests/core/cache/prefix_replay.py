"""Rebuilds every request of a store from its log and checks that each extends the previous one.

    python -m tests.core.cache.prefix_replay STORE

Prints what was found as JSON.  It runs in a process of its own, with another hash seed than the one that
wrote the log: what depends on the order of a set would differ here.
"""

import asyncio
import json
import sys
from collections import Counter

from msgspec.structs import replace

from bridle.core.compaction.plan import plan_compaction
from bridle.core.context.assemble import assemble_request
from bridle.core.loop import apply_event
from bridle.core.state import State
from bridle.providers import load_codec
from bridle.stores import open_store
from bridle.values import events as e


def replay_records(records):
    """Faults, requests made, and the moves that were told, by cause."""
    state, before, told = State(), b"", None
    faults, requests, causes = [], 0, Counter()
    for record in records:
        event = record.event
        if isinstance(event, e.PrefixMoved):
            told = event
            causes[event.cause] += 1
        if isinstance(event, e.ModelAsked):
            requests += 1
            request = plan_compaction(state).request if event.summarizes_until else assemble_request(state)[0]
            codec = load_codec(request.model.endpoint.family)
            if codec.encode(request).digest != event.digest:
                faults.append(f"record {record.seq}: another digest")
            if event.summarizes_until:
                causes["summary"] += 1
                state = apply_event(state, event, record.at, record.hash)
                continue
            prefix = encode_prefix(codec, replace(request, breakpoints=()))
            if not prefix.startswith(before) and told is None:
                faults.append(f"record {record.seq}: the prefix moved and nobody said so")
            before, told = prefix, None
        state = apply_event(state, event, record.at, record.hash)
    return faults, requests, causes


def encode_prefix(codec, request):
    kept = codec.new_history()
    body = codec.encode(request, kept).body
    joined, _ = kept.join_messages(request.messages)
    return body[: body.index(joined) + len(joined)]


async def main(path):
    store = open_store(path)
    faults, requests, causes = [], 0, Counter()
    for row in await store.sessions(limit=1_000_000):
        found, asked, moves = replay_records(await store.read(row.id))
        faults += [f"{row.id}: {fault}" for fault in found]
        requests += asked
        causes += moves
    await store.close()
    print(json.dumps({"faults": faults, "requests": requests, "causes": causes}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

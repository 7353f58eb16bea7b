"""A long log for tests: one real run, written again and again."""

import re

import msgspec

from bridle import tool
from bridle.values.record import GENESIS, seal_record


@tool(effect="read")
def look_up(number: int) -> str:
    """Look something up."""
    return f"value {number}: " + "lorem ipsum dolor sit amet " * 12


async def record_long(store, agent, session, count):
    """Write a log with at least this many events."""
    steps = "\n!then\n".join(f'!say Step {n}.\n!call look_up {{"number": {n}}}' for n in range(3))
    await agent.run(f"{steps}\n!then\n!say Done.", "short")
    records = await store.read("short")
    head, made, seq = GENESIS, [], 0
    first = [record for record in records if record.event.__struct_config__.tag == "configured"]
    body = [record for record in records if record not in first]
    start = records[0].at
    for round_number, source in enumerate([first, *[body] * (count // len(body) + 1)]):
        for record in source:
            seq += 1
            data = re.sub(
                rb"\bc(\d+_\d+)\b", rb"c%d_\1" % round_number, record.data
            )  # ids of calls are unique
            event = msgspec.json.decode(data, type=type(record.event))
            made.append(seal_record(seq, start + seq * 0.01, event, head))
            head = made[-1].hash
    await store.append(session, 0, made)

"""Calls while the server is killed at random: every call gets exactly one result, and no process is left.

The server kills itself with SIGKILL in one of ten calls: before the work, before the answer or after it.
`BRIDLE_CAMPAIGN=40` makes 1,000 calls.
"""

import asyncio
import random
from collections import Counter

import pytest

from bridle import Agent
from bridle.events import ToolFinished, ToolStarted
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from tests.suite.campaign import scale
from tests.tools.mcp.mcp_servers import hostile_server, list_pids, list_session_members

ROUNDS = scale(1)
CALLS = 25


def check_round(events, calls, written, outcomes):
    """Check the events of one run; `written` counts the lines in the file of the writes."""
    finished = [event for event in events if isinstance(event, ToolFinished)]
    assert Counter(event.call_id for event in finished) == {f"c1_{place}": 1 for place in range(len(calls))}
    starts = Counter(event.call_id for event in events if isinstance(event, ToolStarted))
    for event in finished:
        name, arguments = calls[int(event.call_id.removeprefix("c1_"))]
        outcome, lines = event.result.outcome, written[arguments.get("text")]
        outcomes[name, outcome] += 1
        if name == "mcp__h__write":
            assert starts[event.call_id] == 1 and lines <= 1  # it never runs twice
            assert outcome == "unknown" or (outcome == "ok" and lines == 1)
        else:
            assert outcome == "ok" or (outcome == "error" and starts[event.call_id] == 3)


@pytest.mark.slow
def test_every_call_gets_exactly_one_result_while_the_server_is_killed(tmp_path):
    lines, outcomes = tmp_path / "lines", Counter()
    files = [tmp_path / "writing", tmp_path / "reading"]

    async def main():
        draw = random.Random(1)
        sources = [
            hostile_server(f"pid={files[0]}", "child", "killed"),
            hostile_server(f"pid={files[1]}", "killed", name="t", trust=True),
        ]
        for number in range(ROUNDS):
            calls = [
                ("mcp__t__echo", {"x": place})
                if draw.random() < 0.5
                else ("mcp__h__write", {"path": str(lines), "text": f"{number} {place}"})
                for place in range(CALLS)
            ]
            agent = Agent(scripted(call_reply(*calls), "done"), tools=sources)
            assert (await agent.run("go", "s")).done
            events = [record.event for record in await agent.store.read("s")]
            check_round(events, calls, Counter(lines.read_text().splitlines()), outcomes)

    asyncio.run(main())
    pids = [pid for file in files for pid in list_pids(file)]
    assert len(pids) > len(files)  # at least one was killed
    assert list_session_members(pids) == []
    print(f"{ROUNDS * CALLS:,} calls: {dict(outcomes)}, {len(pids):,} servers started")

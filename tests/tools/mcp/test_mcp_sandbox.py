"""Servers in a sandbox: their own, that of the agent, and none."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

import pytest

from bridle import Agent
from bridle.mcp import server
from bridle.sandbox import find_sandbox
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.errors import MisuseError
from tests.tools.mcp.mcp_servers import CONTEXT, SCRIPT
from tests.tools.mcp.mcp_servers import more_hostile as hostile


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A workspace, and a file outside of it that a sandbox hides."""
    monkeypatch.setenv("SECRET_KEY", "abcdefgh")
    (tmp_path / "private.txt").write_text("secret")
    (tmp_path / "work").mkdir()
    return tmp_path


def look(source, path):
    """What a server sees of the file and of the environment, and whether it can write next to the file."""

    async def main():
        (seen,) = await source.call("mcp__h__env", {"path": str(path)}, CONTEXT)
        target = path.parent / "written.txt"
        written = source.call("mcp__h__write", {"path": str(target), "text": "x"}, CONTEXT)
        await asyncio.gather(written, return_exceptions=True)
        await source.close()
        return json.loads(seen.text), target.exists()

    async def connected():
        assert (await source.list_tools()).error == ""
        return await main()

    return asyncio.run(connected())


def list_processes(word):
    """Ids of the processes with this word in their command, with those in namespaces."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def make_box(place):
    return find_sandbox(place / "work", readable=[SCRIPT.parent])


def test_a_server_in_a_sandbox_sees_and_writes_only_its_workspace(place):
    seen, written = look(hostile(), place / "private.txt")
    assert seen == {"home": True, "key": None} and written
    (place / "written.txt").unlink()
    seen, written = look(hostile(sandbox=make_box(place)), place / "private.txt")
    assert seen == {"home": False, "key": None} and not written
    inside = place / "work" / "a.txt"
    inside.write_text("x")
    seen, written = look(hostile(sandbox=make_box(place)), inside)
    assert seen["home"] and written


def test_the_sandbox_of_the_agent_holds_for_servers_that_name_none(place):
    def run(**options):
        calls = call_reply(("mcp__h__env", {"path": str(place / "private.txt")}))
        agent = Agent(scripted(calls, "done"), tools=[hostile(**options)], sandbox=make_box(place))
        result = agent.run_sync("go")
        (found,) = [each for message in result.messages for each in message.results]
        return json.loads(found.text)["home"]

    assert run() is False
    assert run(sandbox="off") is True


def test_a_sandboxed_server_ends_with_everything_it_started(place):
    mark = f"pid={place / 'work' / 'pids'}"
    source = hostile("child", mark, sandbox=make_box(place))

    async def main():
        assert (await source.list_tools()).error == ""
        assert len(list_processes(mark)) >= 2  # the server and its child
        await source.close()

    asyncio.run(main())
    assert list_processes(mark) == []


def test_wrong_uses_of_a_sandbox_are_refused_at_construction(place):
    box = make_box(place)
    with pytest.raises(MisuseError, match="for servers that are started by a command"):
        server("https://a.example/mcp", sandbox=box)
    with pytest.raises(MisuseError):
        server([sys.executable, "x.py"], cwd=place, sandbox=box)
    with pytest.raises(MisuseError, match="can write the folder of the log"):
        Agent("sim:", tools=[hostile()], sandbox=box, store=place / "work" / "log.db")

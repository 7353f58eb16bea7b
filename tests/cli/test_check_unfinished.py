"""`bridle check waiting`: every kind of unfinished session that new code cannot continue."""

import asyncio
import json

import pytest

from bridle import Agent, RunHandle, tool
from bridle.cli.main import main
from bridle.run.context.resources import copy_agent
from bridle.stores import open_store
from bridle.values.errors import CannotContinue
from bridle.values.events import ToolStarted

HEAD = """
from bridle import Agent, tool

def make_refund(name="refund"):
    @tool(name=name, effect="write", approve=True)
    def refund(order: str) -> str:
        '''Pay back.'''
        return "paid"

    return refund

class Guard:
    name = "guard"

    def before_tool(self, call, context):
        return None

refund = make_refund()
"""
PAYER = 'payer = Agent("sim:", name="payer", tools=[{tools}])\n'
VERSIONS = {
    "plain": 'desk = Agent("sim:", name="desk", tools=[refund])',
    "renamed": 'desk = Agent("sim:", name="desk", tools=[make_refund("pay_back")])',
    "version 1": 'desk = Agent("sim:", name="desk", tools=[refund], version="1")',
    "version 2": 'desk = Agent("sim:", name="desk", tools=[refund], version="2")',
    "continues 1": 'desk = Agent("sim:", name="desk", tools=[refund], version="2", continues=["1"])',
    "guarded": 'desk = Agent("sim:", name="desk", tools=[refund], hooks=[Guard()])',
    "number": 'desk = Agent("sim:", name="desk", tools=[refund], output=int)',
    "handover": PAYER.format(tools="refund") + 'desk = Agent("sim:", name="desk", handover=[payer])',
    "handover renamed": PAYER.format(tools='make_refund("pay_back")')
    + 'desk = Agent("sim:", name="desk", handover=[payer])',
    "alone": 'desk = Agent("sim:", name="desk")',
    "nested": PAYER.format(tools="refund") + 'desk = Agent("sim:", name="desk", tools=[payer.as_tool()])',
    "nested renamed": PAYER.format(tools='make_refund("pay_back")')
    + 'desk = Agent("sim:", name="desk", tools=[payer.as_tool()])',
}
REFUND = '!call refund {"order": "17"}\n!then\n!say settled'
HANDED_OVER = f"!call transfer_to_payer {{}}\n!then\n{REFUND}"
NESTED = f"!call payer {json.dumps({'prompt': REFUND})}\n!then\n!say all"
PROMPTS = {"handover": HANDED_OVER, "nested": NESTED}


class Death(BaseException):
    """The process is gone."""


class MortalStore:
    """A store whose process dies before a tool starts; for nested runs, before the one at this depth."""

    def __init__(self, path, starts_left):
        self._inner, self._starts_left, self._is_dead = open_store(path), starts_left, False

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def append(self, session, after, records, *, epoch=None):
        if isinstance(records[-1].event, ToolStarted):
            self._is_dead = self._is_dead or self._starts_left == 0
            self._starts_left -= 1
        if self._is_dead:
            raise Death
        await self._inner.append(session, after, records, epoch=epoch)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name, code in VERSIONS.items():
        (tmp_path / f"{name.replace(' ', '_')}.py").write_text(HEAD + code + "\n")
    return tmp_path


def load(version):
    namespace = {}
    exec(HEAD + VERSIONS[version], namespace)
    return namespace["desk"]


async def begin(version, interrupted):
    """A session that waits for a person, or whose process dies after the approval, before the tool starts."""
    store = open_store("log.db")
    agent = copy_agent(load(version), store=store)
    assert (await agent.run(PROMPTS.get(version, REFUND), session="s")).stop == "waiting"
    if interrupted:
        (asked,) = [each.id for each in await store.sessions(limit=9) if await agent.approvals(each.id)]
        (question,) = await agent.approvals(asked)
        await agent.approve(asked, question.id)
        dying = copy_agent(load(version), store=MortalStore("log.db", 1 if version == "nested" else 0))
        with pytest.raises(Death):
            await dying.resume("s")
    await store.close()


def check(capsys, version):
    code = main(["check", "waiting", "-a", f"{version.replace(' ', '_')}.py", "--json"])
    report = json.loads(capsys.readouterr().out)
    found = [(each["session"], each["status"]) for each in report["sessions"] if each["obstacles"]]
    kinds = [obstacle["kind"] for each in report["sessions"] for obstacle in each["obstacles"]]
    assert report["refused"] == len(found)
    assert code == (1 if found else 0)
    return report, found, kinds


@pytest.mark.parametrize("interrupted", [False, True], ids=["waiting", "interrupted after the approval"])
@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("plain", "renamed", "tool"),
        ("version 1", "version 2", "version"),
        ("version 1", "plain", "version"),
        ("guarded", "plain", "hook"),
        ("number", "plain", "output"),
        ("handover", "alone", "agent"),
        ("handover", "handover renamed", "tool"),
        ("nested", "nested renamed", "tool"),
        ("nested", "alone", "tool"),
    ],
)
def test_session_that_the_code_cannot_continue_fails_the_check(
    place, capsys, first, second, kind, interrupted
):
    asyncio.run(begin(first, interrupted))
    status = "interrupted" if interrupted else "waiting"
    report, found, kinds = check(capsys, second)
    assert (found, kinds) == ([("s", status)], [kind])
    assert (report["waiting"], report["unfinished"]) == ((0, 1) if interrupted else (1, 0))
    # The code that began it, and for a version the code that continues it, pass.
    for same in (first, *(["continues 1"] if first == "version 1" else [])):
        assert check(capsys, same)[1:] == ([], [])
    refused = copy_agent(load(second), store=open_store("log.db"))

    async def resume():
        before = [len(await refused.store.read(each.id)) for each in await refused.store.sessions(limit=9)]
        with pytest.raises(CannotContinue, match="cannot be continued with this code"):
            await refused.resume("s")
        after = [len(await refused.store.read(each.id)) for each in await refused.store.sessions(limit=9)]
        assert before == after
        await refused.store.close()

    asyncio.run(resume())


@pytest.mark.parametrize("status", ["interrupted", "paused"])
def test_session_without_a_question_needs_its_version_only(place, capsys, status):
    @tool
    async def look() -> str:
        """Look, and pause the run."""
        await handles[0].pause()
        return "nothing"

    async def begin_and_stop():
        store = MortalStore("log.db", 0 if status == "interrupted" else 1)
        agent = Agent("sim:", name="desk", tools=[look], version="1", store=store)
        handles.append(agent.stream("!call look {}\n!then\n!say one", session="p").start())
        try:
            assert (await handles[0].result()).stop == "paused"
        except Death:
            assert status == "interrupted"
        await agent.store.close()

    handles: list[RunHandle[str]] = []
    asyncio.run(begin_and_stop())
    assert check(capsys, "version 2")[1:] == ([("p", status)], ["version"])
    assert check(capsys, "continues 1")[1:] == ([], [])


def test_finished_sessions_are_not_checked(place, capsys):
    agent = copy_agent(load("version 1"), store=open_store("log.db"))
    assert agent.run_sync("!say one", session="d").stop == "done"
    report, *_ = check(capsys, "version 2")
    assert (report["waiting"], report["unfinished"], report["sessions"]) == (0, 0, [])

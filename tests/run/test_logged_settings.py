"""A log is data: its rules may forbid, and nothing in it allows a call or brings an address or a credential."""

import asyncio
import json
import sys

import pytest
from msgspec.structs import replace

from bridle import Agent, PermissionRule, Policy, tool
from bridle.cli.main import main
from bridle.errors import SessionNotFound
from bridle.run.model_connection import find_model_by_name
from bridle.stores import open_store
from bridle.values import events as e
from bridle.values.record import GENESIS, seal_record
from bridle.values.request import Extra
from bridle.values.settings import Settings

PROMPT = '!call pay {"amount": 7}\n!then\n!say done'
PAYING = """
from pathlib import Path
from bridle import tool
@tool(effect="write")
def pay(amount: int) -> str:
    "Pay."
    Path({path!r}).write_text(str(amount))
    return "paid"
"""
ALLOW = PermissionRule(decision="allow", name="everything")
DENY = PermissionRule(decision="deny", name="closed", tools=("pay",))


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "paying.py").write_text(PAYING.format(path=str(tmp_path / "paid")))
    monkeypatch.setattr(sys, "stdin", None)
    return tmp_path


def foreign_log(home, **settings) -> str:
    """A store with a session as somebody else could have written it."""
    path = str(home / "foreign.db")

    async def write():
        store = open_store(path)
        event = e.Configured(settings=Settings(model=find_model_by_name("sim:"), **settings), session="s")
        await store.append("s", 0, [seal_record(1, 1.0, event, GENESIS)])
        await store.close()

    asyncio.run(write())
    return path


def bridle(home, *words) -> int:
    return main([*words, "--tools", str(home / "paying.py"), "--store", str(home / "foreign.db")])


@pytest.mark.parametrize(
    "policy",
    [
        Policy(rules=(ALLOW,)),
        Policy(rules=(PermissionRule(decision="allow", tools=("pay",), arguments={"amount": "<= 50"}),)),
        Policy(otherwise=ALLOW),
    ],
)
def test_a_log_that_allows_everything_allows_nothing_when_a_prompt_is_put(home, policy, capsys):
    foreign_log(home, policy=policy)
    bridle(home, "run", PROMPT, "--session", "s")
    assert not (home / "paid").exists()
    if policy.rules:
        told = capsys.readouterr().err
        assert "1 rule in the session's log would allow calls" in told
        assert "--trust-policy" in told


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_log_that_allows_everything_allows_nothing_when_it_is_resumed(home, is_trusted):
    @tool(effect="write")
    def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError("nobody agreed")

    path = str(home / "foreign.db")
    asking = Policy(rules=(PermissionRule(decision="ask", name="ask first", tools=("pay",)),))
    agent = Agent("sim:", tools=[pay], store=path, policy=asking)
    assert agent.run_sync(PROMPT, session="s").stop == "waiting"

    async def craft():
        store = open_store(path)
        records = await store.read("s")
        configured = next(r.event for r in records if isinstance(r.event, e.Configured))
        settings = replace(configured.settings, policy=Policy(rules=(ALLOW,)))
        event = replace(configured, settings=settings)
        await store.append(
            "s", records[-1].seq, [seal_record(records[-1].seq + 1, 1e9, event, records[-1].hash)]
        )
        await store.close()

    asyncio.run(craft())
    bridle(home, "resume", "s", *(["--trust-policy"] if is_trusted else []))
    assert (home / "paid").exists() == is_trusted, "the rule of the log would let the call run"


@pytest.mark.parametrize("how", ["--trust-policy", "--policy", "--yes"])
def test_the_caller_can_say_that_it_is_allowed(home, how):
    foreign_log(home, policy=Policy(rules=(ALLOW,)))
    (home / "rules.toml").write_text('[[rules]]\ndecision = "allow"\n')
    more = [how, str(home / "rules.toml")] if how == "--policy" else [how]
    assert bridle(home, "run", PROMPT, "--session", "s", *more) == 0
    assert (home / "paid").read_text() == "7"


def test_what_a_log_denies_stays_denied_behind_its_rule_that_allows(home):
    foreign_log(home, policy=Policy(rules=(ALLOW, DENY)))
    bridle(home, "run", PROMPT, "--session", "s", "--yes")
    assert not (home / "paid").exists()


def test_extras_of_a_log_bring_no_address_and_no_credential(home, capsys):
    servers = [{"type": "url", "url": "https://bait.example/mcp", "name": "x", "authorization_token": "t"}]
    extras = (
        Extra(name="mcp_servers", json=json.dumps(servers)),
        Extra(name="metadata", json='{"user_id": "wss://bait.example"}'),
        Extra(name="context_management", json='{"apiKey": "k"}'),
        Extra(name="service_tier", json='"auto"'),
        Extra(name="speed", json="{"),
    )
    path = foreign_log(home, extras=extras)
    assert bridle(home, "run", "!say well", "--session", "s") == 0
    told = capsys.readouterr().err
    assert "'mcp_servers' contains an address" in told
    assert "'metadata' contains an address" in told
    assert "'context_management' contains a credential (apiKey)" in told
    assert "'speed' is not valid JSON" in told

    async def last():
        store = open_store(path)
        records = await store.read("s")
        await store.close()
        return [r.event.settings for r in records if isinstance(r.event, e.Configured)][-1]

    assert [extra.name for extra in asyncio.run(last()).extras] == ["service_tier"]


def test_a_session_that_was_never_prompted_is_begun_by_run(home):
    """A process that died before the prompt leaves the settings alone; a program then resumes, else runs."""
    agent = Agent("sim:", store=foreign_log(home))
    with pytest.raises(SessionNotFound, match="never prompted"):
        agent.resume_sync("s")
    assert agent.run_sync("!say begun", "s").text == "begun"

"""`--caller` of commands that list, count, export and remove: what belongs to one person's runs, and nothing else."""

import asyncio
import json
import time

import pytest

from bridle import Agent, tool
from bridle.cli.main import main
from bridle.stores import open_store
from bridle.testing import FakeClock

MODEL = "sim:anthropic/claude-sonnet-5-5"
OLD = time.time() - 100 * 86_400


@tool(effect="write", approve=True)
def pay(usd: int) -> str:
    """Pay, if a person agrees."""
    return f"paid {usd}"


async def write_sessions(path):
    """Old sessions of Ann and Bob at one company, of Ann at another, of both together, and of nobody."""
    store = open_store(path)
    agent = Agent(MODEL, name="shop", tools=[pay], store=store, clock=FakeClock(OLD))
    for session, tenant, caller in (
        ("ann", "acme", "ann"),
        ("bob", "acme", "bob"),
        ("elsewhere", "other", "ann"),
        ("both", "acme", "ann"),
        ("both", "acme", "bob"),
        ("nobody", "", ""),
    ):
        await agent.run("!say hello", session, tenant=tenant, caller=caller)
    for session, caller in (("ann-asks", "ann"), ("bob-asks", "bob")):
        await agent.run('!call pay {"usd": 5}', session, tenant="acme", caller=caller)
    await agent.run("!say hello", "handed", tenant="acme", caller="ann")
    await agent.run('!call pay {"usd": 5}', "handed", tenant="acme", caller="bob")
    await store.close()


@pytest.fixture
def log(tmp_path, monkeypatch):
    path = tmp_path / "log.db"
    monkeypatch.setenv("BRIDLE_STORE", str(path))
    asyncio.run(write_sessions(path))
    return path


@pytest.fixture
def run(capsys):
    def run_command(*words):
        code = main([*words])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in words and not code else out, err

    return run_command


def test_approvals_of_a_caller_are_those_of_its_runs(log, run):
    for caller, sessions in (("ann", {"ann-asks"}), ("bob", {"bob-asks", "handed"}), ("eve", set())):
        _, found, _ = run("approvals", "--caller", caller, "--json")
        assert {each["session"] for each in found} == sessions, caller
    assert run("approvals", "--caller", "ann", "--tenant", "other", "--json")[1] == []
    assert run("approvals", "handed", "--caller", "ann", "--json")[1] == []
    code, _, err = run("approvals", "bob-asks", "--caller", "ann")
    assert code == 2 and "caller 'ann' has not prompted in session 'bob-asks'" in err


def test_cost_of_a_caller_is_that_of_its_runs(log, run):
    rows = {row["name"]: row["calls"] for row in run("cost", "--caller", "ann", "--json")[1]["rows"]}
    assert rows == {"ann": 1, "elsewhere": 1, "both": 1, "ann-asks": 1, "handed": 1}
    assert run("cost", "--caller", "ann", "--tenant", "other", "--json")[1]["total"]["calls"] == 1
    assert run("cost", "both", "--caller", "bob", "--json")[1]["total"]["calls"] == 1
    assert run("cost", "--caller", "", "--json")[1]["total"]["calls"] == 1
    assert run("cost", "bob", "--caller", "ann")[0] == 2


def test_an_export_for_a_caller_is_of_a_session_in_which_it_prompted(log, run, tmp_path):
    assert run("session", "export", "both", "--caller", "bob", "-o", str(tmp_path / "both.jsonl"))[0] == 0
    code, out, err = run("session", "export", "bob", "--caller", "ann", "-o", str(tmp_path / "bob.jsonl"))
    assert code == 2 and "has not prompted" in err and not out
    code, _, _ = run(
        "session", "export", "bob", "--caller", "ann", "--as-test", str(tmp_path / "test_bob.py")
    )
    assert code == 2
    assert {path.name for path in tmp_path.glob("*b*.*")} - {"log.db"} == {"both.jsonl"}


def list_names(path):
    async def read():
        store = open_store(path)
        names = {info.id for info in await store.sessions()}
        await store.close()
        return names

    return asyncio.run(read())


def test_gc_removes_sessions_in_which_nobody_else_prompted(log, run):
    everything = list_names(log)
    _, planned, _ = run("store", "gc", "--older-than", "90d", "--caller", "ann", "--json")
    assert {row["session"] for row in planned["removed"]} == {"ann", "elsewhere"}
    assert {row["session"]: row["reason"] for row in planned["kept"]} == {
        "ann-asks": "it waits for an answer",
        "handed": "it waits for an answer",
        "both": "another caller prompted in it too",
    }
    assert list_names(log) == everything, "a dry run removed something"
    assert run("store", "gc", "--older-than", "90d", "--caller", "ann", "--tenant", "acme", "--yes")[0] == 0
    assert list_names(log) == everything - {"ann"}
    assert run("store", "gc", "--older-than", "90d", "--tenant", "acme", "--yes")[0] == 0
    assert list_names(log) == everything - {"ann", "bob", "both"}


def test_gc_keeps_a_session_that_shares_its_records_with_one_that_is_not_chosen(log, run):
    async def fork():
        store = open_store(log)
        agent = Agent(MODEL, name="shop", tools=[pay], store=store, clock=FakeClock(OLD))
        await agent.fork("ann", new="branch")
        await agent.run("!say mine", "branch", caller="bob", tenant="acme")
        await store.close()

    asyncio.run(fork())
    _, planned, _ = run("store", "gc", "--older-than", "90d", "--caller", "ann", "--json")
    kept = {row["session"]: row["reason"] for row in planned["kept"]}
    assert kept["ann"] == "it shares records with branch"
    assert kept["branch"] == "another caller prompted in it too"


def test_gc_of_a_tenant_needs_an_age(log, run):
    code, _, err = run("store", "gc", "--tenant", "acme")
    assert code == 2 and "give --older-than too" in err
    _, planned, _ = run("store", "gc", "--tenant", "other", "--older-than", "0d", "--json")
    assert {row["session"] for row in planned["removed"]} == {"elsewhere"}

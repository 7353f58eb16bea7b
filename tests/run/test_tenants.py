"""A session belongs to its tenant, and no session id reaches another tenant's data."""

import asyncio
import json

import pytest

from bridle import Agent, Budget, tool
from bridle.cli.main import main
from bridle.memory import Notes
from bridle.run.lineage import compare_sessions, list_branches
from bridle.sessions import CrossTenant, fork_session
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import RawTool
from bridle.values.calls import CompensationFinished, CompensationStarted
from bridle.values.errors import MisuseError
from bridle.values.events import Forked, Prompted, Resumed

RESERVED = ["notes:acme", "notes:", "budget:tenant:acme", "budget:x#1"]


def make_agent(store, *words):
    return Agent(scripted(*words), store=store)


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_names_are_refused_at_every_entry(name):
    store = MemoryStore()
    asyncio.run(Notes(store).add("Fridays.", tenant="acme"))
    agent = make_agent(store, "one", "two")
    agent.run_sync("go", session="s")
    before = asyncio.run(store.sessions(limit=100))
    entries = [
        lambda: agent.run(f"hi {name}", session=name),
        lambda: agent.resume(name),
        lambda: agent.approvals(name),
        lambda: agent.approve(name, "x"),
        lambda: agent.reject(name, "x"),
        lambda: agent.settle(name, "x", "done"),
        lambda: agent.compensate(name),
        lambda: agent.fork(name),
        lambda: agent.fork("s", new=name),
        lambda: agent.compare("s", name),
        lambda: agent.branches(name),
        lambda: fork_session(store, "s", None, name),
        lambda: fork_session(store, name),
        lambda: compare_sessions(store, name, "s"),
        lambda: list_branches(store, name),
        lambda: agent.notes.list(session=name),
    ]
    for entry in entries:
        with pytest.raises(MisuseError):
            asyncio.run(entry())
    for start in (agent.stream, agent.resume_stream):
        with pytest.raises(MisuseError):
            start("hi", name) if start == agent.stream else start(name)
    assert asyncio.run(store.sessions(limit=100)) == before


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_names_are_refused_by_every_command(name, tmp_path, capsys):
    store = str(tmp_path / "log.db")
    assert main(["run", "!say hi", "--json", "--store", store]) == 0
    session = json.loads(capsys.readouterr().out)["session"]
    main(["memory", "add", "Fridays.", "--tenant", "acme", "--store", store])
    for command in (
        ("run", "hi", "--session", name),
        ("resume", name),
        ("show", name),
        ("show", "--as", "log", name),
        ("show", "--as", "log", name, "--tree"),
        ("session", "fork", name),
        ("session", "fork", session, "--as", name),
        ("session", "diff", session, name),
        ("approvals", name),
        ("session", "compensate", name, "--list"),
        ("cost", name),
        ("show", "--as", "cache", name),
    ):
        capsys.readouterr()
        assert main([*command, "--store", store]) == 2, command
        told = capsys.readouterr().err
        assert told.count("\n") == 1, told
        assert "budget" in told or "notes" in told, (command, told)


def test_another_tenant_cannot_go_on_fork_answer_or_read():
    store = MemoryStore()
    pay = RawTool("pay", "Pay.", {"type": "object"}, lambda given: "paid", approve=True)
    agent = Agent(scripted(call_reply(("pay", {})), "paid", "more"), tools=[pay], store=store)
    assert agent.run_sync("my secret", session="s", tenant="acme").stop == "waiting"
    (question,) = asyncio.run(agent.approvals("s", tenant="acme"))
    for tenant in ("globex", "", "ACME"):
        for entry in (
            lambda tenant=tenant: agent.run("tell me", session="s", tenant=tenant),
            lambda tenant=tenant: agent.resume("s", tenant=tenant),
            lambda tenant=tenant: agent.approvals("s", tenant=tenant),
            lambda tenant=tenant: agent.approve("s", question.id, tenant=tenant),
            lambda tenant=tenant: agent.reject("s", question.id, tenant=tenant),
            lambda tenant=tenant: agent.compensate("s", tenant=tenant),
            lambda tenant=tenant: agent.fork("s", tenant=tenant),
            lambda tenant=tenant: agent.compare("s", "s", tenant=tenant),
        ):
            with pytest.raises(MisuseError, match="does not belong to") as caught:
                asyncio.run(entry())
            assert "acme" not in str(caught.value), "the owner's name is not told to others"
    records = asyncio.run(store.read("s"))
    assert sum(isinstance(record.event, Prompted) for record in records) == 1
    asyncio.run(agent.approve("s", question.id, tenant="acme"))
    assert asyncio.run(agent.resume("s", tenant="acme")).text == "paid"
    assert agent.run_sync("go on", session="s", tenant="acme").text == "more"


def test_a_session_without_a_tenant_is_no_tenants():
    agent = make_agent(MemoryStore(), "one", "two")
    agent.run_sync("go", session="s")
    with pytest.raises(MisuseError, match="'acme'"):
        agent.run_sync("go on", session="s", tenant="acme")
    assert agent.run_sync("go on", session="s").text == "two"


def test_a_fork_belongs_to_the_tenant_of_what_it_shares():
    agent = make_agent(MemoryStore(), "one", "two")
    agent.run_sync("go", session="s", tenant="acme")
    asyncio.run(agent.fork("s", new="f"))
    with pytest.raises(MisuseError, match="does not belong"):
        agent.run_sync("go on", session="f", tenant="globex")
    assert agent.run_sync("go on", session="f", tenant="acme").text == "two"


def test_a_caller_who_says_so_crosses_and_it_is_recorded():
    from bridle.sessions import CrossTenant

    store = MemoryStore()
    agent = make_agent(store, "one", "two", "three")
    agent.run_sync("go", session="s", tenant="acme")
    assert agent.run_sync("go on", session="s", tenant=CrossTenant("globex")).text == "two"
    fork = asyncio.run(agent.fork("s", new="f", tenant=CrossTenant("globex")))
    events = [record.event for record in asyncio.run(store.read(fork.session))]
    prompts = [(event.tenant, event.cross_tenant) for event in events if isinstance(event, Prompted)]
    assert prompts == [("acme", ""), ("globex", "globex")]
    assert [event.cross_tenant for event in events if isinstance(event, Forked)] == ["globex"]
    with pytest.raises(MisuseError, match="does not belong"):
        agent.run_sync("again", session="s", tenant="globex")


def test_a_resumption_across_tenants_is_recorded():
    from bridle.sessions import CrossTenant

    store = MemoryStore()
    pay = RawTool("pay", "Pay.", {"type": "object"}, lambda given: "paid", approve=True)
    agent = Agent(scripted(call_reply(("pay", {})), "paid"), tools=[pay], store=store)
    agent.run_sync("go", session="s", tenant="acme")
    asyncio.run(agent.resume("s", tenant=CrossTenant("globex")))
    events = [record.event for record in asyncio.run(store.read("s"))]
    assert [event.cross_tenant for event in events if isinstance(event, Resumed)] == ["globex"]


@pytest.mark.parametrize("settled", [(), ("c1_0",)])
def test_undoing_across_tenants_is_recorded(settled):
    def pay_back() -> str:
        """Pay it back."""
        return "paid back"

    @tool(effect="write", compensate=pay_back)
    def pay() -> str:
        """Pay."""
        return "paid"

    store = MemoryStore()
    agent = Agent(scripted(call_reply(("pay", {})), "paid"), tools=[pay], store=store)
    agent.run_sync("go", session="s", tenant="acme", budget=Budget(steps=1))
    with pytest.raises(MisuseError, match="does not belong"):
        asyncio.run(agent.compensate("s", settled=settled, tenant="globex"))
    asyncio.run(agent.compensate("s", settled=settled, tenant=CrossTenant("globex")))
    events = [record.event for record in asyncio.run(store.read("s"))]
    undone = [event for event in events if isinstance(event, CompensationStarted | CompensationFinished)]
    assert [event.across for event in undone] == ["globex"] * (1 if settled else 2)


def test_the_commands_keep_tenants_apart(tmp_path, capsys):
    store = str(tmp_path / "log.db")
    main(["run", "!say hi", "--tenant", "acme", "--json", "--store", store])
    session = json.loads(capsys.readouterr().out)["session"]
    for command in (
        ("run", "!say more", "--session", session, "--tenant", "globex"),
        ("session", "fork", session, "--tenant", "globex"),
        ("show", session, "--tenant", "globex"),
    ):
        assert main([*command, "--store", store]) == 2, command
        assert "does not belong to tenant 'globex'" in capsys.readouterr().err
    more = ("run", "!say more", "--session", session, "--store", store)
    assert main(list(more)) == 0, "without a tenant it goes on for the session's own"
    assert main([*more, "--tenant", "globex", "--across-tenants"]) == 0


def test_the_family_of_a_session_is_told_to_its_tenant_only():
    agent = make_agent(MemoryStore(), "one", "two", "three")
    agent.run_sync("go", session="s", tenant="acme")
    asyncio.run(agent.fork("s", at=1, new="before"))
    asyncio.run(agent.fork("s", new="behind"))
    agent.run_sync("globex's secret", session="before", tenant="globex")
    asyncio.run(agent.fork("before", at=1, new="unprompted"))

    def family(session, tenant):
        return {b.session: (b.parent, b.depth) for b in asyncio.run(agent.branches(session, tenant=tenant))}

    for session, tenant in (("s", "globex"), ("behind", ""), ("before", "acme")):
        with pytest.raises(MisuseError, match="does not belong"):
            family(session, tenant)
    whole = family("s", None)
    assert set(whole) == {"s", "before", "behind", "unprompted"}
    assert family("s", CrossTenant("globex")) == whole
    assert family("s", "acme") == {"s": ("", 0), "behind": ("s", 1), "unprompted": ("s", 1)}
    assert whole["unprompted"][0] == "s", "it shares with `before` only what that shares with `s`"
    assert family("before", "globex") == {"before": ("", 0), "unprompted": ("", 0)}


def test_the_notes_of_a_session_are_its_tenants():
    agent = make_agent(MemoryStore(), "one")
    agent.run_sync("go", session="s", tenant="acme")
    kept = asyncio.run(agent.notes.add("Fridays.", session="s", tenant="acme"))
    assert asyncio.run(agent.notes.list(session="s", tenant="acme")) == (kept,)
    assert asyncio.run(agent.notes.list(session="s", tenant=CrossTenant("globex"))) == (kept,)
    for entry in (
        agent.notes.list(session="s", tenant="globex"),
        agent.notes.add("Mondays.", session="s", tenant="globex"),
        agent.notes.add("Mondays.", session="s", tenant=CrossTenant("globex")),
        agent.notes.remove(kept.id, session="s", tenant="globex"),
    ):
        with pytest.raises(MisuseError, match="does not belong"):
            asyncio.run(entry)
    assert asyncio.run(agent.notes.list(session="s")) == (kept,)


def test_every_command_about_a_session_keeps_tenants_apart(tmp_path, capsys):
    store = str(tmp_path / "log.db")
    session = "s"
    pay = RawTool("pay", "Pay.", {"type": "object"}, lambda given: "paid", approve=True)
    agent = Agent(scripted(call_reply(("pay", {})), "paid"), tools=[pay], store=store)
    assert agent.run_sync("go", session=session, tenant="acme").stop == "waiting"
    asyncio.run(agent.store.close())

    def run_command(*command, code=0):
        assert main([*command, "--store", store]) == code, command
        found = capsys.readouterr()
        return found.out if code == 0 else found.err

    commands = [
        ("resume", session),
        ("approvals", session),
        ("session", "diff", session, session),
        ("show", "--as", "log", session),
        ("show", "--as", "log", session, "--tree"),
        ("cost", session),
        ("show", "--as", "cache", session),
        ("session", "compensate", session, "--list"),
        ("memory", "list", "--session", session),
    ]
    for command in commands:
        assert "does not belong to tenant 'globex'" in run_command(*command, "--tenant", "globex", code=2), (
            command
        )
    for command in commands[1:]:
        run_command(*command, "--tenant", "acme")
    for command in (*commands[1:-1], ("show", session), ("session", "fork", session)):
        assert "--across-tenants" in run_command(*command, "--tenant", "globex", code=2), command
        run_command(*command, "--tenant", "globex", "--across-tenants")
    crossing = ("resume", session, "--tenant", "globex", "--across-tenants")
    assert "add --tools FILE" in run_command(*crossing, code=2), "the tenant is no objection any more"
    (question,) = json.loads(run_command("approvals", "--tenant", "acme", "--json"))
    assert json.loads(run_command("approvals", "--tenant", "globex", "--json")) == []
    for answer in ("approve", "reject"):
        assert question["id"] in run_command(
            "approvals", answer, question["id"], "--tenant", "globex", code=2
        )
    assert json.loads(run_command("cost", "--tenant", "globex", "--json"))["rows"] == []
    assert len(json.loads(run_command("cost", "--tenant", "acme", "--json"))["rows"]) == 1
    assert json.loads(run_command("cost", "--cache", "--tenant", "globex", "--json"))["rows"] == []
    run_command("approvals", "approve", question["id"], "--tenant", "acme")
    assert json.loads(run_command("approvals", "--json")) == []

"""Notes of callers: a note of one caller is in no request of another, and agents that take over may show them."""

import asyncio
import json

import pytest

from bridle import Agent, Handover, Memory, MisuseError, PermissionRule, Policy, tool
from bridle.cli.main import main
from bridle.memory import Note
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.memory.notes import Notes, notes_log_name
from bridle.run.model_connection import ModelConnection
from bridle.sessions import replay_sync
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.transports.inprocess import InProcessTransport
from bridle.values import events as e
from tests.suite.campaign import list_seeds, new_random
from tests.suite.wire_models import MODELS

HEALTH = "Ada has diabetes."


class Wire:
    """Connections to a simulator that keep the bytes of every request."""

    def __init__(self, model=MODELS[0]):
        self.model, self.simulator, self.requests = find_model(model, environ={}), Simulator(), []

    async def answer(self, outgoing):
        self.requests.append(outgoing.body)
        return await self.simulator.answer(outgoing)

    def connect(self):
        codec = load_codec(self.model.endpoint.family)
        return ModelConnection(model=self.model, codec=codec, transport=InProcessTransport(self.answer))

    def take(self):
        requests, self.requests = b"\n".join(self.requests), []
        return requests.decode()


def remember(text, scope="always"):
    arguments = json.dumps({"note": text, "scope": scope})
    return f"!call remember {arguments}\n!then\n!say Noted."


def list_notes(store, **owner):
    return [note.text for note in asyncio.run(Notes(store).list(**owner))]


def read(store, kind, session="s"):
    return [record.event for record in asyncio.run(store.read(session)) if isinstance(record.event, kind)]


def test_a_note_of_one_caller_is_not_shown_to_another_of_the_same_tenant():
    store, wire = MemoryStore(), Wire()
    agent = Agent(wire.connect(), store=store, memory=Memory())
    agent.run_sync(remember(HEALTH), tenant="acme", caller="ada")
    wire.take()
    agent.run_sync("!say hello", tenant="acme", caller="bob")
    assert HEALTH not in wire.take()
    agent.run_sync("!say hello", tenant="acme", caller="ada")
    assert HEALTH in wire.take()
    assert list_notes(store, tenant="acme") == list_notes(store, tenant="acme", caller="bob") == []
    assert list_notes(store, tenant="acme", caller="ada") == [HEALTH]


def test_the_same_caller_of_another_tenant_is_another_person():
    store, wire = MemoryStore(), Wire()
    agent = Agent(wire.connect(), store=store, memory=Memory())
    asyncio.run(agent.notes.add(HEALTH, tenant="acme", caller="ada"))
    agent.run_sync("!say hello", tenant="globex", caller="ada")
    agent.run_sync("!say hello", caller="ada")
    assert HEALTH not in wire.take()
    names = {notes_log_name(*pair) for pair in (("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""))}
    assert len(names) == 4


def test_the_notes_that_code_wrote_for_the_tenant_are_shown_to_its_callers():
    store, wire = MemoryStore(), Wire()
    agent = Agent(wire.connect(), store=store, memory=Memory())
    asyncio.run(agent.notes.add("Invoices go out on Fridays.", tenant="acme"))
    agent.run_sync("!say hello", tenant="acme", caller="ada")
    assert "Invoices go out on Fridays." in wire.take()


def test_notes_of_a_model_for_a_tenant_are_withheld_from_callers(capsys, tmp_path):
    path, wire = tmp_path / "log.db", Wire()
    agent = Agent(wire.connect(), store=path, memory=Memory())
    agent.run_sync(remember(HEALTH), tenant="acme")  # without a caller, as a batch
    wire.take()
    agent.run_sync("!say hello", session="s", tenant="acme", caller="bob")
    assert HEALTH not in wire.take()
    (loaded,) = read(agent.store, e.MemoryLoaded)
    assert (loaded.notes, loaded.withheld_count, loaded.caller) == ((), 1, "bob")
    agent.run_sync("!say hello", tenant="acme")
    assert HEALTH in wire.take()
    asyncio.run(agent.store.close())
    assert main(["session", "tail", "s", "--since", "0", "--store", str(path)]) == 0
    assert "0 notes for the caller bob" in (shown := capsys.readouterr().out), shown
    assert "1 of the tenant not shown to a caller" in shown


def test_with_the_scope_of_the_tenant_its_callers_share_the_notes():
    store, wire = MemoryStore(), Wire()
    agent = Agent(wire.connect(), store=store, memory=Memory(scope="tenant"))
    agent.run_sync(remember("Deliveries need a pallet."), tenant="acme", caller="ada")
    wire.take()
    agent.run_sync("!say hello", tenant="acme", caller="bob")
    assert "Deliveries need a pallet." in wire.take()
    assert list_notes(store, tenant="acme") == ["Deliveries need a pallet."]
    (written,) = read(store, e.NoteWritten, notes_log_name("acme"))
    assert (written.caller, written.tenant) == ("ada", "acme"), (
        "an erasure finds what was written for a person"
    )


def test_another_caller_in_the_same_session_gets_other_notes():
    store, wire = MemoryStore(), Wire()
    agent = Agent(wire.connect(), store=store, memory=Memory())
    asyncio.run(agent.notes.add(HEALTH, caller="ada"))
    agent.run_sync("!say one", session="s", caller="ada")
    assert HEALTH in wire.take()
    agent.run_sync("!say two", session="s", caller="bob")
    agent.run_sync("!say three", session="s")
    assert HEALTH not in wire.take()
    agent.run_sync("!say four", session="s", caller="ada")
    assert HEALTH in wire.take()
    assert [event.caller for event in read(store, e.MemoryLoaded)] == ["ada", "bob", "", "ada"]


def test_a_model_removes_notes_of_its_caller_only():
    store = MemoryStore()
    agent = Agent("sim:", store=store, memory=Memory())
    asyncio.run(agent.notes.add("Invoices go out on Fridays."))
    note = asyncio.run(agent.notes.add(HEALTH, caller="ada"))
    assert note == Note(id="c1", text=HEALTH)
    refused = agent.run_sync('!call forget {"id": "t1"}\n!then\n!say done', caller="ada")
    assert "note for everyone" in refused.messages[2].results[0].parts[0].text
    strange = agent.run_sync('!call forget {"id": "c1"}\n!then\n!say done', caller="bob")
    assert strange.messages[2].results[0].outcome == "error"
    assert list_notes(store, caller="ada") == [HEALTH]
    agent.run_sync('!call forget {"id": "c1"}\n!then\n!say done', caller="ada")
    assert (list_notes(store, caller="ada"), len(list_notes(store))) == ([], 1)


def test_a_run_inside_a_tool_has_the_notes_of_the_caller():
    store, wire = MemoryStore(), Wire()
    inner = Agent(wire.connect(), name="inner", memory=Memory())
    outer = Agent("sim:", store=store, tools=[inner.as_tool("ask", "Ask.")])
    asyncio.run(outer.notes.add(HEALTH, caller="ada"))
    call = "!call ask " + json.dumps({"prompt": "!say fine"}) + "\n!then\n!say done"
    outer.run_sync(call, caller="bob")
    assert HEALTH not in wire.take()
    outer.run_sync(call, caller="ada")
    assert HEALTH in wire.take()


TRANSFER = "!call transfer_to_billing\n!then\n!say Here."


@pytest.mark.parametrize("sees", ["all", "prompt"])
@pytest.mark.parametrize("model", MODELS)
def test_an_agent_without_memory_shows_the_notes_after_a_declared_hand_over(model, sees):
    store, wire = MemoryStore(), Wire(model)
    billing = Agent(wire.connect(), name="billing", instructions="You bill.")
    desk = Agent(
        "sim:", store=store, memory=Memory(handover=True), handover=[Handover(agent=billing, sees=sees)]
    )
    asyncio.run(desk.notes.add(HEALTH, caller="ada"))
    assert desk.run_sync(TRANSFER, "s", caller="ada").text == "Here."
    requests = wire.take()
    assert HEALTH in requests
    assert '"remember"' not in requests, "the tools belong to the agent that declares them"
    billing_alone = desk.run_sync(TRANSFER, "other", caller="bob")
    assert billing_alone.text == "Here."
    assert HEALTH not in wire.take()


def test_without_a_declaration_the_notes_stay_with_the_agent_that_has_memory():
    store, wire = MemoryStore(), Wire()
    billing = Agent(wire.connect(), name="billing")
    desk = Agent("sim:", store=store, memory=Memory(), handover=[billing])
    asyncio.run(desk.notes.add(HEALTH, caller="ada"))
    desk.run_sync(TRANSFER, "s", caller="ada")
    assert HEALTH not in wire.take()


def test_notes_pass_through_agents_without_memory_and_a_resumed_run_keeps_them():
    @tool(effect="write")
    def book(seat: int) -> str:
        """Book a seat."""
        return f"seat {seat}"

    store, wire = MemoryStore(), Wire()
    last = Agent(
        wire.connect(), name="last", tools=[book], policy=Policy(otherwise=PermissionRule(decision="ask"))
    )
    middle = Agent("sim:", name="middle", handover=[last])
    desk = Agent("sim:", store=store, memory=Memory(handover=True), handover=[middle])
    asyncio.run(desk.notes.add(HEALTH, caller="ada"))
    steps = "!call transfer_to_middle", "!call transfer_to_last", '!call book {"seat": 4}', "!say Here."
    assert desk.run_sync("\n!then\n".join(steps), "s", caller="ada").stop == "waiting"
    assert HEALTH in wire.take()
    (question,) = asyncio.run(desk.approvals("s"))
    asyncio.run(desk.approve("s", question.id, by="ann"))
    assert asyncio.run(desk.resume("s")).text == "Here."
    assert HEALTH in wire.take()
    assert len(read(store, e.Configured)) == 3, "the settings of the run are those that were recorded"
    assert [event.caller for event in read(store, e.MemoryLoaded)] == ["ada"]
    assert replay_sync("s", store=store).is_identical
    assert replay_sync("s", agent=desk).is_equal


def test_invalid_options_and_owners_are_refused():
    with pytest.raises(MisuseError, match=r"'person' - at `\$.memory.scope`"):
        Agent("sim:", memory=Memory(scope="person"))  # type: ignore[arg-type]
    notes = Notes(MemoryStore())
    with pytest.raises(MisuseError, match="give one of `session` and `caller`"):
        asyncio.run(notes.list(session="s", caller="ada"))
    with pytest.raises(MisuseError, match="reserved"):
        Agent("sim:").run_sync("hi", session=notes_log_name("", "ada"))


def test_the_command_line_reads_and_writes_the_notes_of_a_caller(tmp_path, capsys):
    store = ["--store", str(tmp_path / "log.db")]
    assert main(["memory", "add", HEALTH, "--tenant", "acme", "--caller", "ada", *store]) == 0
    assert capsys.readouterr().out == "c1 added\n"
    assert main(["memory", "list", "--tenant", "acme", *store]) == 0
    assert capsys.readouterr().out == "no notes\n"
    assert main(["memory", "list", "--tenant", "acme", "--caller", "ada", *store]) == 0
    assert HEALTH in capsys.readouterr().out
    assert main(["memory", "remove", "c1", "--tenant", "acme", "--caller", "ada", *store]) == 0
    assert main(["memory", "list", "--session", notes_log_name("acme", "ada"), *store]) == 2
    assert "name the tenant with --tenant" in capsys.readouterr().err


TENANTS, CALLERS = ("", "acme", "globex"), ("", "ada", "bob", "cyd")
ROUTES = (
    "",
    "!call transfer_to_billing\n!then\n",
    "!call transfer_to_billing\n!then\n!call transfer_to_desk\n!then\n",
)


@pytest.mark.parametrize("seed", list_seeds(60, 6))
def test_a_note_of_one_caller_reaches_no_request_of_another(seed):
    random = new_random(f"caller notes {seed}")
    store, wire = MemoryStore(), Wire(random.choice(MODELS))
    is_shown = random.random() < 0.7
    memory = random.choice((Memory(handover=is_shown), Memory(refresh="run", handover=is_shown)))
    own = Memory() if random.random() < 0.3 else None
    billing = Agent(wire.connect(), name="billing", handover=["desk"], memory=own)
    desk = Agent(wire.connect(), name="desk", store=store, handover=[billing], memory=memory)
    canaries, shown = {}, 0
    shared = {}  # sessions in which no note was written: their conversation is everybody's
    for number in range(12):
        tenant, caller = random.choice(TENANTS), random.choice(CALLERS)
        canary = f"canary-{number}-{random.randrange(10**9)}"
        kind = random.choice(("code", "model", "shared", "shared"))
        route = random.choice(ROUTES)
        if kind == "code":
            asyncio.run(desk.notes.add(canary, tenant=tenant, caller=caller))
            if caller:
                canaries[canary] = tenant, caller
        if kind == "model":
            scope = random.choice(("always", "conversation"))
            desk.run_sync(remember(canary, scope), tenant=tenant, caller=caller)
            canaries[canary] = tenant, caller
        elif kind == "shared":
            session = shared.setdefault((tenant, random.randrange(2)), f"shared-{len(shared)}")
            desk.run_sync(f"{route}!say done", session, tenant=tenant, caller=caller)
        else:
            desk.run_sync(f"{route}!say done", tenant=tenant, caller=caller)
        requests = wire.take()
        for each, (of_tenant, of_caller) in canaries.items():
            shown += each in requests
            if each in requests:
                assert (of_tenant, of_caller) == (tenant, caller), each
    assert shown or not canaries

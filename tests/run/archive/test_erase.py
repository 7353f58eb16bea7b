"""Erasure: what the store has of a caller is in none of its files, and what stays verifies and goes on."""

import asyncio
import json
import re

import pytest

from bridle import Agent, Budget, KeepRaw, Limits, Memory, PermissionRule, Policy, RunHandle, tool
from bridle.cli.main import main
from bridle.core.redaction import ERASED_CALLER
from bridle.events import NoteWritten
from bridle.memory import Note, Notes
from bridle.run.archive.erase import BY_DEFAULT, REASON_DEFAULT, Erasure
from bridle.run.archive.sessions import list_sessions
from bridle.run.memory.notes import notes_log_name
from bridle.run.recovery.verification import verify_store
from bridle.sessions import SessionControl, erase_caller, fork_session, redact_note
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.stores.sqlite.store import SqliteStore
from bridle.values.calls import ControlRefused, ControlRequested
from bridle.values.errors import MisuseError
from bridle.values.evals import TrialScored, eval_log_name
from bridle.values.events import MemoryLoaded, Prompted, Steered
from bridle.values.record import GENESIS, seal_record
from tests.suite.campaign import list_seeds, new_random
from tests.suite.leases import hold

HEALTH = "Ada has diabetes, says clinic 4711."


@tool(effect="read")
def read_file(name: str) -> str:
    """Read a file."""
    return f"{name} " * 20_000


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request, tmp_path):
    if request.param == "postgres":
        opened = open_store(request.getfixturevalue("postgres").new_url())
    else:
        opened = open_store(None if request.param == "memory" else tmp_path / "log.db")
    yield opened
    asyncio.run(opened.close())


def read_raw(store, folder):
    """Everything that the store keeps, as bytes."""
    if isinstance(store, MemoryStore):
        lines = [record.data for line in store._lines.values() for record in line.own]
        return b"\n".join([*lines, *store._blobs.values()])
    if not isinstance(store, SqliteStore):
        return asyncio.run(store._use(read_tables))
    files = [path for path in folder.rglob("*") if path.is_file()]
    return b"\n".join(path.read_bytes() for path in files)


async def read_tables(connection):
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    rows = [row for (table,) in tables for row in await connection.fetch(f'SELECT * FROM "{table}"')]
    values = [value for row in rows for value in row]
    return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in values)


def find_problems(store):
    sessions, problems = asyncio.run(verify_store(store, {}))
    return [*problems, *(problem for each in sessions for problem in each.problems)]


def read(store, kind, session="s"):
    return [record.event for record in asyncio.run(store.read(session)) if isinstance(record.event, kind)]


def remember(text, scope="always"):
    return f"!call remember {json.dumps({'note': text, 'scope': scope})}\n!then\n!say Noted."


def erase(store, caller, **given):
    return asyncio.run(erase_caller(store, caller, **given))


def list_ids(store):
    return {info.id for info in asyncio.run(list_sessions(store, 1000))}


def make_agent(store):
    return Agent("sim:", store=store, memory=Memory(), tools=[read_file])


def test_sessions_notes_and_results_of_a_caller_are_gone(store, tmp_path):
    agent = make_agent(store)
    asyncio.run(agent.notes.add(HEALTH, tenant="acme", caller="ada"))
    agent.run_sync(
        f'!call read_file {{"name": "{HEALTH}"}}\n!then\n!say ok', "a", tenant="acme", caller="ada"
    )
    agent.run_sync("!say hello", "b", tenant="acme", caller="bob")
    assert HEALTH.encode() in read_raw(store, tmp_path)
    planned = erase(store, "ada", dry_run=True)
    assert HEALTH.encode() in read_raw(store, tmp_path), "a dry run changes nothing"
    done = erase(store, "ada", reason="request 17", by="ann")
    assert planned.notes == done.notes == 1
    assert (done.tenant, done.kept, done.is_complete) == ("acme", (), True)
    assert HEALTH.encode() not in read_raw(store, tmp_path)
    assert find_problems(store) == []
    assert asyncio.run(Notes(store).list(tenant="acme", caller="ada")) == ()
    assert read(store, Prompted, "b")[0].caller == "bob"
    if not isinstance(store, MemoryStore):  # it removes no sessions
        assert planned.removed_sessions == done.removed_sessions == ("a",)
        assert list_ids(store) == {"b"}
    assert erase(store, "ada") == Erasure(caller="ada", tenant="", reason=REASON_DEFAULT, by=BY_DEFAULT)


def test_a_shared_session_stays_and_only_the_part_of_the_caller_goes(store, tmp_path):
    agent = make_agent(store)
    agent.run_sync("!say Bob's part 1234567", "s", caller="bob")
    agent.run_sync(remember(HEALTH, "conversation"), "s", caller="ada")
    agent.run_sync(f"!say it was about {HEALTH}", "s", caller="bob")
    done = erase(store, "ada")
    raw = read_raw(store, tmp_path)
    assert HEALTH.encode() not in raw, "what a later run repeats goes too"
    assert b"Bob's part 1234567" in raw
    assert [event.caller for event in read(store, Prompted)] == ["bob", ERASED_CALLER, "bob"]
    assert done.removed_sessions == () and [each.session for each in done.redacted] == ["s"]
    assert find_problems(store) == []
    assert agent.run_sync("!say still here", "s", caller="bob").text == "still here"


def test_a_session_that_another_person_forked_stays_without_the_content(store, tmp_path):
    agent = make_agent(store)
    agent.run_sync(f"!say {HEALTH}", "a", caller="ada")
    asyncio.run(fork_session(store, "a", None, "b"))
    agent.run_sync("!say mine", "b", caller="bob")
    done = erase(store, "ada")
    assert done.removed_sessions == () and HEALTH.encode() not in read_raw(store, tmp_path)
    assert find_problems(store) == []
    assert agent.run_sync("!say still here", "b", caller="bob").text == "still here"


def test_notes_for_the_tenant_that_a_run_for_the_caller_wrote_are_erased_where_they_were_shown(
    store, tmp_path
):
    shared = Agent("sim:", store=store, memory=Memory(scope="tenant"))
    asyncio.run(shared.notes.add("Invoices go out on Fridays, number 815.", tenant="acme"))
    shared.run_sync(remember(HEALTH), "a", tenant="acme", caller="ada")
    shared.run_sync("!say hello", "b", tenant="acme", caller="bob")
    done = erase(store, "ada", tenant="acme")
    raw = read_raw(store, tmp_path)
    assert HEALTH.encode() not in raw and b"Invoices go out on Fridays, number 815." in raw
    assert [note.text for note in asyncio.run(shared.notes.list(tenant="acme"))] == [
        "Invoices go out on Fridays, number 815."
    ]
    (loaded,) = read(store, MemoryLoaded, "b")
    assert [HEALTH in note.text for note in loaded.notes] == [False, False]
    assert loaded.notes[0].text == "Invoices go out on Fridays, number 815."
    assert done.is_complete and find_problems(store) == []


def test_older_notes_kept_requests_and_the_name_go_and_a_dry_run_says_the_same(tmp_path):
    """A note from before there were notes of callers names its session only."""
    agent = Agent("sim:", store=tmp_path / "log.db", memory=Memory(scope="tenant"), keep_raw=KeepRaw())
    store = agent.store
    agent.run_sync(f"!say {HEALTH}", "shared", tenant="acme", caller="ada")
    agent.run_sync("!say Bob's part 1234567", "shared", tenant="acme", caller="bob")
    agent.run_sync("!say hello", "own", tenant="acme", caller="ada")
    note = Note(id="t1", text=HEALTH, written_by="model")
    older = seal_record(1, 1.0, NoteWritten(note=note, key="k", session="own"), GENESIS)
    asyncio.run(store.append(notes_log_name("acme"), 0, [older]))
    agent.run_sync("!say hello", "other", tenant="acme", caller="bob")
    planned, done = erase(store, "ada", dry_run=True), erase(store, "ada")
    assert planned.redacted == done.redacted
    assert [each.session for each in done.redacted] == [notes_log_name("acme"), "other", "shared"]
    raw = read_raw(store, tmp_path)
    assert HEALTH.encode() not in raw and b'"ada"' not in raw
    assert find_problems(store) == []
    assert agent.run_sync("!say on", "shared", tenant="acme", caller="bob").text == "on"


def test_a_scored_trial_of_an_erased_session_is_redacted(store, tmp_path):
    agent = make_agent(store)
    agent.run_sync(f"!say {HEALTH}", "trial", caller="ada")
    log = eval_log_name("suite-1")
    scored = TrialScored(task="t", number=1, session="trial", output=HEALTH, passed=True)
    other = TrialScored(task="t", number=2, session="other", output="fine 123456", passed=True)
    first = seal_record(1, 1.0, scored, GENESIS)
    asyncio.run(store.append(log, 0, [first, seal_record(2, 2.0, other, first.hash)]))
    erase(store, "ada")
    raw = read_raw(store, tmp_path)
    assert HEALTH.encode() not in raw and b"fine 123456" in raw
    assert read(store, TrialScored, log)[0].passed, "the verdict stays"
    assert find_problems(store) == []


def test_what_is_in_use_or_unfinished_stays_and_is_named(store):
    agent = make_agent(store)
    agent.run_sync(f"!say {HEALTH}", "a", caller="ada")
    if not isinstance(store, MemoryStore):
        with hold(store, "a"):
            done = erase(store, "ada")
        assert ("a", "a run is using it") in {(each.name, each.reason) for each in done.kept}
        assert not done.is_complete
    assert erase(store, "ada").is_complete


def test_an_unfinished_run_stays_until_it_is_over(tmp_path, capsys):
    @tool(effect="write")
    def pay(euros: int) -> str:
        """Pay."""
        return "paid"

    path = tmp_path / "log.db"
    ask = Policy(otherwise=PermissionRule(decision="ask"))
    agent = Agent("sim:", store=path, tools=[pay], policy=ask)
    assert agent.run_sync('!call pay {"euros": 5}', "s", caller="ada").stop == "waiting"
    asyncio.run(agent.store.close())
    given = ["store", "erase", "--caller", "ada", "--store", str(path)]
    assert main(given) == 1
    assert "s stays: it waits for an answer" in capsys.readouterr().err
    agent = Agent("sim:", store=path, tools=[pay], policy=ask)
    agent.run_sync("!say never mind", "s", caller="ada")
    asyncio.run(agent.store.close())
    assert main(given) == 0
    assert "removed session s" in capsys.readouterr().out


def test_a_name_of_several_tenants_is_refused_without_the_tenant(store):
    agent = make_agent(store)
    agent.run_sync("!say hello", "a", tenant="acme", caller="ada")
    agent.run_sync("!say hello", "b", tenant="globex", caller="ada")
    with pytest.raises(MisuseError, match="'acme', 'globex'"):
        erase(store, "ada")
    erase(store, "ada", tenant="acme")
    assert read(store, Prompted, "b")[0].caller == "ada"
    for given in ({"caller": " "}, {"caller": "ada", "reason": ""}, {"caller": "ada", "by": " "}):
        with pytest.raises(MisuseError):
            erase(store, **given)


def test_the_session_of_a_run_inside_a_tool_goes_with_that_of_the_caller(store, tmp_path):
    inner = Agent("sim:", name="inner")
    outer = Agent("sim:", store=store, tools=[inner.as_tool(description="Ask.")])
    prompt = json.dumps({"prompt": f"!say {HEALTH}"})
    outer.run_sync(f"!call inner {prompt}\n!then\n!say done", "s", caller="ada")
    assert len(list_ids(store)) == 2
    done = erase(store, "ada")
    assert HEALTH.encode() not in read_raw(store, tmp_path)
    assert isinstance(store, MemoryStore) or (len(done.removed_sessions), list_ids(store)) == (2, set())


class Room:
    """A session of bob, in which others send messages while a tool runs."""

    def __init__(self, store, **options):
        self.store, self.lines = store, {}
        self.handles: list[RunHandle[str]] = []

        @tool(effect="read")
        async def listen(number: int) -> str:
            """Hear what others say to the run."""
            for text, by, way in self.lines[number]:
                if way == "steer":
                    await self.handles[-1].steer(text, by=by)
                else:  # as another process does; a run in memory takes no such request
                    await SessionControl(store, self.handles[-1].session).steer(text, by=by, wait_seconds=0)
            return "heard"

        self.agent = Agent("sim:", store=store, tools=[listen], **options)

    def talk(self, session, lines, **given):
        self.lines[len(self.lines)] = lines
        prompt = f'!call listen {{"number": {len(self.lines) - 1}}}\n!then\n!say over'

        async def run():
            self.handles.append(self.agent.stream(prompt, session, **given).start())
            return await self.handles[-1].result()

        return asyncio.run(run())


def test_what_a_caller_said_in_a_run_of_another_person_goes(store, tmp_path):
    room = Room(store, keep_raw=KeepRaw())
    lines = [
        (HEALTH, "ada", "steer"),
        ("Ada asked 815.", "ada", "request"),
        ("Bob says 816.", "bob", "steer"),
    ]
    assert room.talk("s", lines, tenant="acme", caller="bob").stop == "done"
    planned, done = erase(store, "ada", dry_run=True), erase(store, "ada")
    assert planned.tenant == "acme"
    assert {each.session for each in planned.redacted} == {"s", "control:s"}
    raw = read_raw(store, tmp_path)
    for text in (HEALTH.encode(), b"Ada asked 815.", b'"ada"'):
        assert text not in raw
    assert b"Bob says 816." in raw
    steered = read(store, Steered)
    assert [each.by for each in steered if each.by] == [
        "bob" if "816" in each.message else ERASED_CALLER for each in steered
    ]
    assert {each.session for each in done.redacted} == {"s", "control:s"}
    assert done.is_complete and done.removed_sessions == () and find_problems(store) == []
    assert room.agent.run_sync("!say on", "s", tenant="acme", caller="bob").text == "on"
    assert erase(store, "ada") == Erasure(caller="ada", tenant="", reason=REASON_DEFAULT, by=BY_DEFAULT)


def test_requests_that_no_run_took_or_that_were_refused_go_too(store, tmp_path):
    agent = make_agent(store)
    agent.run_sync("!say hello", "s", caller="bob")
    late = ControlRequested(action="steer", run="m0", by="ada", text=HEALTH)
    other = ControlRequested(action="steer", run="m0", by="carl", text="Carl says 817.")
    first = seal_record(1, 1.0, late, GENESIS)
    asyncio.run(store.append("control:s", 0, [first, seal_record(2, 2.0, other, first.hash)]))
    last = asyncio.run(store.read("s"))[-1]
    refused = ControlRefused(request=first.hash, action="steer", why=f"too late: {HEALTH}", by="ada")
    asyncio.run(store.append("s", last.seq, [seal_record(last.seq + 1, last.at + 1, refused, last.hash)]))
    done = erase(store, "ada")
    raw = read_raw(store, tmp_path)
    assert HEALTH.encode() not in raw and b'"ada"' not in raw and b"Carl says 817." in raw
    assert {each.session for each in done.redacted} == {"s", "control:s"}
    assert find_problems(store) == []
    assert agent.run_sync("!say on", "s", caller="bob").text == "on"


def test_message_in_an_unfinished_run_of_another_person_is_named_until_the_run_is_over(tmp_path):
    @tool(effect="write", approve=True)
    def pay(euros: int) -> str:
        """Pay."""
        return "paid"

    room = Room(tmp_path / "log.db")
    waiting = Agent("sim:", store=tmp_path / "log.db", tools=[*room.agent.tools.values(), pay])
    room.store, room.agent = waiting.store, waiting
    assert room.talk("t", [(HEALTH, "ada", "steer")], caller="bob").stop == "done"

    async def wait():
        room.lines[0] = [(HEALTH, "ada", "steer")]
        prompt = '!call listen {"number": 0}\n!call pay {"euros": 5}'
        room.handles.append(waiting.stream(prompt, "s", caller="bob").start())
        return await room.handles[-1].result()

    assert asyncio.run(wait()).stop == "waiting"
    done = erase(waiting.store, "ada")
    assert [(each.name, each.reason) for each in done.kept] == [("s", "it waits for an answer")]
    assert [each.session for each in done.redacted] == ["t"]
    (question,) = asyncio.run(waiting.approvals("s"))
    asyncio.run(waiting.reject("s", question.id))
    waiting.resume_sync("s")
    assert erase(waiting.store, "ada").is_complete
    assert HEALTH.encode() not in read_raw(waiting.store, tmp_path)
    assert find_problems(waiting.store) == []


# --- notes -------------------------------------------------------------------------------------------------


def test_a_note_is_redacted_in_its_log_and_where_it_was_shown(store, tmp_path):
    agent = make_agent(store)
    asyncio.run(agent.notes.add("Tea, please, says 815.", caller="ada"))
    asyncio.run(agent.notes.add(HEALTH, caller="ada"))
    agent.run_sync("!say hello", "s", caller="ada")
    asyncio.run(agent.notes.remove("c2", caller="ada"))
    assert HEALTH.encode() in read_raw(store, tmp_path), "a removed note stays in the log"
    done = asyncio.run(redact_note(store, "c2", caller="ada", reason="request 17", by="ann"))
    raw = read_raw(store, tmp_path)
    assert HEALTH.encode() not in raw and b"Tea, please, says 815." in raw
    assert [each.session for each in done.shown_in] == ["s"] and done.found_elsewhere == ()
    assert find_problems(store) == []
    for note, trouble in (("c2", "was removed before"), ("c9", "there is no note 'c9'")):
        with pytest.raises(MisuseError, match=trouble):
            asyncio.run(redact_note(store, note, caller="ada", reason="r", by="ann"))


def test_a_note_that_was_not_removed_is_removed_as_well(store, tmp_path):
    agent = make_agent(store)
    agent.run_sync(remember(HEALTH), "s", tenant="acme")
    agent.run_sync(remember(HEALTH[:20] + "!", "conversation"), "s", tenant="acme")
    done = asyncio.run(redact_note(store, "t1", tenant="acme", reason="r", by="ann"))
    assert asyncio.run(agent.notes.list(tenant="acme")) == ()
    assert [each.session for each in done.found_elsewhere] == ["s"], "the call that wrote it is named"
    asyncio.run(redact_note(store, "s1", session="s", reason="r", by="ann"))
    assert asyncio.run(agent.notes.list(session="s")) == ()
    assert find_problems(store) == []


def test_the_command_redacts_a_note(tmp_path, capsys):
    store = ["--store", str(tmp_path / "log.db")]
    whose = ["--tenant", "acme", "--caller", "ada"]
    assert main(["memory", "add", HEALTH, *whose, *store]) == 0
    why = ["--reason", "request 17", "--by", "ann"]
    assert main(["session", "redact", "--note", "c1", *whose, *why, *store]) == 0
    assert "removed the text of note c1" in capsys.readouterr().out
    assert HEALTH.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for wrong in (["--note", "c1", "--record", "1"], ["--caller", "ada"], []):
        assert main(["session", "redact", *wrong, *why, *store]) == 2
    assert main(["store", "verify", *store]) == 0


# --- the command -------------------------------------------------------------------------------------------


def test_the_command_reports_what_it_removed(tmp_path, capsys):
    path = tmp_path / "log.db"
    agent = make_agent(path)
    asyncio.run(agent.notes.add(HEALTH, caller="ada"))
    agent.run_sync(f"!say {HEALTH}", "a", caller="ada")
    agent.run_sync("!say hello", "b", caller="bob")
    agent.run_sync(f"!say {HEALTH}", "b", caller="ada")
    asyncio.run(agent.store.close())
    given = ["store", "erase", "--caller", "ada", "--store", str(path)]
    assert main([*given, "--dry-run"]) == 0
    assert "would remove session a" in (shown := capsys.readouterr().out), shown
    assert "would remove of caller 'ada': 1 session, 1 note\n" in shown
    assert HEALTH.encode() in path.read_bytes()
    assert main([*given, "--json", "--by", "ann", "--reason", "request 17"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["removed_sessions"], report["notes"], report["by"]) == (["a"], 1, "ann")
    assert HEALTH.encode() not in b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert main(["store", "verify", "--store", str(path)]) == 0
    assert re.search(r"request 17", capsys.readouterr().out)


# --- all of it, at random ----------------------------------------------------------------------------------

TENANTS, CALLERS = ("", "acme"), ("", "ada", "bob")


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("seed", list_seeds(20, 2))
def test_no_canary_of_an_erased_caller_is_left(seed, kind, tmp_path, request):
    random = new_random(f"erase {seed}")
    url = request.getfixturevalue("postgres").new_url() if kind == "postgres" else tmp_path / "log.db"
    store = open_store(None if kind == "memory" else url)
    helper = Agent("sim:", name="helper")
    billing = Agent("sim:", name="billing")
    of_callers = Memory(refresh="run", handover=True)
    of_tenants = Memory(refresh="run", handover=True, scope="tenant")
    desk = Agent(
        "sim:",
        store=store,
        memory=random.choice((of_callers, of_tenants)),
        tools=[read_file, helper.as_tool(description="Ask.")],
        handover=[billing],
        keep_raw=random.choice((None, KeepRaw())),
    )
    room = Room(store, keep_raw=random.choice((None, KeepRaw())))
    limits = Limits(tokens=10**9, period="day")
    canaries, runs_of = {}, {}
    for number in range(10):
        tenant, caller = random.choice(TENANTS), random.choice(CALLERS)
        canary = f"canary-{number}-{random.randrange(10**9)}"
        canaries[canary] = tenant, caller
        session = random.choice((f"{tenant}-shared", f"own-{number}", f"{tenant}-{caller}"))
        prompts = {
            "say": f"!say {canary}",
            "note": remember(canary, random.choice(("always", "conversation"))),
            "result": f'!call read_file {{"name": "{canary}"}}\n!then\n!say ok',
            "inner": f"!call helper {json.dumps({'prompt': f'!say {canary}'})}\n!then\n!say ok",
            "handover": f"!call transfer_to_billing\n!then\n!say {canary}",
        }
        budget = Budget(tenant=limits, caller=limits) if tenant and caller else None
        budget = random.choice((None, budget))
        whose, prompt = {"tenant": tenant, "caller": caller}, prompts[random.choice(list(prompts))]
        desk.run_sync(prompt, session, budget=budget, tenant=tenant, caller=caller)
        if random.random() < 0.5:  # someone says something in a run of another person
            said = f"said-{number}-{random.randrange(10**9)}"
            canaries[said], runs_of[said] = (tenant, random.choice(("ada", "bob"))), (tenant, caller)
            line = said, canaries[said][1], random.choice(("steer", "request"))
            room.talk(
                random.choice((f"{tenant}-room", f"{tenant}-{caller}-room")), [line], budget=budget, **whose
            )
        if caller and random.random() < 0.3:
            asyncio.run(desk.notes.add(f"code says {canary}", tenant=tenant, caller=caller))
        if random.random() < 0.2:
            asyncio.run(fork_session(store, session, None, f"fork-{number}"))
    tenant = random.choice(TENANTS)
    done = erase(store, "ada", tenant=tenant)
    raw = read_raw(store, tmp_path)
    left = {canary: canary.encode() in raw for canary in canaries}
    gone = {canary for canary, whose in canaries.items() if whose == (tenant, "ada")}
    assert not [canary for canary in gone if left[canary]], done
    # What others said in a run of the caller goes with that run.
    gone |= {canary for canary, whose in runs_of.items() if whose == (tenant, "ada")}
    assert not [canary for canary in canaries.keys() - gone if not left[canary]], "others keep theirs"
    assert done.kept == () and find_problems(store) == []
    for session in list_ids(store):
        owner = read(store, Prompted, session)[0].tenant
        assert desk.run_sync("!say on", session, tenant=owner, caller="bob").text == "on"
    asyncio.run(store.close())

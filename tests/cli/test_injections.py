"""Text from models, tools, rules, names and logs cannot control a terminal or hide on it."""

import asyncio
import io
import json
import os
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from bridle import Agent
from bridle.cli.main import main
from bridle.cli.terminal_approver import TerminalApprover
from bridle.hooks import before_model
from bridle.run.calls.approval import find_pending_approval
from bridle.run.recovery.breakers import CircuitBreakers
from bridle.sessions import ApprovalVerdict
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply, text_reply
from bridle.tools import RawTool
from bridle.values.calls import PendingApproval, PermissionRule, Policy
from bridle.values.errors import Failure, MisuseError
from bridle.values.memory import Memory
from bridle.values.usage import Usage
from bridle.watchers.console import Console
from tests.cli.injections import INJECTIONS, got_through
from tests.suite.campaign import choose_some


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log in which every text that somebody else writes holds an injection."""
    path = tmp_path_factory.mktemp("hostile") / "log.db"
    asyncio.run(_fill(path))
    return str(path)


async def _fill(path):
    for evil in INJECTIONS.values():

        def work(given, evil=evil):
            if given["kind"] == "fail":
                raise RuntimeError(f"no {evil}")
            return f"did {evil}"

        schema = {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "to": {"type": "string", "default": f"x{evil}"}},
            "required": ["kind"],
        }
        act = RawTool("act", f"Act {evil}.", schema, work, effect="write")
        rules = (PermissionRule(decision="ask", name=f"rule {evil}", arguments={"kind": "ask*"}),)
        script = scripted(
            call_reply(("act", {"kind": f"ok {evil}"}), ("act", {"kind": "fail"}), text=f"words {evil}"),
            call_reply((f"no{evil}tool", {"a": evil}), ("act", {"kind": f"ask {evil}"})),
            "done",
        )
        agent = Agent(
            script, tools=[act], policy=Policy(rules=rules), store=str(path), memory=Memory(), name=f"a{evil}"
        )
        result = await agent.run(f"go {evil}", f"s{evil}", tenant=f"t{evil}", caller=f"c{evil}")
        assert result.stop == "waiting", result.reason
        await agent.notes.add(f"note {evil}", tenant=f"t{evil}")
        await agent.store.close()


def commands(evil, log):
    name, store = f"s{evil}", ("--store", log)
    yield ("show", name, *store)
    yield ("show", name, "--json", *store)
    yield ("session", "tail", name, "--since", "0", *store)
    yield ("session", "tail", name, "--json", *store)
    for view in ("timeline", "tree", "events"):
        yield ("show", name, "--as", view, *store)
        yield ("show", name, "--as", view, "--json", *store)
    yield ("show", "--as", "log", name, *store)
    yield ("show", "--as", "log", name, "--json", *store)
    yield ("show", "--as", "log", name, "--tree", *store)
    yield ("session", "fork", name, "--as", f"f{evil}", *store)
    yield ("session", "fork", name, "--as", f"g{evil}", "--json", *store)
    yield ("session", "diff", name, f"f{evil}", *store)
    yield ("session", "diff", name, f"f{evil}", "--json", *store)
    yield ("approvals", name, *store)
    yield ("approvals", name, "--json", *store)
    yield ("cost", name, *store)
    yield ("show", "--as", "cache", name, *store)
    yield ("memory", "list", "--tenant", f"t{evil}", *store)
    yield ("memory", "list", "--tenant", f"t{evil}", "--json", *store)
    yield ("memory", "remove", f"t9{evil}", "--tenant", f"t{evil}", *store)
    yield ("session", "compensate", name, "--list", *store)
    yield ("show", f"none{evil}", *store)
    yield ("approvals", "approve", f"none{evil}", *store)
    yield ("approvals", "reject", f"none{evil}", "--reason", evil, *store)
    yield ("budgets", f"b{evil}", *store)
    yield (f"nosuch{evil}",)
    yield ("sessions", f"--bad{evil}")
    yield ("sessions", "--limit", evil)
    yield ("check", "lock", f"file{evil}.py", "--write")
    yield ("check", "prompts", f"file{evil}.py")
    yield ("run", "-m", f"nobody:{evil}", "hi", *store)


def run_command(*command):
    """The exit code, also where the parser ends the program."""
    try:
        return main(list(command))
    except SystemExit as end:
        return end.code


LISTINGS = [
    ("sessions",),
    ("sessions", "--json"),
    ("approvals",),
    ("approvals", "--json"),
    ("cost",),
    ("cost", "--by", "tenant"),
    ("cost", "--csv"),
    ("cost", "--json"),
    ("cost", "--cache", "--by", "tenant"),
    ("cost", "--cache", "--by", "agent"),
    ("budgets",),
    ("budgets", "--json"),
]


@pytest.mark.slow
def test_no_command_prints_what_steers_a_terminal_or_is_not_seen(log, capsys):
    assert len(INJECTIONS) >= 40
    through, printed = [], 0
    everything = choose_some(
        [command for evil in INJECTIONS.values() for command in commands(evil, log)], 0.3
    )
    everything += [(*listing, "--store", log) for listing in LISTINGS]
    for command in everything:
        run_command(*command)
        said = capsys.readouterr()
        printed += bool(said.out or said.err)
        bad = got_through(said.out + said.err)
        through += [(command, bad)] if bad else []
    assert through[:3] == []
    assert printed == len(everything)


@pytest.mark.slow
def test_an_answered_question_prints_nothing_of_it_either(log, capsys):
    for evil in choose_some([*INJECTIONS.values()], 0.3):
        main(["approvals", f"s{evil}", "--json", "--store", log])
        (question,) = json.loads(capsys.readouterr().out)
        assert question["session"] == f"s{evil}", "JSON says exactly what is in the log"
        edited = json.dumps({"kind": f"ask more {evil}"}, ensure_ascii=False)
        code = main(
            ["approvals", "approve", question["id"], "--arguments", edited, "--reason", evil, "--store", log]
        )
        said = capsys.readouterr()
        assert (code, got_through(said.out + said.err)) == (0, []), said
        assert "changed: kind: " in said.out
        main(["show", f"s{evil}", "--store", log])
        assert got_through(capsys.readouterr().out) == []


def test_a_run_shows_answers_with_their_lines_and_nothing_else(log, capsys):
    for name, evil in INJECTIONS.items():
        main(["run", f"!say one {evil}\n!say two\tthree", "--store", log])
        said = capsys.readouterr()
        assert got_through(said.out + said.err, prose="\n\t") == [], name
        assert "two\tthree" in said.out


def test_only_one_file_of_the_commands_prints():
    folder = Path(main.__code__.co_filename).parent
    for path in sorted(folder.rglob("*.py")):
        # The overview and the version are our own words.
        if path.name not in ("printing.py", "main.py"):
            assert not re.search(r"(?<![\w.])print\(|stdout\.write\(", path.read_text()), path


def show_question(path, capsys):
    schema = {
        "type": "object",
        "properties": {"amount": {"type": "integer"}, "to": {"$ref": "#/$defs/To"}},
        "$defs": {"To": {"type": "object", "properties": {"name": {"type": "string", "default": "shop"}}}},
    }
    pay = RawTool("pay", "Pay.", schema, lambda given: "paid", approve=True)
    script = scripted(call_reply(("pay", {"amount": 7, "to": {}}), ("pay", {"amount": 8})), "ok")
    agent = Agent(script, tools=[pay], store=path)
    assert agent.run_sync("go", session="s").stop == "waiting"
    asyncio.run(agent.store.close())
    main(["approvals", "--store", path])
    return capsys.readouterr().out


def test_defaults_are_part_of_what_is_agreed_to(tmp_path, capsys):
    path = str(tmp_path / "log.db")
    out = show_question(path, capsys)
    assert 'pay({"amount": 7, "to": {"name": "shop"}})' in out
    assert 'by default: to.name = "shop"' in out
    first = out.split()[0]
    assert (
        main(["approvals", "approve", first, "--arguments", '{"amount": 5, "to": {}}', "--store", path]) == 0
    )
    out = capsys.readouterr().out
    assert 'approved: pay({"amount": 5, "to": {"name": "shop"}})\n  changed: amount: 7 → 5\n' in out


def test_a_person_at_the_terminal_sees_the_defaults(monkeypatch):
    reading, writing = os.pipe()
    os.write(writing, b"y\n")
    os.close(writing)
    question = PendingApproval(
        id="1", session="s", call_id="c", tool="pay", arguments='{"amount":7}', rule="ask", question="run",
        complete_arguments='{"amount":7,"to":"shop"}',
    )  # fmt: skip
    noted = io.StringIO()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        verdict = asyncio.run(TerminalApprover(Console(None, noted)).ask(question))
    assert verdict.answer == "approve"
    assert 'by default: to = "shop"' in noted.getvalue()


def test_no_id_and_half_an_id_that_means_two_answer_nothing(tmp_path, capsys):
    path = str(tmp_path / "log.db")
    show_question(path, capsys)
    for command in ("approve", "reject"):
        for wanted in ("", " "):
            assert main(["approvals", command, wanted, "--store", path]) == 2
            assert "is empty" in capsys.readouterr().err
    agent = Agent("sim:", store=path)

    async def answer():
        questions = await agent.approvals("s")
        assert len(questions) == 2
        for wanted in ("", "\t"):
            with pytest.raises(MisuseError, match="empty"):
                await agent.approve("s", wanted)
        alike = [replace(question, id=f"ab{number}") for number, question in enumerate(questions)]
        assert find_pending_approval(alike, "ab1") == alike[1]
        with pytest.raises(MisuseError, match="matches several pending approvals"):
            find_pending_approval(alike, "ab")
        assert len(await agent.approvals("s")) == 2
        await agent.store.close()

    asyncio.run(answer())


def test_no_warning_of_a_run_prints_what_steers_a_terminal(caplog):
    """Python prints warnings to the terminal of a program that configures no logging."""
    evil = "".join(INJECTIONS.values())

    def fail(*given):
        raise Hostile(f"no {evil}")

    hook = before_model(name=f"hook {evil}")(lambda run, request: fail())
    for options in ({"hooks": [hook]}, {"instructions": [fail]}):
        result = Agent(scripted("never"), **options).run_sync("go", f"s{evil}")
        assert result.stop == "failed"
    doubted = text_reply("done", usage=Usage(input=10**9, output=1))
    assert Agent(scripted(doubted)).run_sync("go", f"s{evil}").done
    assert sum(each.name == "bridle" for each in caplog.records) == 3
    assert sum(each.name == "bridle.failures" for each in caplog.records) == 2
    assert not got_through("".join(caplog.messages))


Hostile = type("".join(INJECTIONS.values()).replace("\0", ""), (Exception,), {})
"""An error whose name steers a terminal."""


def test_no_warning_about_watchers_indexes_breakers_and_approval_keys_steers_a_terminal(
    caplog, monkeypatch, tmp_path
):
    evil = "".join(INJECTIONS.values())

    class Watching:
        def on_event(self, session, happening):
            raise Hostile

    class Index:
        async def find(self, query, tools, limit):
            raise Hostile

    async def approve(question):
        return ApprovalVerdict(answer="approve")

    tools = [
        RawTool(f"t{number}", "Try.", {"type": "object", "properties": {}}, lambda given: "x", approve=True)
        for number in range(3)
    ]
    key = tmp_path / "key \x1b[2J\u202e"
    key.write_text("short")
    key.chmod(0o600)
    monkeypatch.setenv("BRIDLE_APPROVAL_KEY_FILE", str(key))
    Agent(scripted("ok"), watchers=[Watching()]).run_sync("go")
    Agent(scripted("ok"), tools=tools, tools_shown_max=2, tool_index=Index()).run_sync("go")
    script = scripted(call_reply(("t0", {})), "ok")
    Agent(script, tools=tools, approver=approve, store=str(tmp_path / "log.db")).run_sync("go", f"s{evil}")
    model = replace(Agent(scripted("ok")).settings.model, id=evil)
    breakers = CircuitBreakers()
    for _ in range(20):
        admitted = breakers.admit_request(model, 0.0)
        if not isinstance(admitted, Failure):
            admitted.record_failure(Failure(kind="overloaded", message=evil, should_retry=True), 0.0)
    told = caplog.messages
    for words in ("and was dismissed", "the tool index raised", "approval key", "times in a row"):
        assert any(words in each for each in told), (words, told)
    assert not got_through("".join(told))

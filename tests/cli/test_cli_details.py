"""Details of the command that a new user meets: plurals, flags in errors, help, what is running, what was cut off."""

import asyncio
import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bridle import Agent, PermissionRule, Policy, PromptTemplate, per_turn, tool
from bridle.cli.main import main
from bridle.stores import open_store
from bridle.testing import ProviderSim
from bridle.values.calls import ApprovalAnswered
from bridle.watchers.console import Console

LOOK = '!call look {"city": "Oslo"}\n!call look {"city": "Rome"}\n!then\n!say Rome it is.'


@tool(effect="read")
def look(city: str) -> str:
    """Look at a city."""
    return f"{city} is fine"


@pytest.fixture
def store(tmp_path, monkeypatch):
    path = str(tmp_path / "log.db")
    monkeypatch.setenv("BRIDLE_STORE", path)
    return path


def run_and_read(capsys, *arguments):
    capsys.readouterr()
    assert main([*arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--usd", "-1"], "argument --usd: must be 0 or more, not -1"),
        (["--usd", "much"], "argument --usd: 'much' is not a number"),
        (["--steps", "0"], "argument --steps: must be 1 or more, not 0"),
        (["--tokens", "0"], "argument --tokens: must be 1 or more, not 0"),
        (["--seconds", "inf"], "argument --seconds: 'inf' is not a finite number"),
        (["--tool-calls", "-3"], "argument --tool-calls: must be 0 or more, not -3"),
        (["--wrap-up", "3"], "argument --wrap-up: must be above 0 and at most 1"),
    ],
)
def test_a_wrong_limit_is_reported_as_the_option_it_was_given_to(store, capsys, arguments, words):
    with pytest.raises(SystemExit, match="2"):
        main(["run", "hi", *arguments])
    assert words in capsys.readouterr().err


def test_help_explains_a_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["help", "run"])
    assert capsys.readouterr().out.startswith("usage: bridle run")
    assert main(["help", "rum"]) == 2
    assert "did you mean `bridle run`" in capsys.readouterr().err


def test_one_step_is_not_one_steps(store, capsys):
    session = Agent("sim:", store=store).run_sync("!say hi").session
    assert "1 step " in run_and_read(capsys, "sessions")
    assert re.search(r" 1 step ·", run_and_read(capsys, "show", session))


def test_costs_since_a_named_day_or_a_span(store, capsys):
    Agent("sim:", store=store).run_sync("!say hi")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    for since, calls in [("yesterday", 1), ("today", 1), ("2h", 1), ("7d", 1), (tomorrow, 0)]:
        assert json.loads(run_and_read(capsys, "cost", "--since", since, "--json"))["total"]["calls"] == calls


def test_costs_by_tool_count_runs_of_the_tool(store, capsys):
    Agent("sim:", tools=[look], store=store).run_sync(LOOK)
    table = json.loads(run_and_read(capsys, "cost", "--by", "tool", "--json"))
    assert {row["name"]: row["calls"] for row in table["rows"]} == {"look": 2, "(conversation)": 0}
    assert table["total"]["calls"] == 2


def test_a_diff_counts_calls_over_the_same_records_as_steps(store, capsys):
    agent = Agent("sim:", tools=[look], store=store)
    one, other = agent.run_sync(LOOK).session, agent.run_sync(LOOK).session
    calls = next(
        line for line in run_and_read(capsys, "session", "diff", one, other).splitlines() if " calls " in line
    )
    assert calls.split()[1:] == ["2", "look", "2", "look"]


def test_show_tells_what_a_cancelled_run_had_said(store, capsys):
    agent = Agent("sim:", store=store)

    async def cancel_after_first_words():
        stream = agent.stream("!say " + "alpha beta " * 200)
        async for event in stream:
            if event.text:
                stream.cancel()
        return stream.session

    session = asyncio.run(cancel_after_first_words())
    shown = run_and_read(capsys, "show", session)
    assert re.search(r"model  alpha.* \[cut off\]", shown)
    assert "cancelled" in shown


def test_an_approval_with_other_arguments_prints_those(store, capsys):
    @tool(effect="write")
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    policy = Policy(rules=(PermissionRule(decision="ask"),))
    agent = Agent("sim:", tools=[pay], store=store, policy=policy)
    session = agent.run_sync('!call pay {"amount": 5}\n!then\n!say done').session
    (question,) = json.loads(run_and_read(capsys, "approvals", "--json"))
    assert run_and_read(
        capsys, "approvals", "approve", question["id"], "--arguments", '{"amount": 3}'
    ).startswith('approved: pay({"amount": 3})')
    assert asyncio.run(agent.resume(session)).text == "done"


def test_the_numbers_of_an_answer_are_those_that_were_typed(store, capsys):
    @tool(effect="write", approve=True)
    def pay(account: int, amount: float) -> str:
        """Pay."""
        return "paid"

    agent = Agent("sim:", tools=[pay], store=store)
    session = agent.run_sync('!call pay {"account": 1, "amount": 5}\n!then\n!say done').session
    (question,) = json.loads(run_and_read(capsys, "approvals", "--json"))
    typed = '{"account": 1234567890123456789, "amount": 12345678901234567.89}'
    assert typed in run_and_read(capsys, "approvals", "approve", question["id"], "--arguments", f" {typed}")
    events = [record.event for record in asyncio.run(agent.store.read(session))]
    [answered] = [event for event in events if isinstance(event, ApprovalAnswered)]
    assert answered.arguments == typed
    assert asyncio.run(agent.resume(session)).text == "done"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_a_terminal_names_the_tools_at_work_and_clears_the_line(store, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    about, seen = Terminal(), []

    @tool(effect="read")
    def slow(city: str) -> str:
        """Look at a city, slowly."""
        seen.append(about.getvalue())
        return city

    provider = ProviderSim()
    agent = Agent(provider.model("sim:"), tools=[slow], watchers=[Console(Terminal(), about)])
    agent.run_sync('!call slow {"city": "Oslo"}\n!then\n!say ok')
    assert "running slow …" in seen[0]
    assert "\r\x1b[2K" in about.getvalue().partition("running slow …")[2], "the line is cleared"


def test_words_on_a_terminal_are_not_broken(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    text = "consequently everything depends on boundaries " * 8
    agent = Agent("sim:", watchers=[Console(out, io.StringIO())])

    async def watch():
        async for _ in agent.stream(f"!say {text}"):
            pass

    asyncio.run(watch())
    lines = out.getvalue().split("\n")
    assert max(map(len, lines)) <= 40
    assert out.getvalue().split() == text.split()


def test_lines_about_a_run_fit_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    about = Terminal()

    @tool(effect="read")
    def look(city: str) -> str:
        """Look at a city."""
        return f"{city} is fine and the weather there is quite remarkable for this time of the year"

    agent = Agent("sim:", tools=[look], watchers=[Console(Terminal(), about)])
    agent.run_sync('!call look {"city": "Oslo"}\n!then\n!say ok')
    Console(None, about).note("everything depends on boundaries " * 6)
    plain = re.sub(r"\x1b\[[0-9;]*[mK]", "", about.getvalue())
    lines = [line.rpartition("\r")[2] for line in plain.split("\n")]
    assert max(map(len, lines)) <= 60
    assert {word for line in lines[-5:] for word in line.split()} <= {
        "everything",
        "depends",
        "on",
        "boundaries",
    }


def test_resume_uses_the_instructions_that_functions_wrote_and_cannot_write_others(store, capsys):
    def describe() -> str:
        return "You work for Acme."

    def roster() -> str:
        return "Two are on duty."

    instructions: Any = [
        PromptTemplate("tone", "Be {tone}.", variables=["tone"]).fill(tone="brief"),
        describe,
    ]
    agent = Agent("sim:", instructions=instructions, store=store)
    agent.run_sync("hello", "s")
    assert main(["run", "--session", "s", "!say Yes"]) == 0
    records = asyncio.run(open_store(store).read("s"))
    kinds = [type(record.event).__name__ for record in records]
    assert kinds.count("InstructionWritten") == 1
    assert "PrefixMoved" not in kinds
    Agent("sim:", instructions=[*instructions, per_turn(roster)], store=store).run_sync("hello", "s")
    assert main(["run", "--session", "s", "!say No"]) != 0
    shown = capsys.readouterr()
    assert "instruction `roster` failed with LookupError: its code is not here" in shown.out + shown.err

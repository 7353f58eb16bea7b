"""Sessions of Python agents on the command line: `bridle resume -a FILE.py`, the recorded output type, the hints."""

import asyncio
import json
import re
from argparse import Namespace
from pathlib import Path

import pytest

from bridle import Agent, RunStopped
from bridle.cli.log_access import format_resume
from bridle.cli.main import main
from bridle.config.agent_loader import load_agents
from bridle.config.configuration import load_configuration
from bridle.values.errors import CannotContinue

AGENT = '''
from dataclasses import dataclass
from bridle import Agent, hooks, tool
from bridle.testing import simulated
from bridle.testing.scripted_model import call_reply

@dataclass
class Report:
    paid: int

@tool(effect="write", approve=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {{amount}}"

@hooks.before_tool()
def watch(run, call):
    return None

def check(report):
    return None

def answer(conversation):
    return '{{"paid": 7}}' if conversation.exchanges else call_reply(("pay", {{"amount": 7}}))

agent = Agent(simulated(answer), tools=[pay], output=Report, name="clerk", store={store!r}{more})
'''


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BRIDLE_STORE", raising=False)
    return tmp_path


def start_waiting_run(more=""):
    """An agent in clerk.py, whose run in session z waits for the approval of its call."""
    Path("clerk.py").write_text(AGENT.format(store="z.db", more=more))
    (agent,) = load_agents(["clerk.py"]).values()
    assert agent.run_sync("Pay.", session="z").stop == "waiting"
    return agent


def approve(capsys):
    capsys.readouterr()
    main(["approvals", "--store", "z.db", "--json"])
    (question,) = json.loads(capsys.readouterr().out)
    assert main(["approvals", "approve", question["id"], "--store", "z.db"]) == 0
    return capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("options", [["z"], ["--all"]])
def test_session_is_resumed_with_the_agent_of_a_python_file(place, capsys, options):
    agent = start_waiting_run(", hooks=[watch], validate=check")
    assert approve(capsys) == "continue with: bridle resume z --store z.db -a FILE.py"
    assert main(["resume", *options, "-a", "clerk.py", "--store", "z.db"]) == 0
    assert agent.resume_sync("z").raise_for_stop().output.paid == 7


def test_recorded_output_type_is_kept_without_the_agent(place, capsys):
    agent = start_waiting_run()
    assert approve(capsys) == "continue with: bridle resume z --store z.db --tools FILE"
    assert main(["resume", "z", "--tools", "clerk.py", "--store", "z.db", "-m", "sim:", "--yes"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out)["paid"], int)
    assert type(agent.resume_sync("z").raise_for_stop().output).__name__ == "Report"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (
            ", hooks=[watch]",
            "this session has hooks (watch), whose code is not in the log; name the Python file",
        ),
        (", validate=check", "this session has validators of the answer (check)"),
    ],
)
def test_session_is_not_resumed_without_its_functions(place, capsys, more, problem):
    start_waiting_run(more)
    approve(capsys)
    assert main(["resume", "z", "--tools", "clerk.py", "--store", "z.db"]) == 2
    assert problem in capsys.readouterr().err
    assert main(["resume", "--all", "--tools", "clerk.py", "--store", "z.db"]) == 1
    assert problem in capsys.readouterr().out


def test_python_agent_has_its_own_parts(place, capsys):
    start_waiting_run()
    assert main(["resume", "z", "-a", "clerk.py:agent", "--store", "z.db", "--tools", "clerk.py"]) == 2
    assert "--tools: the agent of clerk.py:agent has its own" in capsys.readouterr().err
    assert main(["run", "-a", "clerk.py", "hi", "--store", "z.db"]) == 2
    assert "-a takes an agent file (.toml), not 'clerk.py'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (
            'Agent("sim:", name="helper")',
            "one of the agent 'clerk', and other.py has only 'helper'; name the Python file",
        ),
        ('Agent("sim:", tools=[clerk.pay])', "has hooks (watch) that the agent of other.py lacks"),
        (
            'Agent("sim:", name="clerk", tools=[clerk.pay], hooks=[clerk.watch])',
            "has validators of the answer (check) that the agent of other.py lacks",
        ),
        (
            'Agent("sim:", name="clerk", hooks=[clerk.watch], validate=clerk.check)',
            "has tools (pay) that the agent of other.py lacks",
        ),
    ],
)
def test_session_is_not_resumed_with_an_agent_that_lacks_its_parts(place, capsys, other, problem):
    """Without its guards and its tools, a run would go on unguarded, and its question would be lost."""
    agent = start_waiting_run(", hooks=[watch], validate=check")
    Path("other.py").write_text(f"from bridle import Agent\nimport clerk\nother = {other}\n")
    approve(capsys)
    assert main(["resume", "z", "-a", "other.py", "--store", "z.db"]) == 2
    assert problem in capsys.readouterr().err
    assert main(["resume", "--all", "-a", "other.py", "--store", "z.db"]) == 1
    assert problem in capsys.readouterr().out
    assert agent.resume_sync("z").raise_for_stop().output.paid == 7


def test_session_after_a_handover_is_resumed_with_the_agent_that_handed_over(place, capsys):
    inner = AGENT.format(store="z.db", more=", hooks=[watch]")
    desk = "agent = Agent('sim:', name='desk', output=Report, store='z.db', handover=[agent])"
    Path("clerk.py").write_text(f"{inner}{desk}\n")
    (agent,) = load_agents(["clerk.py"]).values()
    assert agent.run_sync("!call transfer_to_clerk {}", session="z").stop == "waiting"
    approve(capsys)
    assert main(["resume", "z", "-a", "clerk.py", "--store", "z.db"]) == 0


def test_text_in_place_of_the_output_type_is_no_answer(place):
    agent = start_waiting_run()
    (question,) = asyncio.run(agent.approvals("z"))
    asyncio.run(agent.approve("z", question.id))
    other = Agent("sim:", tools=list(agent.tools.values()), store="z.db", name="clerk")
    with pytest.raises(CannotContinue, match="another output type"):
        other.resume_sync("z")
    assert other.run_sync("!say a text", session="y").done
    found = agent.resume_sync("y")
    assert found.done and found.output is None
    with pytest.raises(RunStopped, match="ended with a text, not with the output type"):
        found.raise_for_stop()


def test_hint_of_a_waiting_run_repeats_its_options(place, capsys):
    start_waiting_run()
    policy = place / "ask.toml"
    policy.write_text('[[rules]]\ndecision = "ask"\ntools = ["pay"]\n')
    run = ["run", "--tools", "clerk.py", "--policy", "ask.toml", "--store", "o.db", "--yes"]
    assert main([*run, '!call pay {"amount": 7}']) == 1
    hint = r"then: bridle resume \S+ --tools clerk\.py --policy ask\.toml --store o\.db\n"
    assert re.search(hint, capsys.readouterr().err)


def test_hint_does_not_print_the_password_of_a_store():
    options = Namespace(
        store="postgresql://me:secret@host/db", configuration=load_configuration({}, use_files=False)
    )
    assert format_resume(options, "s") == "bridle resume s --store URL"

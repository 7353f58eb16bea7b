"""Agents defined in a file: what they may say, what is refused with file and line, and that they run."""

import json
import os

import pytest

from bridle import load_agent
from bridle.config.toml_file import read_policy_file
from bridle.values.errors import MisuseError
from tests.suite.command import bridle

TOOLS = '''
from dataclasses import dataclass
from bridle import tool


@tool(effect="read")
def double(n: int) -> int:
    """Double a number."""
    return n * 2


@tool(effect="write")
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


def plain(x: str) -> str:
    """A function without the decorator."""
    return x


@dataclass
class Answer:
    total: int


NOTHING = 3
'''
WHOLE = """
model = ["sim:anthropic/claude-sonnet-5-5", "sim:openai/gpt-6.1-sol"]
name = "helper"
instructions_file = "support.md"
tools = ["tools.py", "shop_tools:plain"]
max_tokens = 500

[[commands]]
name = "echo"
description = "Repeat a text."
argv = ["echo", "--", "{text}"]
effect = "read"
pass_env = ["SHOP_TOKEN"]

[[policy.rules]]
decision = "deny"
tools = ["refund"]

[budget]
usd = 0.5
steps = 7

[budget.session]
usd = 2

[memory]
refresh = "run"

[sampling]
stop_sequences = ["END"]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in [*os.environ]:
        if name.startswith("BRIDLE_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "tools.py").write_text(TOOLS)
    (agents / "shop_tools.py").write_text(TOOLS)
    (agents / "support.md").write_text("Help politely.")
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return agents


def test_every_part_of_a_file_reaches_the_agent(folder):
    (folder / "support.toml").write_text(WHOLE)
    agent = load_agent(folder / "support.toml")
    settings = agent.settings
    assert [model.id for model in settings.models] == ["claude-sonnet-5-5", "gpt-6.1-sol"]
    assert (settings.name, settings.instructions, settings.max_tokens) == ("helper", "Help politely.", 500)
    assert {"double", "refund", "plain", "echo"} <= {*agent.tools}
    assert settings.policy.rules[0].tools == ("refund",)
    assert settings.memory.refresh == "run"
    assert settings.sampling.stop_sequences == ("END",)
    result = agent.run_sync('!call echo {"text": "-n hello"}')
    assert "-n hello" in result.text


def test_the_model_can_be_replaced_and_must_be_named_somewhere(folder):
    (folder / "a.toml").write_text('instructions = "Hi."\n')
    assert load_agent(folder / "a.toml", model="sim:").run_sync("!say yes").text == "yes"
    with pytest.raises(MisuseError, match="names no model"):
        load_agent(folder / "a.toml")


def test_a_run_with_an_agent_file_and_its_continuation(folder):
    (folder / "support.toml").write_text(WHOLE)
    code, out, err = bridle("run", "-a", "agents/support.toml", '!call double {"n": 21}', "--json")
    result = json.loads(out)
    assert (code, result["model"], result["stop"]) == (0, "sim:claude-sonnet-5-5", "done"), err
    assert "42" in result["text"]
    shown = bridle("show", result["session"], "--json")[1]
    configured = json.loads(shown.splitlines()[0])["event"]["settings"]
    assert configured["name"] == "helper" and configured["instructions"] == "Help politely."
    prompted = next(json.loads(line) for line in shown.splitlines() if '"prompted"' in line)["event"]
    assert prompted["budget"] == {"usd": "0.5", "steps": 7, "session": {"usd": "2"}}
    code, out, err = bridle("run", "-a", "agents/support.toml", '!call refund {"order": 1}', "--json")
    assert "refunded" not in out  # the policy of the file denies it


def test_options_win_over_the_file_and_the_file_over_settings(folder):
    (folder / "support.toml").write_text('model = "sim:openai/gpt-6.1-sol"\n[budget]\nsteps = 7\n')
    (folder.parent / "bridle.toml").write_text(
        'model = "sim:"\nagent = "agents/support.toml"\n[budget]\nsteps = 3\nseconds = 50\n'
    )
    code, out, err = bridle("run", "!say hi", "--json", BRIDLE_MODEL="sim:gemini/gemini-3.5-flash")
    result = json.loads(out)
    assert (code, result["model"]) == (0, "sim:gpt-6.1-sol"), err
    lines = bridle("show", result["session"], "--json")[1].splitlines()
    budget = next(json.loads(line) for line in lines if '"prompted"' in line)["event"]["budget"]
    assert budget == {"steps": 7, "seconds": 50.0}
    code, out, _ = bridle("run", "!say hi", "--json", "-m", "sim:anthropic/claude-sonnet-5-5", "--steps", "2")
    assert json.loads(out)["model"] == "sim:claude-sonnet-5-5"


def test_structured_output_of_a_file(folder):
    (folder / "typed.toml").write_text('model = "sim:"\noutput = "tools.py:Answer"\n')
    assert load_agent(folder / "typed.toml").settings.output.name == "Answer"
    (folder / "answer.json").write_text('{"type": "object", "properties": {"a": {"type": "string"}}}')
    (folder / "typed.toml").write_text('model = "sim:"\noutput = "answer.json"\n')
    assert '"a"' in load_agent(folder / "typed.toml").settings.output.parameters
    (folder / "typed.toml").write_text(
        'model = "sim:"\n[output]\ntype = "object"\nproperties = { a = { type = "string" } }\nrequired = ["a"]\n'
    )
    code, out, err = bridle("run", "-a", "agents/typed.toml", "Give me an a.", "--json")
    assert code == 0, err
    assert set(json.loads(out)["output"]) == {"a"}
    code, out, err = bridle("run", "-a", "agents/typed.toml", "Give me an a.")
    assert code == 0 and set(json.loads(out)) == {"a"}, err


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('model = "sim:"\ninstruction = "x"\n', 2, "unknown key 'instruction'; did you mean 'instructions'?"),
        ("model = 3\n", 1, "model"),
        ('[[commands]]\nname = "x"\ndescription = "d"\nargs = ["ls"]\n', 4, "unknown key 'args' in [commands]"),
        ('[[commands]]\nname = "x"\ndescription = "d"\n', 1, "argv"),
        ('[[commands]]\nname = "x y"\ndescription = "d"\nargv = ["ls"]\n', 1, "x y"),
        ("[budget]\nusd = -1\n", 2, "usd"),
        ("[budget.session]\nust = 1\n", 2, "unknown key 'ust' in [budget.session]; did you mean 'usd'?"),
        ("[[budget.tenant]]\nusd = 1\nperoid = 'day'\n", 3, "unknown key 'peroid' in [budget.tenant]; did you mean"),
        ("[[budget.caller]]\nusd = -1\n", 2, "usd"),
        ("[budget.session]\nusd = 1\nperiod = 'day'\n", 1, "a session has no period"),
        ('tools = ["nowhere.py"]\n', 1, "nowhere.py"),
        ('\ntools = ["tools.py:doubel"]\n', 2, "has no 'doubel'; did you mean 'double'?"),
        ('tools = ["tools.py:NOTHING"]\n', 1, "is not a tool"),
        ('tools = ["tools.py", "tools.py:double"]\n', 1, "double"),
        ('policy = "nowhere.toml"\n', 1, "nowhere.toml"),
        ('[[policy.rules]]\ndecision = "maybe"\n', 2, "maybe"),
        ('instructions = "a"\ninstructions_file = "support.md"\n', 2, "not both"),
        ('instructions_file = "nowhere.md"\n', 1, "cannot read 'nowhere.md'"),
        ('output = "tools.py:Nope"\n', 1, "has no 'Nope'"),
        ('name = "x"\nmcp = "no.json"\n', 2, "cannot read the MCP servers in"),
        ('name = "x"\n[mcp.a]\nargs = ["b"]\n', 2, "the MCP server 'a': give either a command or a url"),
        ('[[commands]]\nname = "x"\ndescription = "d"\nargv = ["ls"]\nenv = { API_TOKEN = "abc" }\n', 5, "API_TOKEN"),
    ],
)  # fmt: skip
def test_a_mistake_names_the_file_and_the_line(folder, text, line, words):
    (folder / "bad.toml").write_text(text)
    code, _, err = bridle("run", "-a", "agents/bad.toml", "hi")
    assert code == 2, err
    assert err.startswith(f"bridle: agents/bad.toml, line {line}: ") and words in err, err
    assert err.count("\n") == 1


def test_no_agent_file_is_taken_from_a_log(folder):
    """A session made with an agent file names neither the file nor its folder, and resuming it loads nothing."""
    (folder / "support.toml").write_text(WHOLE.replace("steps = 7", "steps = 1"))
    code, out, err = bridle("run", "-a", "agents/support.toml", '!call double {"n": 4}', "--json")
    session = json.loads(out)["session"]
    log = (folder.parent / "log.db").read_bytes()
    assert b"support.toml" not in log and b"tools.py" not in log
    code, _, err = bridle("resume", session)
    assert code == 2 and "-a FILE" in err
    code, out, err = bridle("resume", session, "-a", "agents/support.toml", "--steps", "5", "--json")
    assert (code, json.loads(out)["stop"]) == (0, "done"), err


def test_a_file_declares_hosted_tools_without_credentials(folder, monkeypatch):
    monkeypatch.setenv("CRM_TOKEN", "tok-1")
    path = folder / "hosted.toml"
    entry = '{ tool = "remote_mcp", url = "https://a.example", name = "crm", env = "CRM_TOKEN" }'
    path.write_text(f'model = "sim:openai/gpt-6.1-sol"\nhosted = ["code_execution", {entry}]\n')
    assert set(load_agent(path).tools) >= {"code_execution", "crm", "mcp_approval"}
    for wrong, message in (('"serch"', "choose one of: web_search"), ('{ tool = "web_search", max = 3 }', "max"),
                           (entry.replace("env =", "authorization ="), "credentials")):  # fmt: skip
        path.write_text(f'model = "sim:openai/gpt-6.1-sol"\nhosted = [{wrong}]\n')
        with pytest.raises(MisuseError, match=message):
            load_agent(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[[rules]]\ndecision = "aks"\n',
            "line 2: rules.decision: invalid enum value 'aks'; choose one of: allow, ask, deny",
        ),
        (
            '[[rules]]\ndecision = "ask"\ntolls = ["x"]\n',
            "line 3: unknown key 'tolls' in [rules]; did you mean 'tools'?",
        ),
        ("version = 3\n", "line 1: version: expected `str`, got `int`"),
    ],
)
def test_mistakes_in_a_policy_have_the_line_and_the_valid_names(tmp_path, text, problem):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(MisuseError) as refused:
        read_policy_file(path)
    assert problem in str(refused.value)

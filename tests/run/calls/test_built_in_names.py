"""Names of Bridle's own tools: nothing that is given to an agent, or brought by a client, takes one of them."""

from typing import Any

import pytest

from bridle import Agent, CodeMode, MisuseError, tool
from bridle.core.context.excerpt import READ_RESULT
from bridle.core.note_tools import FORGET_TOOL, REMEMBER_TOOL
from bridle.run.calls.catalogue import list_taken_names
from bridle.run.calls.code_mode import CODE_TOOL_NAME
from bridle.testing import scripted
from bridle.tools import external_tool
from bridle.tools.search.search_tools import SEARCH_TOOL_NAME
from bridle.values.errors import BadTool
from bridle.values.memory import Memory
from bridle.values.request import HANDOVER_PREFIX


@tool
def first() -> str:
    return "first"


@tool
def second() -> str:
    return "second"


BY_CALL = "sim:anthropic/claude-sonnet-5-5"
BUILT_IN: dict[str, Any] = {
    READ_RESULT.name: {},
    REMEMBER_TOOL.name: {"memory": Memory()},
    FORGET_TOOL.name: {"memory": Memory()},
    SEARCH_TOOL_NAME: {"tools": [first, second], "tools_shown_max": 1},
    CODE_TOOL_NAME: {"tools": [first], "code_mode": CodeMode(sandbox=None)},
    f"{HANDOVER_PREFIX}other": {"handover": [Agent(scripted(), name="other")]},
    "first": {"output": first},
    "Open": {"output": {"title": "Open", "type": "object"}},
}
"""Every name that the harness gives a tool, with the options that make it do so."""


def make_tool(name):
    def function() -> str:
        return "mine"

    return tool(name=name)(function)


def make_agent(name, *more, **changes):
    options = {**BUILT_IN[name], **changes}
    return Agent(scripted(model=BY_CALL), **{**options, "tools": [*options.get("tools", ()), *more]})


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_table_names_tools_that_an_agent_has(name):
    """Without this, a row would prove nothing."""
    agent = make_agent(name)
    assert name in list_taken_names(agent.tools, agent.settings)


GIVEN = {
    "tool": make_tool,
    "external": external_tool,
    "agent": lambda name: Agent(scripted(), name="inner").as_tool(name, "An agent."),
}


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("kind", GIVEN)
def test_no_tool_takes_the_name_of_one_of_bridle(name, kind):
    with pytest.raises((BadTool, MisuseError)) as caught:
        make_agent(name, GIVEN[kind](name))
    assert name in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", BUILT_IN)
def test_no_tool_of_one_run_takes_the_name_of_one_of_bridle(name):
    agent = make_agent(name)
    given = [*agent.parts.inputs.tools, make_tool(name)]
    with pytest.raises((BadTool, MisuseError)):
        agent.run_sync("?", tools=given)


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name not in ("first", "Open", CODE_TOOL_NAME)])
def test_no_answer_takes_the_name_of_one_of_bridle(name):
    """An output type that a tool asks for, an output function, the tool of code mode."""
    named = {"title": name, "type": "object", "additionalProperties": {"type": "integer"}}
    with pytest.raises((BadTool, MisuseError)):
        make_agent(name, output=named)

    def answer() -> int:
        return 1

    with pytest.raises((BadTool, MisuseError)):
        make_agent(name, output=tool(name=name)(answer))
    with pytest.raises((BadTool, MisuseError)):
        make_agent(name, code_mode=CodeMode(sandbox=None, name=name, direct=True))


def test_a_tool_that_only_programs_call_takes_no_name_of_bridle():
    """Such a tool is not shown to the model, and still runs by its name."""
    for name in (READ_RESULT.name, REMEMBER_TOOL.name):
        with pytest.raises(BadTool):
            make_agent(name, make_tool(name), code_mode=CodeMode(sandbox=None))


def test_an_output_function_does_not_take_the_name_of_code_mode():
    def run_code() -> int:
        return 1

    with pytest.raises(BadTool, match="run_code"):
        Agent(scripted(), tools=[first], code_mode=CodeMode(sandbox=None), output=run_code)


def test_an_agent_may_have_tools_for_notes_of_its_own():
    agent = make_agent(REMEMBER_TOOL.name, make_tool(REMEMBER_TOOL.name), memory=Memory(tools=False))
    assert [spec.name for spec in agent.settings.tools] == [REMEMBER_TOOL.name]

"""A rule that asks or denies by a value it cannot see is refused when the agent is built."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from bridle import Agent, MisuseError, PermissionRule, Policy, tool
from bridle.tools import TypedTool


@dataclass
class Plain:
    owner: str = field(default_factory=lambda: "root")
    path: str = "/tmp"


class Packed(msgspec.Struct):
    path: str = "/tmp"
    owner: str = msgspec.field(default_factory=lambda: "root")


class Checked(pydantic.BaseModel):
    path: str = "/tmp"
    owner: str = pydantic.Field(default_factory=lambda: "root")


@dataclass
class Node:
    plain: Plain
    children: "list[Node]" = field(default_factory=list)


class Loose(TypedDict):
    owner: NotRequired[str]


def tool_with(kind):
    @tool(name="write")
    def write(given: kind) -> str:
        """Write."""
        return "written"

    return write


@tool(name="write")
def by_parameter(
    path: str = "/tmp",
    owner: Annotated[str, "who"] = pydantic.Field(default_factory=lambda: "root"),
) -> str:
    """Write."""
    return "written"


def build(made, path, pattern="root", decision="deny", tools=("write",)):
    rule = PermissionRule(decision=decision, name="not as root", tools=tools, arguments={path: pattern})
    return Agent("sim:", tools=[made], policy=Policy(rules=(rule,)))


HIDING = {
    "dataclass": (tool_with(Plain), "given.owner"),
    "struct": (tool_with(Packed), "given.owner"),
    "pydantic": (tool_with(Checked), "given.owner"),
    "list": (tool_with(list[Plain]), "given.owner"),
    "dict": (tool_with(dict[str, Plain]), "given.some.owner"),
    "union": (tool_with(Plain | None), "given.owner"),
    "recursive": (tool_with(Node), "given.children.plain.owner"),
    "pydantic in a list": (tool_with(list[Checked]), "given.owner"),
    "other case": (tool_with(Plain), "GIVEN.Owner"),
    "the object around it": (tool_with(Plain), "given"),
    "an object far around it": (tool_with(Node), "given"),
    "parameter": (by_parameter, "owner"),
    "typed tool": (TypedTool(Plain, run=lambda given: "written", name="write"), "owner"),
}


@pytest.mark.parametrize("decision", ["deny", "ask"])
@pytest.mark.parametrize(("made", "path"), HIDING.values(), ids=HIDING)
def test_a_rule_about_a_default_that_only_code_knows_is_refused(made, path, decision):
    with pytest.raises(MisuseError, match=r"'not as root' cannot see what write gets for 'owner'.*required"):
        build(made, path, decision=decision)


def test_it_is_refused_without_the_tool_being_named():
    with pytest.raises(MisuseError, match="cannot see"):
        build(by_parameter, "owner", tools=())


SEEN = {
    "another field": (tool_with(Plain), "given.path", "/etc/*", "deny"),
    "anything at all": (tool_with(Plain), "given", "*", "deny"),
    "an empty list": (tool_with(Node), "given.children", "*", "deny"),
    "a field that may be absent": (tool_with(Loose), "given.owner", "root", "deny"),
    "a rule that allows": (by_parameter, "owner", "ann", "allow"),
}


@pytest.mark.parametrize(("made", "path", "pattern", "decision"), SEEN.values(), ids=SEEN)
def test_a_rule_that_sees_what_it_is_about_is_taken(made, path, pattern, decision):
    assert build(made, path, pattern, decision).settings.policy.rules


def test_a_rule_that_allows_does_not_match_what_it_cannot_see():
    rules = (
        PermissionRule(decision="allow", tools=("write",), arguments={"owner": "*"}),
        PermissionRule(decision="ask", tools=("write",)),
    )
    agent = Agent("sim:", tools=[by_parameter], policy=Policy(rules=rules))
    result = asyncio.run(agent.run("!call write {}\n!then\n!say done"))
    assert result.stop == "waiting"

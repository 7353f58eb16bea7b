"""Type checkers infer the types of context and output through tools, instructions, runs and streams."""

import pytest

from tests.run.context.type_checkers import check_with_mypy, check_with_pyright, needs_pyright

PROGRAM = """
from dataclasses import dataclass
from typing_extensions import reveal_type

from bridle import Agent, RunContext, Tool, per_turn, tool

@dataclass
class Clinic:
    name: str

@dataclass
class Other:
    size: int

@dataclass
class Report:
    score: int

@tool
def look(ctx: RunContext[Clinic], patient: str) -> int:
    reveal_type(ctx.context)  # Clinic
    return len(ctx.context.name)

@tool(effect="read")
async def look_later(ctx: RunContext[Clinic], patient: str) -> bool:
    return True

@tool
def plain(city: str) -> str:
    return city

@tool
def elsewhere(ctx: RunContext[Other]) -> str:
    return str(ctx.context.size)

def describe(ctx: RunContext[Clinic]) -> str:
    reveal_type(ctx.context.name)  # str
    return ctx.context.name

async def roster(ctx: RunContext[Clinic]) -> str:
    return ctx.context.name

def nothing() -> str:
    return ""

here = RunContext(context=Clinic("North"))
reveal_type(here)  # RunContext[Clinic]
reveal_type(look(here, "p7"))  # int
reveal_type(Agent("sim:"))  # Agent[object, str]
reveal_type(Agent("sim:", tools=[plain]))  # Agent[object, str]
typed = Agent("sim:", tools=[look, look_later, plain], context_type=Clinic, output=Report)
reveal_type(typed)  # Agent[Clinic, Report]
told = Agent("sim:", instructions=["x", describe, per_turn(roster), nothing], context_type=Clinic)
reveal_type(told)  # Agent[Clinic, str]
given: Agent[Clinic, str] = Agent("sim:", tools=[look], instructions=describe)
reveal_type(Agent("sim:", instructions=describe))  # Agent[Clinic, str]
several: list[Tool[Clinic]] = [look, look_later, plain]
reveal_type(Agent("sim:", tools=several))  # Agent[Clinic, str]
wrong_tools: list[Tool[Clinic]] = [look, elsewhere]  # wrong

async def main() -> None:
    result = await typed.run("?", context=Clinic("North"))
    reveal_type(result.output)  # Report | None
    stream = typed.stream("?", context=Clinic("North"))
    reveal_type(stream)  # Stream[Report]
    await typed.resume("s", context=Clinic("North"))
    typed.run_sync("?", context=Clinic("North"))
    typed.resume_stream("s", context=Clinic("North"))
    await typed.compensate("s", context=Clinic("North"))
    await typed.run("?", context=Other(3))  # wrong
    typed.run_sync("?", context="North")  # wrong
    typed.stream("?", context=Other(3))  # wrong
    typed.resume_stream("s", context=Other(3))  # wrong
    await given.resume("s", context=Other(3))  # wrong

look("p7")  # wrong
here.context.size  # wrong
Agent("sim:", instructions=describe, context_type=Other)  # wrong
"""
PYRIGHT_ONLY = """
reveal_type(Agent("sim:", tools=[look, plain]))  # Agent[Clinic, str]
Agent("sim:", tools=[look]).run_sync("?", context=Other(3))  # wrong
"""


@pytest.mark.slow
def test_mypy_infers_context_and_output(tmp_path):
    check_with_mypy(PROGRAM, tmp_path)


@needs_pyright
def test_pyright_infers_context_and_output(tmp_path):
    check_with_pyright(PROGRAM + PYRIGHT_ONLY, tmp_path)

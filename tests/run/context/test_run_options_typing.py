"""Type checkers know the options of a run, and the types of tools, hooks, streams, results and validators."""

from tests.run.context.type_checkers import check_with_mypy, check_with_pyright, needs_pyright

PROGRAM = """
from dataclasses import dataclass
from typing_extensions import reveal_type

from bridle import Agent, ModelRetry, RunContext, RunOptions, Sampling, Thinking, ToolCall, tool
from bridle.hooks import HookDecision
from bridle.hooks import before_tool

@dataclass
class Clinic:
    name: str

@dataclass
class Report:
    score: int

@tool
def look(ctx: RunContext[Clinic], patient: str) -> int:
    return len(ctx.context.name)

@tool(rate="10/minute")
async def look_later(ctx: RunContext[Clinic], patient: str) -> bool:
    return True

@tool
def plain(city: str, days: int = 1) -> str:
    return city

@before_tool()
def limit(run: RunContext[Clinic], call: ToolCall) -> HookDecision:
    reveal_type(call.name)  # str
    return None

def check(ctx: RunContext[Clinic], report: Report) -> Report:
    reveal_type(ctx.context)  # Clinic
    if report.score < 0:
        raise ModelRetry("the score must not be negative")
    return report

def check_text(report: str) -> str:
    return report

async def main() -> None:
    reveal_type(plain("Bern"))  # str
    reveal_type(await look_later(RunContext(context=Clinic("North")), "p7"))  # bool
    reveal_type(limit)  # BeforeToolFunction[Clinic]
    agent = Agent(
        "sim:", tools=[look, look_later, plain], hooks=[limit], validate=check, output=Report, context_type=Clinic
    )
    reveal_type(agent)  # Agent[Clinic, Report]
    options: RunOptions = {"model": "sim:", "tools": [look], "tool_choice": "look", "thinking": Thinking(effort="low")}
    result = await agent.run("?", context=Clinic("North"), **options)
    reveal_type(result)  # Result[Report]
    reveal_type(result.output)  # Report | None
    reveal_type(result.raise_for_stop())  # DoneResult[Report]
    reveal_type(result.raise_for_stop().output.score)  # int
    stream = agent.stream("?", context=Clinic("North"), tool_choice="none", instructions="Be brief.")
    reveal_type(stream)  # Stream[Report]
    async for partial in stream.partial():
        reveal_type(partial.output)  # Report | None
    reveal_type(await stream.result())  # Result[Report]
    reveal_type(agent.run_sync("?", tools=[plain], model=["sim:", "sim:"]))  # Result[Report]
    reveal_type(await agent.resume("s", thinking=None))  # Result[Report]
    reveal_type(agent.resume_stream("s", sampling=Sampling(temperature=0.5)))  # Stream[Report]

    reveal_type(await agent.run("?", output=Clinic))  # Result[Clinic]
    reveal_type(agent.run_sync("?", output=list[int]).output)  # list[int] | None
    reveal_type(agent.stream("?", output=Clinic))  # Stream[Clinic]

    await agent.run("?", modle="sim:")  # wrong
    await agent.run("?", tools="look")  # wrong
    agent.run_sync("?", thinking="low")  # wrong
    agent.stream("?", sampling="hot")  # wrong
    agent.resume_stream("s", model=3)  # wrong
    misspelled: RunOptions = {"tool_choise": "look"}  # wrong
    plain(3)  # wrong
    tool(rate=10)  # wrong
    Agent("sim:", output=Report, validate=check_text)  # wrong
    result.raise_for_stop().output.points  # wrong
"""


# Mypy joins the items of a list before it looks at the parameter: two tools with different parameters become `object`,
# and so do tools with and without a context.  Of a function that returns an awaitable it cannot choose between
# `Awaitable[T]` and `T`.  Both need an annotation (docs/context.md, docs/output.md); these lines fail when a later mypy
# needs none.
MYPY_LIMITS = """
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar
from typing_extensions import reveal_type

C_contra = TypeVar("C_contra", contravariant=True)
T = TypeVar("T")

class Clinic: ...

class Tool(Generic[C_contra]):
    def run(self, context: C_contra) -> None: ...

class Agent(Generic[C_contra]):
    def __init__(self, tools: Iterable[Tool[C_contra]]) -> None: ...

class Answer(Generic[T]):
    def __init__(self, output: Callable[..., Awaitable[T] | T]) -> None: ...

def give() -> int:
    return 1

async def give_later() -> int:
    return 1

look, plain = Tool[Clinic](), Tool[object]()
reveal_type([look, plain])  # list[object]
reveal_type(Agent((look, plain)))  # Agent[Clinic]
Agent([look, plain])  # wrong
reveal_type(Answer(give))  # Answer[int]
Answer(give_later)  # wrong
annotated: Answer[int] = Answer(give_later)
"""


def test_mypy_still_needs_the_annotations_that_the_docs_name(tmp_path):
    check_with_mypy(MYPY_LIMITS, tmp_path)


def test_mypy_checks_the_options_of_a_run(tmp_path):
    check_with_mypy(PROGRAM, tmp_path)


@needs_pyright
def test_pyright_checks_the_options_of_a_run(tmp_path):
    check_with_pyright(PROGRAM, tmp_path)

"""Type checkers infer the context of hooks, and reject a hook for another context."""

from tests.run.context.type_checkers import check_with_mypy, check_with_pyright, needs_pyright

PROGRAM = """
from dataclasses import dataclass
from typing_extensions import reveal_type

from bridle import Agent, Reply, RunContext, ToolCall, ToolResult
from bridle.hooks import Answer, Change, HookDecision, ModelInput, Refuse
from bridle.hooks import FinishedRun
from bridle.hooks import RedactPii, after_model, after_tool, before_model, before_tool, guard_input, guard_output, on_end

@dataclass
class Shop:
    limit: int

@dataclass
class BigShop(Shop):
    floors: int

@dataclass
class Other:
    size: int

@dataclass
class Report:
    score: int

@before_tool(tools=["refund"])
def limit(run: RunContext[Shop], call: ToolCall) -> HookDecision:
    reveal_type(run.context)  # Shop
    return Refuse(reason="no") if run.context.limit else None

@before_model(timeout=5)
async def prepare(run: RunContext[Shop], request: ModelInput) -> Change | None:
    return Change(text="x")

@after_model()
def review(run: RunContext[Shop], reply: Reply) -> Answer | None:
    return None

@after_tool(tools=["refund"], name="hide")
async def hide(run: RunContext, call: ToolCall, result: ToolResult) -> HookDecision:
    return Change(text=result.text)

@on_end()
def sign(run: RunContext[Shop], end: FinishedRun) -> HookDecision:
    return None

@guard_input()
async def on_topic(run: RunContext[Shop], text: str) -> str | None:
    return None

@guard_output()
def polite(run: RunContext[Other], text: str) -> str | None:
    reveal_type(run.context.size)  # int
    return None

@before_tool()
def elsewhere(run: RunContext[Other], call: ToolCall) -> HookDecision:
    return None

class Audit:
    name = "audit"

    def before_tool(self, run: RunContext[Shop], call: ToolCall) -> HookDecision:
        return None

    async def on_end(self, run: RunContext[Shop], end: FinishedRun) -> HookDecision:
        return None

class AuditElsewhere:
    def before_tool(self, run: RunContext[Other], call: ToolCall) -> HookDecision:
        return None

class NoHook:
    def before(self) -> None: ...

reveal_type(limit)  # BeforeToolFunction[Shop]
reveal_type(on_topic)  # BeforeModelFunction[Shop]
hooks = [limit, prepare]
everything = Agent(
    "sim:",
    hooks=[limit, prepare, review, hide, sign, on_topic, Audit(), RedactPii()],
    context_type=Shop,
    output=Report,
)
reveal_type(everything)  # Agent[Shop, Report]
given: Agent[Shop, str] = Agent("sim:", hooks=[limit, Audit(), RedactPii()])
larger: Agent[BigShop, str] = Agent("sim:", hooks=[limit, Audit()])
reveal_type(Agent("sim:", hooks=[RedactPii()]))  # Agent[object, str]

async def main() -> None:
    result = await everything.run("?", context=Shop(3))
    reveal_type(result.output)  # Report | None
    reveal_type(result.raise_for_stop().output)  # Report
    stream = everything.stream("?", context=Shop(3))
    reveal_type(stream)  # Stream[Report]
    reveal_type((await stream.result()).output)  # Report | None
    await given.run("?", context=Other(3))  # wrong
    everything.stream("?", context=Other(3))  # wrong

Agent("sim:", hooks=[elsewhere], context_type=Shop)  # wrong
Agent("sim:", hooks=[polite], context_type=Shop)  # wrong
Agent("sim:", hooks=[AuditElsewhere()], context_type=Shop)  # wrong
Agent("sim:", hooks=[NoHook()])  # wrong
Agent("sim:", hooks=[RedactPii])  # wrong
mixed: Agent[Shop, str] = Agent("sim:", hooks=[limit, elsewhere])  # wrong
before_tool(lambda run, call: None)  # wrong
RedactPii(input="block")  # wrong
"""


def test_mypy_infers_the_context_of_hooks(tmp_path):
    check_with_mypy(PROGRAM, tmp_path)


@needs_pyright
def test_pyright_infers_the_context_of_hooks(tmp_path):
    check_with_pyright(PROGRAM, tmp_path)

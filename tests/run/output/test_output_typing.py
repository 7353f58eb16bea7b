"""Types of answers as a strict type checker infers them, through result, stream and validators."""

from tests.run.context.type_checkers import check_with_mypy, check_with_pyright, needs_pyright

PROGRAM = """
from dataclasses import dataclass
from typing import assert_type

from bridle import Agent, DoneResult, RunContext
from bridle.events import PartialOutput

@dataclass
class Refund:
    cents: int

@dataclass
class Escalation:
    why: str

@dataclass
class Shop:
    limit: int

def check(refund: Refund) -> Refund:
    return refund

def check_limit(ctx: RunContext[Shop], refund: Refund) -> None: ...

async def check_later(refund: Refund) -> Refund:
    return refund

def give(cents: int) -> Refund:
    return Refund(cents)

def give_with_context(ctx: RunContext[Shop], cents: int) -> Refund:
    return Refund(cents)

async def give_later(cents: int) -> Refund:
    return Refund(cents)

def give_numbers(count: int) -> list[int]:
    return [count]

text = Agent("sim:")
one = Agent("sim:", output=Refund, validate=check)
listed = Agent("sim:", output=Refund, validate=[check, check_later])
shop = Agent("sim:", output=Refund, validate=check_limit)
union = Agent[object, Refund | Escalation]("sim:", output=Refund | Escalation)
types = Agent[object, Refund | Escalation]("sim:", output=[Refund, Escalation])

assert_type(text.run_sync("x").raise_for_stop().output, str)
assert_type(one.run_sync("x").output, Refund | None)
assert_type(one.run_sync("x").raise_for_stop(), DoneResult[Refund])
assert_type(one.run_sync("x").raise_for_stop().output, Refund)
assert_type(listed.run_sync("x").raise_for_stop().output, Refund)
assert_type(shop, Agent[Shop, Refund])
assert_type(union.run_sync("x").raise_for_stop().output, Refund | Escalation)
assert_type(types.run_sync("x").raise_for_stop().output, Refund | Escalation)
assert_type(Agent("sim:", output=list[int]).run_sync("x").raise_for_stop().output, list[int])

assert_type(Agent("sim:", output=give).run_sync("x").raise_for_stop().output, Refund)
assert_type(Agent("sim:", output=give_with_context).run_sync("x").raise_for_stop().output, Refund)
assert_type(Agent("sim:", output=give_numbers).run_sync("x").raise_for_stop().output, list[int])
assert_type(Agent("sim:", output=[give]).run_sync("x").raise_for_stop().output, Refund)
later: Agent[object, Refund] = Agent("sim:", output=give_later)
assert_type(later.run_sync("x").raise_for_stop().output, Refund)
several = Agent[object, Refund | Escalation]("sim:", output=[give, give_later, Escalation])
assert_type(several.run_sync("x").raise_for_stop().output, Refund | Escalation)
Agent[object, Escalation]("sim:", output=give)  # wrong

async def main() -> None:
    async for partial in one.stream("x").partial():
        assert_type(partial, PartialOutput[Refund])
        assert_type(partial.output, Refund | None)

one.run_sync("x").output.cents  # wrong
shop.run_sync("x", context=3)  # wrong
Agent("sim:", output=Escalation, validate=check)  # wrong
"""
PYRIGHT_PROGRAM = """
from dataclasses import dataclass
from typing_extensions import reveal_type

from bridle import Agent

@dataclass
class Refund:
    cents: int

@dataclass
class Escalation:
    why: str

def give(cents: int) -> Refund:
    return Refund(cents)

async def give_later(cents: int) -> list[int]:
    return [cents]

reveal_type(Agent("sim:", output=give))  # Agent[object, Refund]
reveal_type(Agent("sim:", output=give_later))  # Agent[object, list[int]]
reveal_type(Agent("sim:", output=[give, give_later, Escalation]))  # Agent[object, Escalation | Refund | list[int]]
reveal_type(Agent("sim:", output=give).run_sync("x").raise_for_stop().output)  # Refund
reveal_type(Agent("sim:", output=give_later).stream("x"))  # Stream[list[int]]
Agent[object, Escalation]("sim:", output=give)  # wrong
"""


def test_answers_are_typed(tmp_path):
    check_with_mypy(PROGRAM, tmp_path)


@needs_pyright
def test_pyright_agrees_about_the_answers(tmp_path):
    check_with_pyright(PROGRAM, tmp_path)


@needs_pyright
def test_pyright_infers_the_answers_of_output_functions(tmp_path):
    check_with_pyright(PYRIGHT_PROGRAM, tmp_path)

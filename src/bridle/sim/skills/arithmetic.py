"""Arithmetic: with a calculator, with tools for single operations, or by itself.

With tools that add or multiply two numbers a sum is taken apart: every operation
whose two numbers are known is called, all such at once, and their results are the
numbers of the next ones.
"""

import re
from fractions import Fraction

import msgspec

from ...values.request import ToolSpec
from ..scene import Answer, Call, Exchange, Move, Scene
from ..sums import Number, Operator, Sum, apply, find, number_in, shown, worked_out
from .tools import call, parameters, smells, text_parameter

CALCULATOR = re.compile(r"calc|arithm|\bmath|expression|evaluat|comput")
OPERATORS: tuple[tuple[Operator, re.Pattern[str]], ...] = (
    ("+", re.compile(r"^add|plus|^sum")),
    ("-", re.compile(r"^sub|minus|difference")),
    ("*", re.compile(r"^mul|times|product")),
    ("/", re.compile(r"^div|quotient")),
    ("**", re.compile(r"^pow|exponent")),
)


def attempt(scene: Scene) -> Move | None:
    found = find(scene.prompt)
    if found is None:
        return None
    written, tree = found
    calculator = _calculator(scene)
    if calculator is not None:
        return _with_calculator(scene, calculator, written)
    tools = _operators(scene)
    if tools:
        return _Steps(scene, tools).move(written, tree)
    return _alone(written, tree)


def _calculator(scene: Scene) -> tuple[ToolSpec, str] | None:
    for tool in scene.tools:
        taking = text_parameter(tool)
        if taking and (smells(tool, CALCULATOR) or CALCULATOR.search(taking.name.lower())):
            return tool, taking.name
    return None


def _with_calculator(scene: Scene, calculator: tuple[ToolSpec, str], written: str) -> Move:
    tool, parameter = calculator
    done = scene.of(tool)
    if not done:
        return (call(tool, {parameter: written}, scene.prompt),)
    last = done[-1]
    if last.is_error:
        return Answer(text=f"I could not work out {written}: {tool.name} failed: {last.text}")
    return Answer(text=last.text if "=" in last.text else f"{written} = {_value(last)}")


def _alone(written: str, tree: Sum) -> Move:
    try:
        value = worked_out(tree)
    except ArithmeticError as error:
        return Answer(text=f"{written} has no answer I can give: {_why(error)}.")
    return Answer(text=f"{written} = {shown(value)}, worked out without a tool.")


def _operators(scene: Scene) -> dict[Operator, ToolSpec]:
    tools: dict[Operator, ToolSpec] = {}
    for tool in scene.tools:
        numeric = [item for item in parameters(tool) if item.type in ("integer", "number")]
        if len(numeric) == 2:
            for operator, name in OPERATORS:
                if name.search(tool.name.lower()):
                    tools.setdefault(operator, tool)
    return tools


class _Steps:
    """One look at a sum: what is known of it, what to call next, what went wrong."""

    def __init__(self, scene: Scene, tools: dict[Operator, ToolSpec]) -> None:
        self.tools = tools
        self.prompt = scene.prompt
        self.done = {_key(exchange.name, exchange.arguments): exchange for exchange in scene.exchanges}
        self.calls: dict[str, Call] = {}
        self.problem = ""

    def move(self, written: str, tree: Sum) -> Move:
        try:
            value = self._value(tree)
        except ArithmeticError as error:
            self.problem = _why(error)
            value = None
        if self.problem:
            return Answer(text=f"I could not work out {written}: {self.problem}")
        return tuple(self.calls.values()) if value is None else Answer(text=f"{written} = {shown(value)}")

    def _value(self, tree: Sum) -> Fraction | None:
        """What this part comes to; None while a call for it is still to be made."""
        if isinstance(tree, Number):
            return tree.value
        left, right = self._value(tree.left), self._value(tree.right)
        if left is None or right is None:
            return None
        tool = self.tools.get(tree.operator)
        arguments = _operands(tool, left, right) if tool else None
        if tool is None or arguments is None:
            return apply(tree.operator, left, right)
        key = _key(tool.name, arguments)
        if key not in self.done:
            self.calls[key] = call(tool, arguments, self.prompt)
            return None
        return self._number(self.done[key])

    def _number(self, exchange: Exchange) -> Fraction | None:
        value = None if exchange.is_error else number_in(_value(exchange))
        if value is None:
            went = "failed" if exchange.is_error else "brought no number"
            self.problem = self.problem or f"{exchange.name} {went}: {exchange.text}"
        return value


def _operands(tool: ToolSpec, left: Fraction, right: Fraction) -> dict[str, object] | None:
    """The two numbers by the tool's names for them; None when it does not take such numbers."""
    numeric = [item for item in parameters(tool) if item.type in ("integer", "number")]
    operands: dict[str, object] = {}
    for item, value in zip(numeric, (left, right), strict=True):
        if value.denominator == 1:
            operands[item.name] = int(value)
        elif item.type == "number":
            operands[item.name] = float(value)
        else:
            return None
    return operands


def _key(name: str, arguments: object) -> str:
    return name + msgspec.json.encode(arguments, order="deterministic").decode()


def _value(exchange: Exchange) -> str:
    """The number in a result, also out of an object that holds only one."""
    if exchange.text.startswith("{"):
        try:
            known = msgspec.json.decode(exchange.text, type=dict[str, object])
        except msgspec.DecodeError:
            return exchange.text
        numbers = [value for value in known.values() if isinstance(value, int | float)]
        if len(numbers) == 1:
            return str(numbers[0])
    return exchange.text


def _why(error: ArithmeticError) -> str:
    return "it divides by zero" if isinstance(error, ZeroDivisionError) else str(error)

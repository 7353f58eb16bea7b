"""Arithmetic: with a calculator, with tools for single operations, or by itself.

With tools that add or multiply two numbers a sum is taken apart: every operation
whose two numbers are known is called, all such at once, and their results are the
numbers of the next ones.
"""

import re
from fractions import Fraction

import msgspec

from bridle.sim.responder.conversation import (
    CallMove,
    ConversationFacts,
    ResponderMove,
    TextMove,
    ToolExchange,
)
from bridle.values.request import ToolSpec

from .expressions import (
    Expression,
    NumberNode,
    Operator,
    apply_operator,
    evaluate_expression,
    find_expression,
    format_number,
    parse_number,
)
from .tool_matching import find_text_parameter, list_parameters, make_call, matches_purpose

CALCULATOR_TOOL = re.compile(r"calc|arithm|\bmath|expression|evaluat|comput")
OPERATOR_TOOLS: tuple[tuple[Operator, re.Pattern[str]], ...] = (
    ("+", re.compile(r"^add|plus|^sum")),
    ("-", re.compile(r"^sub|minus|difference")),
    ("*", re.compile(r"^mul|times|product")),
    ("/", re.compile(r"^div|quotient")),
    ("**", re.compile(r"^pow|exponent")),
)


def try_arithmetic(scene: ConversationFacts) -> ResponderMove | None:
    found = find_expression(scene.prompt)
    if found is None:
        return None
    written, tree = found
    calculator = _find_calculator(scene)
    if calculator is not None:
        return _ask_calculator(scene, calculator, written)
    tools = _find_operator_tools(scene)
    if tools:
        return _OperationSteps(scene, tools).next_move(written, tree)
    return _compute_answer(written, tree)


def _find_calculator(scene: ConversationFacts) -> tuple[ToolSpec, str] | None:
    for tool in scene.tools:
        taking = find_text_parameter(tool)
        if taking and (matches_purpose(tool, CALCULATOR_TOOL) or CALCULATOR_TOOL.search(taking.name.lower())):
            return tool, taking.name
    return None


def _ask_calculator(
    scene: ConversationFacts, calculator: tuple[ToolSpec, str], written: str
) -> ResponderMove:
    tool, parameter = calculator
    done = scene.exchanges_with(tool)
    if not done:
        return (make_call(tool, {parameter: written}, scene.prompt),)
    last = done[-1]
    if last.is_error:
        return TextMove(text=f"I could not work out {written}: {tool.name} failed: {last.text}")
    return TextMove(text=last.text if "=" in last.text else f"{written} = {_number_in_result(last)}")


def _compute_answer(written: str, tree: Expression) -> ResponderMove:
    try:
        value = evaluate_expression(tree)
    except ArithmeticError as error:
        return TextMove(text=f"{written} has no answer I can give: {_explain_error(error)}.")
    return TextMove(text=f"{written} = {format_number(value)}, worked out without a tool.")


def _find_operator_tools(scene: ConversationFacts) -> dict[Operator, ToolSpec]:
    tools: dict[Operator, ToolSpec] = {}
    for tool in scene.tools:
        numeric = [item for item in list_parameters(tool) if item.type in ("integer", "number")]
        if len(numeric) == 2:
            for operator, name in OPERATOR_TOOLS:
                if name.search(tool.name.lower()):
                    tools.setdefault(operator, tool)
    return tools


class _OperationSteps:
    """One look at a sum: what is known of it, what to call next, what went wrong."""

    def __init__(self, scene: ConversationFacts, tools: dict[Operator, ToolSpec]) -> None:
        self.tools = tools
        self.prompt = scene.prompt
        self.exchanges = {
            _call_key(exchange.name, exchange.arguments): exchange for exchange in scene.exchanges
        }
        self.calls: dict[str, CallMove] = {}
        self.problem = ""

    def next_move(self, written: str, tree: Expression) -> ResponderMove:
        try:
            value = self._evaluate(tree)
        except ArithmeticError as error:
            self.problem = _explain_error(error)
            value = None
        if self.problem:
            return TextMove(text=f"I could not work out {written}: {self.problem}")
        return (
            tuple(self.calls.values())
            if value is None
            else TextMove(text=f"{written} = {format_number(value)}")
        )

    def _evaluate(self, tree: Expression) -> Fraction | None:
        """What this part comes to; None while a call for it is still to be made."""
        if isinstance(tree, NumberNode):
            return tree.value
        left, right = self._evaluate(tree.left), self._evaluate(tree.right)
        if left is None or right is None:
            return None
        tool = self.tools.get(tree.operator)
        arguments = _name_operands(tool, left, right) if tool else None
        if tool is None or arguments is None:
            return apply_operator(tree.operator, left, right)
        key = _call_key(tool.name, arguments)
        if key not in self.exchanges:
            self.calls[key] = make_call(tool, arguments, self.prompt)
            return None
        return self._read_result(self.exchanges[key])

    def _read_result(self, exchange: ToolExchange) -> Fraction | None:
        value = None if exchange.is_error else parse_number(_number_in_result(exchange))
        if value is None:
            went = "failed" if exchange.is_error else "brought no number"
            self.problem = self.problem or f"{exchange.name} {went}: {exchange.text}"
        return value


def _name_operands(tool: ToolSpec, left: Fraction, right: Fraction) -> dict[str, object] | None:
    """The two numbers by the tool's names for them; None when it does not take such numbers."""
    numeric = [item for item in list_parameters(tool) if item.type in ("integer", "number")]
    operands: dict[str, object] = {}
    for item, value in zip(numeric, (left, right), strict=True):
        if value.denominator == 1:
            operands[item.name] = int(value)
        elif item.type == "number":
            operands[item.name] = float(value)
        else:
            return None
    return operands


def _call_key(name: str, arguments: object) -> str:
    return name + msgspec.json.encode(arguments, order="deterministic").decode()


def _number_in_result(exchange: ToolExchange) -> str:
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


def _explain_error(error: ArithmeticError) -> str:
    return "it divides by zero" if isinstance(error, ZeroDivisionError) else str(error)

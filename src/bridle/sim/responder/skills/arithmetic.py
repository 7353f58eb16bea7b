"""Arithmetic with a calculator tool, with tools for single operations, or without tools.

With tools that add or multiply two numbers, an expression is split up: every operation whose two operands are
known is called, in parallel, and the results are the operands of the next calls.
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


def try_arithmetic(facts: ConversationFacts) -> ResponderMove | None:
    found = find_expression(facts.prompt)
    if found is None:
        return None
    written, tree = found
    calculator = _find_calculator(facts)
    if calculator is not None:
        return _ask_calculator(facts, calculator, written)
    tools = _find_operator_tools(facts)
    if tools:
        return _OperationSteps(facts, tools).next_move(written, tree)
    return _compute_answer(written, tree)


def _find_calculator(facts: ConversationFacts) -> tuple[ToolSpec, str] | None:
    for tool in facts.tools:
        parameter = find_text_parameter(tool)
        if parameter and (
            matches_purpose(tool, CALCULATOR_TOOL) or CALCULATOR_TOOL.search(parameter.name.lower())
        ):
            return tool, parameter.name
    return None


def _ask_calculator(
    facts: ConversationFacts, calculator: tuple[ToolSpec, str], written: str
) -> ResponderMove:
    tool, parameter = calculator
    done = facts.exchanges_with(tool)
    if not done:
        return (make_call(tool, {parameter: written}, facts.prompt),)
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


def _find_operator_tools(facts: ConversationFacts) -> dict[Operator, ToolSpec]:
    tools: dict[Operator, ToolSpec] = {}
    for tool in facts.tools:
        numeric = [item for item in list_parameters(tool) if item.type in ("integer", "number")]
        if len(numeric) == 2:
            for operator, name in OPERATOR_TOOLS:
                if name.search(tool.name.lower()):
                    tools.setdefault(operator, tool)
    return tools


class _OperationSteps:
    """One pass over an expression: collects known values, the next calls and the first problem."""

    def __init__(self, facts: ConversationFacts, tools: dict[Operator, ToolSpec]) -> None:
        self.tools = tools
        self.prompt = facts.prompt
        self.exchanges = {
            _call_key(exchange.name, exchange.arguments): exchange for exchange in facts.exchanges
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
        """Return the value of this subtree; None while a call for it is pending."""
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
            outcome = "failed" if exchange.is_error else "brought no number"
            self.problem = self.problem or f"{exchange.name} {outcome}: {exchange.text}"
        return value


def _name_operands(tool: ToolSpec, left: Fraction, right: Fraction) -> dict[str, object] | None:
    """Name the two operands as the tool does; None if it does not accept such numbers."""
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
    """Return the number in a result, also from an object with a single number."""
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

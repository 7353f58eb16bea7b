"""Finds arithmetic expressions in text, parses them and evaluates them exactly.

Numbers are fractions, so no precision is lost. Only plain arithmetic is supported; nothing in a prompt is
ever evaluated as code.
"""

import re
from fractions import Fraction
from operator import add, mul, sub, truediv
from typing import Literal

from bridle.values.base import Value

Operator = Literal["+", "-", "*", "/", "**"]
OPERATORS = {"+": add, "-": sub, "*": mul, "/": truediv}
POWER_MAX = 10_000
"""Limit on base times exponent, because larger powers could exhaust the machine."""

OPERATOR_WORDS = (
    (re.compile(r"(?<=\d),(?=\d{3}\b)"), ""),
    (
        re.compile(
            r"(?<=[\d)])(?:,\s*(?:and\s+)?(?:then\s+)?|\s+(?:and\s+)?then\s+)(?=(?:plus|minus|less|times|multiplied|divided)\b)"
        ),
        "\x1f",
    ),
    (re.compile(r"\bto the power of\b|\^"), "**"),
    (re.compile(r"\bsquared\b"), "** 2"),
    (re.compile(r"\b(?:multiplied by|times)\b|[\u00d7\u00b7]|(?<=\d)\s*x\s*(?=\d)"), " * "),
    (re.compile(r"\b(?:divided by|over)\b|\u00f7"), " / "),
    (re.compile(r"\bplus\b"), " + "),
    (re.compile(r"\b(?:minus|less)\b|[\u2212\u2013]"), " - "),
)
EXPRESSION = re.compile(r"[-(\s]*\d[\d\s.+*/()\x1f-]*")
SO_FAR = "\x1f"
"""Separates what has been said of an expression from an operation with its value: `17 * 23, minus 100`."""
TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|\*\*|[-+*/()])")
RANGE = re.compile(r"\d+(?:[-/]\d+)+")
"""A date, a range or a ratio; treated as an expression only if the prompt asks for a calculation."""
CALCULATION_REQUEST = re.compile(
    r"\b(?:what is|what's|how much|calculate|compute|evaluate|work out|solve)\b", re.IGNORECASE
)


class NumberNode(Value, kw_only=True, gc=True):
    value: Fraction


class OperationNode(Value, kw_only=True, gc=True):
    operator: Operator
    left: "NumberNode | OperationNode"
    right: "NumberNode | OperationNode"


Expression = NumberNode | OperationNode


def find_expression(prompt: str) -> tuple[str, OperationNode] | None:
    """Find the longest expression in a prompt, and return its text and its tree."""
    text = prompt
    for pattern, sign in OPERATOR_WORDS:
        text = pattern.sub(sign, text)
    spans = sorted((match.group().strip() for match in EXPRESSION.finditer(text)), key=len, reverse=True)
    for span in spans:
        written = _bracket_so_far(span.rstrip(f" .+*/-({SO_FAR}"))
        tree = parse_expression(written)
        if isinstance(tree, OperationNode) and (
            not RANGE.fullmatch(written) or _is_meant_as_sum(prompt, written)
        ):
            return written, tree
    return None


def _bracket_so_far(span: str) -> str:
    """The expression with what comes before each comma in brackets, if the operation after it would change it."""
    first, *rest = (" ".join(part.split()) for part in span.split(SO_FAR))
    for part in rest:
        first = (
            f"({first}) {part}" if re.search(r"\d\s*[-+]", first) and part[0] in "*/" else f"{first} {part}"
        )
    return first


def parse_expression(text: str) -> Expression | None:
    """Parse an expression; None if the text is not one."""
    tokens = TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s+", "", text):
        return None
    reader = _ExpressionParser(tokens)
    tree = reader.parse_sum()
    return tree if tree is not None and reader.is_done else None


def evaluate_expression(tree: Expression) -> Fraction:
    """Evaluate an expression exactly. Raises `ArithmeticError` if it has no value."""
    if isinstance(tree, NumberNode):
        return tree.value
    return apply_operator(tree.operator, evaluate_expression(tree.left), evaluate_expression(tree.right))


def apply_operator(operator: Operator, left: Fraction, right: Fraction) -> Fraction:
    if operator != "**":
        return Fraction(OPERATORS[operator](left, right))
    if (
        right.denominator != 1
        or abs(right) * max(abs(left), Fraction(left.denominator), Fraction(2)) > POWER_MAX
    ):
        raise OverflowError("only small whole powers are worked out")
    return Fraction(left ** int(right))


def format_number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.10g}"


def parse_number(text: str) -> Fraction | None:
    """Parse a text that is a number, with optional spaces and a final full stop."""
    match = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*\.?\s*", text)
    return Fraction(match.group(1)) if match else None


def _is_meant_as_sum(prompt: str, written: str) -> bool:
    return prompt.strip(" ?=.!") == written or bool(CALCULATION_REQUEST.search(prompt))


class _ExpressionParser:
    """Recursive descent parser: sums of products of powers of numbers and brackets."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def is_done(self) -> bool:
        return self.at == len(self.tokens)

    def take_token(self, *wanted: str) -> str:
        if not self.is_done and self.tokens[self.at] in wanted:
            self.at += 1
            return self.tokens[self.at - 1]
        return ""

    def parse_sum(self) -> Expression | None:
        tree = self.parse_product()
        while tree is not None and (sign := self.take_token("+", "-")):
            right = self.parse_product()
            tree = None if right is None else _make_operation(sign, tree, right)
        return tree

    def parse_product(self) -> Expression | None:
        tree = self.parse_power()
        while tree is not None and (sign := self.take_token("*", "/")):
            right = self.parse_power()
            tree = None if right is None else _make_operation(sign, tree, right)
        return tree

    def parse_power(self) -> Expression | None:
        if self.take_token("-"):
            inner = self.parse_power()
            if isinstance(inner, NumberNode):
                return NumberNode(value=-inner.value)
            return None if inner is None else _make_operation("-", NumberNode(value=Fraction(0)), inner)
        tree = self.parse_atom()
        if tree is not None and self.take_token("**"):
            right = self.parse_power()
            return None if right is None else _make_operation("**", tree, right)
        return tree

    def parse_atom(self) -> Expression | None:
        if self.take_token("("):
            tree = self.parse_sum()
            return tree if self.take_token(")") else None
        if self.is_done or not self.tokens[self.at][-1].isdigit():
            return None
        self.at += 1
        return NumberNode(value=Fraction(self.tokens[self.at - 1]))


def _make_operation(sign: str, left: Expression, right: Expression) -> OperationNode:
    match sign:
        case "+" | "-" | "*" | "/" | "**":
            return OperationNode(operator=sign, left=left, right=right)
        case _:
            raise AssertionError(f"{sign!r} is not an operator")

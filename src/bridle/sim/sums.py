"""Sums: found in words, read into a tree, and worked out exactly.

Numbers are fractions, so nothing is lost on the way.  Only plain arithmetic is
understood; nothing in a prompt is ever evaluated as code.
"""

import re
from fractions import Fraction
from operator import add, mul, sub, truediv
from typing import Literal

from ..values.value import Value

Operator = Literal["+", "-", "*", "/", "**"]
OPERATORS = {"+": add, "-": sub, "*": mul, "/": truediv}
POWER_MAX = 10_000
"""Base times exponent: beyond it a power is a way to stop the machine, not a question."""

WORDS = (
    (re.compile(r"(?<=\d),(?=\d{3}\b)"), ""),
    (re.compile(r"\bto the power of\b|\^"), "**"),
    (re.compile(r"\bsquared\b"), "** 2"),
    (re.compile(r"\b(?:multiplied by|times)\b|[\u00d7\u00b7]|(?<=\d)\s*x\s*(?=\d)"), " * "),
    (re.compile(r"\b(?:divided by|over)\b|\u00f7"), " / "),
    (re.compile(r"\bplus\b"), " + "),
    (re.compile(r"\b(?:minus|less)\b|[\u2212\u2013]"), " - "),
)
SPAN = re.compile(r"[-(\s]*\d[\d\s.+*/()-]*")
TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|\*\*|[-+*/()])")
RANGE = re.compile(r"\d+(?:[-/]\d+)+")
"""A date, a range or a share rather than a sum, unless somebody asks for it."""
ASKED = re.compile(
    r"\b(?:what is|what's|how much|calculate|compute|evaluate|work out|solve)\b", re.IGNORECASE
)


class Number(Value):
    value: Fraction


class Operation(Value):
    operator: Operator
    left: "Number | Operation"
    right: "Number | Operation"


Sum = Number | Operation


def find(prompt: str) -> tuple[str, Operation] | None:
    """The longest sum in a prompt, as written with signs and as a tree."""
    text = prompt
    for pattern, sign in WORDS:
        text = pattern.sub(sign, text)
    spans = sorted((match.group().strip() for match in SPAN.finditer(text)), key=len, reverse=True)
    for span in spans:
        written = " ".join(span.rstrip(" .+*/-(").split())
        tree = read(written)
        if isinstance(tree, Operation) and (not RANGE.fullmatch(written) or _meant(prompt, written)):
            return written, tree
    return None


def read(text: str) -> Sum | None:
    """The tree of a sum; None when it is not one."""
    tokens = TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s+", "", text):
        return None
    reader = _Reader(tokens)
    tree = reader.sum()
    return tree if tree is not None and reader.done else None


def worked_out(tree: Sum) -> Fraction:
    """Raises `ArithmeticError` where there is no answer."""
    if isinstance(tree, Number):
        return tree.value
    return apply(tree.operator, worked_out(tree.left), worked_out(tree.right))


def apply(operator: Operator, left: Fraction, right: Fraction) -> Fraction:
    if operator != "**":
        return Fraction(OPERATORS[operator](left, right))
    if (
        right.denominator != 1
        or abs(right) * max(abs(left), Fraction(left.denominator), Fraction(2)) > POWER_MAX
    ):
        raise OverflowError("only small whole powers are worked out")
    return Fraction(left ** int(right))


def shown(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.10g}"


def number_in(text: str) -> Fraction | None:
    """The number a text consists of, give or take spaces and a final stop."""
    match = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*\.?\s*", text)
    return Fraction(match.group(1)) if match else None


def _meant(prompt: str, written: str) -> bool:
    return prompt.strip(" ?=.!") == written or bool(ASKED.search(prompt))


class _Reader:
    """Reads by precedence: sums of products of powers of numbers and brackets."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def done(self) -> bool:
        return self.at == len(self.tokens)

    def taken(self, *wanted: str) -> str:
        if not self.done and self.tokens[self.at] in wanted:
            self.at += 1
            return self.tokens[self.at - 1]
        return ""

    def sum(self) -> Sum | None:
        tree = self.product()
        while tree is not None and (sign := self.taken("+", "-")):
            right = self.product()
            tree = None if right is None else _operation(sign, tree, right)
        return tree

    def product(self) -> Sum | None:
        tree = self.power()
        while tree is not None and (sign := self.taken("*", "/")):
            right = self.power()
            tree = None if right is None else _operation(sign, tree, right)
        return tree

    def power(self) -> Sum | None:
        if self.taken("-"):
            inner = self.power()
            if isinstance(inner, Number):
                return Number(value=-inner.value)
            return None if inner is None else _operation("-", Number(value=Fraction(0)), inner)
        tree = self.single()
        if tree is not None and self.taken("**"):
            right = self.power()
            return None if right is None else _operation("**", tree, right)
        return tree

    def single(self) -> Sum | None:
        if self.taken("("):
            tree = self.sum()
            return tree if self.taken(")") else None
        if self.done or not self.tokens[self.at][-1].isdigit():
            return None
        self.at += 1
        return Number(value=Fraction(self.tokens[self.at - 1]))


def _operation(sign: str, left: Sum, right: Sum) -> Operation:
    match sign:
        case "+" | "-" | "*" | "/" | "**":
            return Operation(operator=sign, left=left, right=right)
        case _:
            raise AssertionError(f"{sign!r} is no operator")

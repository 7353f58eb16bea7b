"""The tools of the demo: small, real, and harmless.

    bridle run "What is 17 * 23 minus 100?" --tools examples/demo_tools.py

A tool is a plain function.  Its signature is the schema the model sees, its docstring
the description, and `effect="read"` says that calling it changes nothing, so several
calls may run at once.
"""

import ast
import asyncio
import operator
import re
from pathlib import Path

from bridle import tool

NOTES = Path(__file__).parent / "notes"
MATCHES_MAX = 20
FILE_BYTES_MAX = 64 * 1024
POWER_MAX = 10_000
"""Base times exponent: beyond it a power is a way to stop the machine, not a question."""

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}

SAMPLE_WEATHER = {
    "berlin": (11, "light rain"),
    "cairo": (29, "sunny"),
    "london": (12, "overcast"),
    "madrid": (19, "sunny"),
    "nairobi": (23, "scattered clouds"),
    "new york": (14, "windy"),
    "oslo": (3, "snow showers"),
    "paris": (13, "cloudy"),
    "rio de janeiro": (27, "thunderstorms"),
    "rome": (18, "sunny"),
    "sydney": (22, "clear"),
    "tokyo": (17, "clear"),
}


@tool(effect="read", errors=[ValueError])
def calculate(expression: str) -> str:
    """Work out an arithmetic expression such as "17 * 23 - 100".

    Args:
        expression: Numbers, + - * / // % ** and brackets.
    """
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError:
        raise ValueError(f"{expression!r} is not an arithmetic expression") from None
    return f"{value:.10g}" if isinstance(value, float) else str(value)


@tool(effect="read", errors=[ValueError])
async def get_weather(city: str) -> str:
    """The weather in a city now.  Sample data, made up for the demo.

    Args:
        city: Name of a city, in English.
    """
    await asyncio.sleep(0)  # where a real tool would wait for a weather service
    found = SAMPLE_WEATHER.get(city.strip().lower())
    if found is None:
        known = ", ".join(name.title() for name in SAMPLE_WEATHER)
        raise ValueError(f"no sample weather for {city!r}; there is some for {known}")
    degrees, sky = found
    return f"{degrees} °C, {sky} (sample data)"


@tool(effect="read", errors=[ValueError])
def search_files(pattern: str) -> str:
    """Search the notes for a word or regular expression; gives file, line number and line.

    Args:
        pattern: What to look for; case does not matter.
    """
    try:
        wanted = re.compile(pattern, re.IGNORECASE)
    except re.error:
        wanted = re.compile(re.escape(pattern), re.IGNORECASE)
    found = [
        f"{path.name}:{number}: {line}"
        for path in sorted(NOTES.glob("*.txt"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if wanted.search(line)
    ]
    return "\n".join(found[:MATCHES_MAX]) or f"No matches for {pattern!r}."


@tool(effect="read", errors=[ValueError])
def read_file(path: str) -> str:
    """Read one of the notes.

    Args:
        path: File name as the search gives it, e.g. "library.txt".
    """
    place = (NOTES / path).resolve()
    if not place.is_relative_to(NOTES.resolve()):
        raise ValueError(f"{path!r} is outside the notes; only files in there can be read")
    if not place.is_file():
        raise ValueError(f"there is no note {path!r}; search_files finds the ones there are")
    return place.read_bytes()[:FILE_BYTES_MAX].decode("utf-8", "replace")


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _operated(op, _value(left), _value(right))
        case _:
            raise ValueError(f"only arithmetic is worked out, not {ast.unparse(node)!r}")


def _operated(op: ast.operator, left: float, right: float) -> float:
    if isinstance(op, ast.Pow) and abs(right) * max(abs(left), 2) > POWER_MAX:
        raise ValueError("that power is too large to be worked out here")
    if right == 0 and isinstance(op, ast.Div | ast.FloorDiv | ast.Mod):
        raise ValueError("division by zero")
    value = OPERATORS[type(op)](left, right)
    if isinstance(value, complex):
        raise ValueError("only real numbers are worked out")
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value

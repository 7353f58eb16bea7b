"""Looks something up in files: searches for a word, reads the file, quotes the line.

The search word is guessed from the question: quoted text first, then names, then the longest words. If a
search finds nothing, the next word is tried, up to a limit.
"""

import re
from collections.abc import Iterator, Sequence

from bridle.sim.responder.conversation import ConversationFacts, ResponderMove, TextMove, ToolExchange
from bridle.values.base import Value
from bridle.values.request import ToolSpec

from .tool_matching import find_text_parameter, make_call, matches_purpose

LOOKUP_REQUEST = re.compile(
    r"\b(?:files?|notes?|docs?|documents?|documentation|folder|look\s?up|look it up|look for|search|grep|find"
    r"|read|mentions?)\b",
    re.IGNORECASE,
)
SEARCH_TOOL = re.compile(r"search|grep|\bfind")
READ_TOOL = re.compile(r"read|open|^cat\b|view|fetch")
QUERY_PARAMETER = re.compile(r"pattern|query|text|term|word|keyword|regex|search")
PATH_PARAMETER = re.compile(r"path|file|name")
QUOTED_TEXT = re.compile(r"[\"'`“]([^\"'`“”]{2,60})[\"'`”]")
WORD = re.compile(r"[A-Za-zÀ-ž][\w-]{2,}")
FILE_NAME = re.compile(r"(?<![\w/.])(?:[\w-]+/)*[\w-][\w.-]*\.[a-z]{1,5}\b")
NO_MATCH = re.compile(
    r"^\s*(?:\[\]|\{\}|none|0\b.*)?\s*$|\bno (?:match|result|file|hit|line)|not found|nothing", re.IGNORECASE
)
TRIES_MAX = 4
# not from outside: our own text, shown to a person or a model
LINE_CHARS_MAX = 200
COMMON_WORDS = frozenset(
    """about according all and any anything are can could docs document documentation documents does each
    every file files find folder for from give grep have here how into know let line lines look lookup mention
    mentioned mentions need note notes our out please project quote read say says search see show some tell
    than that the their them then there these they this those through use using want was were what when
    where which who whose why will with word would you your""".split()  # noqa: SIM905  a list of words reads as words
)


class ToolParameter(Value, kw_only=True):
    tool: ToolSpec
    parameter: str


def try_file_lookup(facts: ConversationFacts) -> ResponderMove | None:
    search = _find_tool(facts, SEARCH_TOOL, QUERY_PARAMETER)
    read = _find_tool(facts, READ_TOOL, PATH_PARAMETER)
    if not LOOKUP_REQUEST.search(facts.prompt) or (search is None and read is None):
        return None
    errors = [item for item in facts.exchanges if item.is_error]
    if errors:
        return TextMove(text=f"I could not look that up: {errors[-1].name} failed: {errors[-1].text}")
    opened = facts.exchanges_with(read.tool) if read else ()
    if opened:
        return _quote_line(
            facts, opened[-1], str(opened[-1].arguments.get(read.parameter, "")) if read else ""
        )
    named = FILE_NAME.search(facts.prompt)
    if read and named:
        return (make_call(read.tool, {read.parameter: named.group()}, facts.prompt),)
    return _search_files(facts, search, read) if search else None


def _find_tool(
    facts: ConversationFacts, purpose: re.Pattern[str], named: re.Pattern[str]
) -> ToolParameter | None:
    candidates = [tool for tool in facts.tools if purpose.search(tool.name.lower())]
    candidates += [tool for tool in facts.tools if matches_purpose(tool, purpose) and tool not in candidates]
    for tool in candidates:
        parameter = find_text_parameter(tool, named)
        if parameter:
            return ToolParameter(tool=tool, parameter=parameter.name)
    return None


def _search_files(
    facts: ConversationFacts, search: ToolParameter, read: ToolParameter | None
) -> ResponderMove:
    words = find_keywords(facts.prompt)
    if not words:
        return TextMove(text="Tell me which word to look for, best in quotation marks.")
    done = facts.exchanges_with(search.tool)
    if done and not NO_MATCH.search(done[-1].text):
        where = FILE_NAME.search(done[-1].text)
        if read and where:
            return (make_call(read.tool, {read.parameter: where.group()}, facts.prompt),)
        return _quote_line(facts, done[-1], "")
    if len(done) < min(len(words), TRIES_MAX):
        return (make_call(search.tool, {search.parameter: words[len(done)]}, facts.prompt),)
    tried = ", ".join(f'"{word}"' for word in words[: len(done)])
    return TextMove(text=f"I found nothing about that; I searched for {tried}.")


def find_keywords(prompt: str) -> Sequence[str]:
    """List search words, best guess first."""
    return tuple(dict.fromkeys(_guess_keywords(prompt)))


def _guess_keywords(prompt: str) -> Iterator[str]:
    yield from QUOTED_TEXT.findall(prompt)
    words = [word for word in WORD.findall(prompt) if word.lower() not in COMMON_WORDS]
    starts = {match.group(1) for match in re.finditer(r"(?:^|[.!?]\s+)([A-Za-z]+)", prompt)}
    yield from (word for word in words if word[0].isupper() and word not in starts)
    yield from sorted(words, key=len, reverse=True)
    yield from (word.rstrip("s") for word in words if word.endswith("s") and len(word) > 4)


def _quote_line(facts: ConversationFacts, source: ToolExchange, path: str) -> TextMove:
    """Quote the line that contains most words of the question."""
    words = [word.lower().rstrip("s") for word in find_keywords(facts.prompt)]
    lines = [line.strip() for line in source.text.splitlines() if line.strip()]
    if not lines:
        return TextMove(text=f"{path or 'What I found'} is empty.")
    best = max(lines, key=lambda line: (sum(word in line.lower() for word in words), -len(line)))
    quote = best if len(best) <= LINE_CHARS_MAX else best[:LINE_CHARS_MAX] + "…"
    return TextMove(text=f"{path} says: “{quote}”" if path else f"I found: “{quote}”")

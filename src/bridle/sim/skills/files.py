"""Looking something up in files: search for a word, read the file it is in, quote the line.

The word to search for is guessed from the question: what stands in quotation marks,
then names, then the longest words.  When a search brings nothing the next word is
tried, a few times; then the answer is that nothing was found.
"""

import re
from collections.abc import Iterator, Sequence

from ...values.request import ToolSpec
from ...values.value import Value
from ..scene import Answer, Exchange, Move, Scene
from .tools import call, smells, text_parameter

ASKED = re.compile(
    r"\b(?:files?|notes?|docs?|documents?|documentation|folder|look\s?up|look it up|look for|search|grep|find"
    r"|read|mentions?)\b",
    re.IGNORECASE,
)
SEARCH = re.compile(r"search|grep|\bfind")
READ = re.compile(r"read|open|^cat\b|view|fetch")
WHAT = re.compile(r"pattern|query|text|term|word|keyword|regex|search")
PATH = re.compile(r"path|file|name")
QUOTED = re.compile(r"[\"'`“]([^\"'`“”]{2,60})[\"'`”]")
WORD = re.compile(r"[A-Za-zÀ-ž][\w-]{2,}")
FILE = re.compile(r"(?<![\w/.])(?:[\w-]+/)*[\w-][\w.-]*\.[a-z]{1,5}\b")
NOTHING = re.compile(
    r"^\s*(?:\[\]|\{\}|none|0\b.*)?\s*$|\bno (?:match|result|file|hit|line)|not found|nothing", re.IGNORECASE
)
TRIES_MAX = 4
LINE_CHARS_MAX = 200
COMMON = frozenset(
    """about according all and any anything are can could docs document documentation documents does each
    every file files find folder for from give grep have here how into know let line lines look lookup mention
    mentioned mentions need note notes our out please project quote read say says search see show some tell
    than that the their them then there these they this those through use using want was were what when
    where which who whose why will with word would you your""".split()  # noqa: SIM905  a list of words reads as words
)


class Place(Value):
    tool: ToolSpec
    parameter: str


def attempt(scene: Scene) -> Move | None:
    search = _tool(scene, SEARCH, WHAT)
    read = _tool(scene, READ, PATH)
    if not ASKED.search(scene.prompt) or (search is None and read is None):
        return None
    errors = [item for item in scene.exchanges if item.is_error]
    if errors:
        return Answer(text=f"I could not look that up: {errors[-1].name} failed: {errors[-1].text}")
    opened = scene.of(read.tool) if read else ()
    if opened:
        return _quoted(scene, opened[-1], str(opened[-1].arguments.get(read.parameter, "")) if read else "")
    named = FILE.search(scene.prompt)
    if read and named:
        return (call(read.tool, {read.parameter: named.group()}, scene.prompt),)
    return _searched(scene, search, read) if search else None


def _tool(scene: Scene, purpose: re.Pattern[str], named: re.Pattern[str]) -> Place | None:
    fitting = [tool for tool in scene.tools if purpose.search(tool.name.lower())]
    fitting += [tool for tool in scene.tools if smells(tool, purpose) and tool not in fitting]
    for tool in fitting:
        taking = text_parameter(tool, named)
        if taking:
            return Place(tool=tool, parameter=taking.name)
    return None


def _searched(scene: Scene, search: Place, read: Place | None) -> Move:
    words = keywords(scene.prompt)
    if not words:
        return Answer(text="Tell me which word to look for, best in quotation marks.")
    done = scene.of(search.tool)
    if done and not NOTHING.search(done[-1].text):
        where = FILE.search(done[-1].text)
        if read and where:
            return (call(read.tool, {read.parameter: where.group()}, scene.prompt),)
        return _quoted(scene, done[-1], "")
    if len(done) < min(len(words), TRIES_MAX):
        return (call(search.tool, {search.parameter: words[len(done)]}, scene.prompt),)
    tried = ", ".join(f'"{word}"' for word in words[: len(done)])
    return Answer(text=f"I found nothing about that; I searched for {tried}.")


def keywords(prompt: str) -> Sequence[str]:
    """What to search for, best guess first."""
    return tuple(dict.fromkeys(_guesses(prompt)))


def _guesses(prompt: str) -> Iterator[str]:
    yield from QUOTED.findall(prompt)
    words = [word for word in WORD.findall(prompt) if word.lower() not in COMMON]
    starts = {match.group(1) for match in re.finditer(r"(?:^|[.!?]\s+)([A-Za-z]+)", prompt)}
    yield from (word for word in words if word[0].isupper() and word not in starts)
    yield from sorted(words, key=len, reverse=True)
    yield from (word.rstrip("s") for word in words if word.endswith("s") and len(word) > 4)


def _quoted(scene: Scene, source: Exchange, path: str) -> Answer:
    """The line that has most of the words of the question."""
    words = [word.lower().rstrip("s") for word in keywords(scene.prompt)]
    lines = [line.strip() for line in source.text.splitlines() if line.strip()]
    if not lines:
        return Answer(text=f"{path or 'What I found'} is empty.")
    best = max(lines, key=lambda line: (sum(word in line.lower() for word in words), -len(line)))
    quote = best if len(best) <= LINE_CHARS_MAX else best[:LINE_CHARS_MAX] + "…"
    return Answer(text=f"{path} says: “{quote}”" if path else f"I found: “{quote}”")

"""Reads a script of replies from a prompt.

A prompt with a line that starts with `!` is a script, and the replies are exactly what the script says. This
works from any client in any language, because it only needs a prompt. `DIRECTIVES` below describes each
directive.

Lines without `!` are comments. A Markdown image (`![`) is not a directive. Within a reply, reasoning comes
first and calls last, wherever they stand in the script, because providers require that order.

Each failure (`!error`, `!cut`) happens once, in the order of the script, one for each attempt at that reply;
then the reply is delivered. An error that says the request itself is wrong (a 4xx that must not be retried)
repeats every time.

A script with a mistake is not played; the reply lists the mistakes.
"""

import re
from math import isfinite

import msgspec

from bridle.providers.wire.failures import kind_of_status
from bridle.values.base import Value
from bridle.values.errors import Failure

from .decision import CutAfter, SimulatedFailure
from .hosted_uses import HostedUse

DIRECTIVE_LINE = re.compile(r"!(?!\[)(\S*)[ \t]?(.*)", re.DOTALL)
CALL_ARGUMENTS = re.compile(r"([^\s{]+)\s*(.*)", re.DOTALL)
STOP_WORD = re.compile(r"\w+")
REPEATS_MAX = 10_000
# not from outside: an argument of the user's program
SECONDS_MAX = 86_400.0
DIRECTIVES = {
    "say": ("!say TEXT", "text; several in a row are lines of one text"),
    "think": ("!think TEXT", "reasoning, signed where the provider signs it"),
    "call": (
        "!call NAME {json}",
        "a call; several in one reply are parallel; the arguments are one JSON object, or nothing",
    ),
    "hosted": (
        "!hosted CONCEPT TEXT",
        "the provider uses its own tool, such as `web_search`; nothing if the request does not declare it",
    ),
    "then": ("!then", "starts the next reply, given after the tool results"),
    "repeat": ("!repeat N", "gives this reply N times in a row before the next one"),
    "stop": (
        "!stop REASON",
        "stop reason: the provider's own word, or one of ours (done, length, refused, …)",
    ),
    "truncate": (
        "!truncate",
        "cuts the last call's arguments (or the text) in half, as at the output limit",
    ),
    "error": (
        "!error STATUS [SECONDS]",
        "one attempt fails with this status and this Retry-After; several fail one attempt each",
    ),
    "cut": (
        "!cut BYTES",
        "the connection breaks after this many bytes of the reply, for one attempt",
    ),
    "stall": (
        "!stall SECONDS",
        "silence: at the start of a reply before its first byte, later in the middle of its stream",
    ),
    "pace": ("!pace MS", "milliseconds between two chunks of the stream"),
}


class ScriptCall(Value, kw_only=True):
    name: str
    arguments: str
    """JSON text exactly as in the script."""


class ScriptReply(Value, kw_only=True):
    reasoning: str = ""
    text: str = ""
    calls: tuple[ScriptCall, ...] = ()
    hosted: tuple[HostedUse, ...] = ()
    stop: str = ""
    truncated: bool = False
    failures: tuple[SimulatedFailure, ...] = ()
    silence_seconds: float = 0.0
    stall_seconds: float = 0.0
    pace_seconds: float = 0.0


class ReplyScript(Value, kw_only=True):
    replies: tuple[ScriptReply, ...]
    mistakes: tuple[str, ...] = ()


def parse_script(prompt: str) -> ReplyScript | None:
    """Parse the script in a prompt; None if it contains no directive."""
    lines = [(number, line.rstrip("\r")) for number, line in enumerate(prompt.split("\n"), start=1)]
    directives = [
        (number, line, DIRECTIVE_LINE.fullmatch(line)) for number, line in lines if line.startswith("!")
    ]
    found = [(number, line, match) for number, line, match in directives if match]
    if not found:
        return None
    replies = [_ReplyDraft()]
    mistakes: list[str] = []
    for number, line, match in found:
        word, rest = match.groups()
        mistake = _add_directive(word, rest, replies)
        if mistake:
            mistakes.append(f"line {number}, `{line.strip()}`: {mistake}")
    scripted = tuple(reply for draft in replies for reply in (draft.build_reply(),) * draft.repeats)
    return ReplyScript(replies=scripted, mistakes=tuple(mistakes))


def directive_lines(prompt: str) -> tuple[str, ...]:
    """List the directives in a prompt, unchanged."""
    lines = (line.rstrip("\r") for line in prompt.split("\n"))
    return tuple(line for line in lines if line.startswith("!") and DIRECTIVE_LINE.fullmatch(line))


def explain_mistakes(mistakes: tuple[str, ...]) -> str:
    listed = "\n".join(f"- {mistake}" for mistake in mistakes)
    known = ", ".join(f"`{form}`" for form, _ in DIRECTIVES.values())
    return f"This script cannot be played:\n{listed}\nDirectives are {known}."


def make_failure(status: int, retry_after_seconds: float | None = None) -> Failure:
    """Make a generic failure with this status."""
    return Failure(
        kind=kind_of_status(status),
        message=f"Simulated failure with status {status}.",
        status=status,
        retry_after_seconds=retry_after_seconds,
    )


class _ReplyDraft:
    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.texts: list[str] = []
        self.calls: list[ScriptCall] = []
        self.hosted: list[HostedUse] = []
        self.failures: list[SimulatedFailure] = []
        self.stop = ""
        self.truncated = False
        self.silence = self.stall = self.pace = 0.0
        self.repeats = 1

    @property
    def has_content(self) -> bool:
        return bool(self.reasoning or self.texts or self.calls)

    def build_reply(self) -> ScriptReply:
        return ScriptReply(
            reasoning="\n".join(self.reasoning),
            text="\n".join(self.texts),
            calls=tuple(self.calls),
            hosted=tuple(self.hosted),
            stop=self.stop,
            truncated=self.truncated,
            failures=tuple(self.failures),
            silence_seconds=self.silence,
            stall_seconds=self.stall,
            pace_seconds=self.pace,
        )


def _add_directive(word: str, rest: str, replies: list[_ReplyDraft]) -> str:
    """Add one directive to the script, or return the mistake in it."""
    draft = replies[-1]
    match word:
        case "say":
            draft.texts.append(rest)
        case "think":
            draft.reasoning.append(rest)
        case "call":
            call = _parse_call(rest)
            if isinstance(call, str):
                return call
            draft.calls.append(call)
        case "hosted":
            concept, _, text = rest.strip().partition(" ")
            if not concept:
                return f"write it as `{DIRECTIVES[word][0]}`"
            draft.hosted.append(HostedUse(concept=concept, text=text))
        case "then" | "truncate" if rest.strip():
            return f"nothing may follow `!{word}` on its line"
        case "then":
            replies.append(_ReplyDraft())
        case "truncate":
            draft.truncated = True
        case "stop":
            if not STOP_WORD.fullmatch(rest.strip()):
                return "the reason is one word"
            draft.stop = rest.strip()
        case _ if word in DIRECTIVES:
            return _add_number_directive(word, rest.split(), draft)
        case _:
            return "there is no such directive"
    return ""


def _add_number_directive(word: str, arguments: list[str], draft: _ReplyDraft) -> str:
    """Add a directive that takes numbers, or return the mistake in it."""
    numbers = [number for number in map(_parse_number, arguments) if number is not None]
    if len(numbers) != len(arguments) or not 1 <= len(numbers) <= (2 if word == "error" else 1):
        return f"write it as `{DIRECTIVES[word][0]}`"
    first, *more = numbers
    match word:
        case "error":
            if not (first.is_integer() and 400 <= first <= 599):
                return "a failure has a status from 400 to 599"
            draft.failures.append(make_failure(int(first), more[0] if more else None))
        case "cut":
            draft.failures.append(CutAfter(bytes=int(first)))
        case "repeat":
            if not (first.is_integer() and 1 <= first <= REPEATS_MAX):
                return f"a reply can be repeated 1 to {REPEATS_MAX} times"
            draft.repeats = int(first)
        case "pace":
            draft.pace = first / 1000
        case "stall" if draft.has_content:
            draft.stall = first
        case _:
            draft.silence = first
    return ""


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) and 0 <= number <= SECONDS_MAX * 1000 else None


def _parse_call(rest: str) -> ScriptCall | str:
    match = CALL_ARGUMENTS.fullmatch(rest.strip())
    if match is None:
        return "name the tool to call"
    name, arguments = match.groups()
    try:
        msgspec.json.decode(arguments or "{}", type=dict[str, object])
    except msgspec.DecodeError as error:
        return f"the arguments must be one JSON object on the same line ({error})"
    return ScriptCall(name=name, arguments=arguments or "{}")

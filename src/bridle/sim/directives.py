"""Replies scripted from inside the prompt.

A prompt with a line that starts with `!` is a script, and the reply is exactly what
the script says.  This works from any client in any language, because all it needs
is a prompt:

    !say TEXT            words; several in a row are lines of one text
    !think TEXT          reasoning
    !call NAME {json}    a call; several in one reply are parallel calls
    !then                what follows is the next reply, given when results came back

Lines without `!` are for human readers.  A line that begins a picture in Markdown
(`![`) is not a directive.  Within a reply, reasoning comes first and calls last,
wherever the script has them: that is how models speak, and providers refuse to be
told otherwise.

A script with a mistake in it is not played at all; the mistakes are the answer.
"""

import re

import msgspec

from ..values.value import Value

LINE = re.compile(r"!(?!\[)(\S*)[ \t]?(.*)", re.DOTALL)
CALL = re.compile(r"([^\s{]+)\s*(.*)", re.DOTALL)


class ScriptedCall(Value):
    name: str
    arguments: str
    """JSON text as it stands in the script."""


class ScriptedReply(Value):
    thought: str = ""
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()


class Script(Value):
    replies: tuple[ScriptedReply, ...]
    mistakes: tuple[str, ...] = ()


def script_of(prompt: str) -> Script | None:
    """The script in a prompt; None when there is not one directive in it."""
    lines = [(number, line.rstrip("\r")) for number, line in enumerate(prompt.split("\n"), start=1)]
    directives = [(number, line, LINE.fullmatch(line)) for number, line in lines]
    found = [(number, line, match) for number, line, match in directives if match]
    if not found:
        return None
    replies = [_Draft()]
    mistakes: list[str] = []
    for number, line, match in found:
        word, rest = match.groups()
        mistake = _play(word, rest, replies)
        if mistake:
            mistakes.append(f"line {number}, `{line.strip()}`: {mistake}")
    return Script(replies=tuple(draft.done() for draft in replies), mistakes=tuple(mistakes))


def complaint(mistakes: tuple[str, ...]) -> str:
    listed = "\n".join(f"- {mistake}" for mistake in mistakes)
    return f"This script cannot be played:\n{listed}\nDirectives are {KNOWN}."


class _Draft:
    def __init__(self) -> None:
        self.thoughts: list[str] = []
        self.texts: list[str] = []
        self.calls: list[ScriptedCall] = []

    def done(self) -> ScriptedReply:
        return ScriptedReply(
            thought="\n".join(self.thoughts), text="\n".join(self.texts), calls=tuple(self.calls)
        )


def _play(word: str, rest: str, replies: list[_Draft]) -> str:
    """Add one directive to the script, or say what is wrong with it."""
    match word:
        case "say":
            replies[-1].texts.append(rest)
        case "think":
            replies[-1].thoughts.append(rest)
        case "call":
            call = _call(rest)
            if isinstance(call, str):
                return call
            replies[-1].calls.append(call)
        case "then":
            if rest.strip():
                return "nothing may follow `!then` on its line"
            replies.append(_Draft())
        case _:
            return "there is no such directive"
    return ""


def _call(rest: str) -> ScriptedCall | str:
    match = CALL.fullmatch(rest.strip())
    if match is None:
        return "name the tool to call"
    name, arguments = match.groups()
    try:
        msgspec.json.decode(arguments or "{}", type=dict[str, object])
    except msgspec.DecodeError as error:
        return f"the arguments must be one JSON object on the same line ({error})"
    return ScriptedCall(name=name, arguments=arguments or "{}")


KNOWN = "`!say TEXT`, `!think TEXT`, `!call NAME {json}` and `!then`"

"""What servers on one's own machine refuse on the Chat Completions wire, and the templates inside them.

A template that cannot be filled is told as the server's own failure.
"""

from itertools import pairwise

from msgspec.structs import replace

from ._rules_openai_chat_shape import (
    BLIND,
    THOUGHTS,
    asked,
    assistant,
    calling,
    calls,
    image,
    messages,
    parts,
    result,
    text,
    tool,
    user,
)
from ._rules_openai_shape import (
    rule,
)
from ._rules_reading import (
    field,
    listed,
    to,
)
from .rules import Asked, Found, Rule

PART_TYPES = ("text", "image_url", "input_audio", "input_video", "video_url")


def _speakers(request: Asked) -> list[str]:
    """Who speaks, after the instructions; what calls and what comes of them does not count."""
    said = messages(request)
    first = 1 if said and said[0].get("role") in ("system", "developer") else 0
    return [str(item.get("role")) for item in said[first:] if item.get("role") != "tool" and not calls(item)]


def _out_of_turn(request: Asked) -> Found | None:
    speakers = _speakers(request)
    strangers = [role for role in speakers if role not in ("user", "assistant")]
    repeated = any(one == other for one, other in pairwise(speakers))
    return {} if repeated or strangers or speakers[:1] == ["assistant"] else None


def _nobody_asked(request: Asked) -> Found | None:
    said = messages(request)
    return {} if said and not any(message.get("role") == "user" for message in said) else None


def _no_list(request: Asked) -> Found | None:
    return None if isinstance(field(request, "messages"), list) else {}


def _contentless(request: Asked) -> Found | None:
    found = any(item.get("role") != "assistant" and "content" not in item for item in messages(request))
    return {} if found else None


def _silent(request: Asked) -> Found | None:
    for message in messages(request):
        silent = not any(name in message for name in ("content", "tool_calls", *THOUGHTS))
        if message.get("role") == "assistant" and silent:
            return {}
    return None


def _odd_part(request: Asked) -> Found | None:
    for message in messages(request):
        if any(part.get("type") not in PART_TYPES for part in parts(message)):
            return {}
    return None


def _two_last_words(request: Asked) -> Found | None:
    last = [message.get("role") for message in messages(request)[-2:]]
    return {} if last == ["assistant", "assistant"] else None


def _unseen(request: Asked) -> Found | None:
    blind = request.abilities is not None and not request.abilities.images
    pictures = any(
        part.get("type") == "image_url" for message in messages(request) for part in parts(message)
    )
    return {} if blind and pictures else None


def _grammar_beside_tools(request: Asked) -> Found | None:
    return {} if field(request, "grammar") and listed(field(request, "tools")) else None


def _malformed(request: Asked) -> Found | None:
    return {"why": request.malformed} if request.malformed else None


def _fails(rule_: Rule) -> Rule:
    """The same, told as the server's own failure."""
    return replace(rule_, status=500, type="server_error", kind="server")


_BRIEF = {"role": "system", "content": "Be brief."}
_LOOKED = [user("Look"), calling(), result()]
_ALTERNATE = (
    "After the optional system message, conversation roles must alternate user and assistant roles except for"
    " tool calls and results."
)

TEMPLATE_RULES = (
    _fails(
        rule(
            "roles-alternate",
            _out_of_turn,
            _ALTERNATE,
            evidence="S",
            passes=asked(
                messages=[
                    _BRIEF,
                    *_LOOKED,
                    assistant("Seen."),
                    user("Bye"),
                ]
            ),
            offends=asked(messages=[user("Hello"), user("Are you there?")]),
            also=(
                (asked(messages=[assistant("Hello"), user("Hello")]), _ALTERNATE),
                (asked(messages=[user("Hello"), _BRIEF]), _ALTERNATE),
                (asked(messages=[*_LOOKED, assistant("Seen."), assistant("So.")]), _ALTERNATE),
            ),
        )
    ),
    _fails(
        rule(
            "user-asked",
            _nobody_asked,
            "no user query found in messages",
            evidence="S",
            passes=asked(),
            offends=asked(messages=[_BRIEF]),
            also=((asked(messages=[]), ""),),
        )
    ),
)

LOCAL_RULES = (
    rule(
        "local-json",
        _malformed,
        "[json.exception.parse_error.101] parse error: {why}",
        evidence="F",
        passes=asked(),
        offends=replace(asked(), malformed="Expecting value: line 1 column 1 (char 0)"),
        says="[json.exception.parse_error.101] parse error: Expecting value: line 1 column 1 (char 0)",
    ),
    rule(
        "local-messages",
        _no_list,
        "Expected 'messages' to be an array",
        evidence="F",
        passes=asked(),
        offends=asked(messages="Hello"),
    ),
    rule(
        "local-content",
        _contentless,
        "All non-assistant messages must contain 'content'",
        evidence="S",
        passes=asked(),
        offends=asked(messages=[user("Look"), calling(), {"role": "tool", "tool_call_id": "call_1"}]),
        also=((asked(messages=[user("Hello"), {"role": "assistant"}]), ""),),
    ),
    rule(
        "local-silent",
        _silent,
        "Assistant message must contain either 'content' or 'tool_calls'!",
        evidence="S",
        passes=asked(messages=_LOOKED),
        offends=asked(messages=[user("Hello"), {"role": "assistant"}, user("Bye")]),
        also=(
            (asked(messages=[user("Hello"), {"role": "assistant", "reasoning": "Hm."}, user("Bye")]), ""),
            (asked(messages=[{"role": "user"}]), ""),
        ),
    ),
    rule(
        "local-part",
        _odd_part,
        "unsupported content[].type",
        evidence="F",
        passes=asked(messages=[user([text()])]),
        offends=asked(messages=[user([text(), {"type": "file", "file": {}}])]),
    ),
    rule(
        "local-last-words",
        _two_last_words,
        "Cannot have 2 or more assistant messages at the end of the list.",
        evidence="S",
        passes=asked(messages=[user("Hello"), assistant("Hello")]),
        offends=asked(messages=[user("Hello"), assistant("Hello"), assistant("Well")]),
    ),
    rule(
        "local-grammar",
        _grammar_beside_tools,
        "Cannot use custom grammar constraints with tools.",
        evidence="F",
        passes=asked(tools=[tool()]),
        offends=asked(tools=[tool()], grammar='root ::= "yes"'),
        also=((asked(grammar='root ::= "yes"'), ""),),
    ),
    _fails(
        rule(
            "local-image",
            _unseen,
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            evidence="S",
            models="that see nothing",
            passes=asked(messages=[user([text(), image()])]),
            offends=to(BLIND, asked(messages=[user([text(), image()])])),
            also=((to(BLIND, asked(messages=[user([text()])])), ""),),
        )
    ),
)

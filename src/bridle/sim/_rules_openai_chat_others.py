"""What servers refuse that took the Chat Completions wire over, in their words.

They differ most over reasoning: one wants it back, another refuses it.
"""

import re

from msgspec.structs import replace

from ..values.json_text import is_too_deep, parse_json
from ._rules_openai_chat_messages import orphan, unanswered
from ._rules_openai_chat_shape import (
    BLIND,
    MODEL,
    REASONS,
    THOUGHTS,
    asked,
    assistant,
    call,
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
    Block,
    field,
    listed,
    mapping,
    to,
)
from .rules import Asked, Found

CALL_ID = re.compile("[a-zA-Z0-9]{9}")


def _forgotten(request: Asked) -> Found | None:
    """Calls came out of thoughts; a model that thinks wants them back together."""
    able = request.abilities
    thinks = able is not None and (bool(able.thinking) or not able.sampling)
    if not thinks or mapping(field(request, "thinking")).get("type") == "disabled":
        return None
    found = any(calls(message) and not _thoughts(message) for message in messages(request))
    return {} if found else None


def _thoughts(message: Block) -> bool:
    return any(message.get(name) for name in THOUGHTS)


def _forced_while_thinking(request: Asked) -> Found | None:
    able, choice = request.abilities, field(request, "tool_choice")
    if not able or not able.thinking or mapping(field(request, "thinking")).get("type") == "disabled":
        return None
    return {} if choice == "required" or mapping(choice) else None


def _stops(request: Asked) -> list[str]:
    given = field(request, "stop")
    return [given] if isinstance(given, str) else [word for word in listed(given) if isinstance(word, str)]


def _many_stops(request: Asked) -> Found | None:
    most = request.abilities.stop_sequences_max if request.abilities else None
    return {"most": most} if most is not None and len(_stops(request)) > most else None


def _long_stop(request: Asked) -> Found | None:
    most = request.abilities.stop_bytes_max if request.abilities else None
    too_long = most is not None and any(len(word.encode()) > most for word in _stops(request))
    return {"most": most} if too_long else None


def _unknown_model(request: Asked) -> Found | None:
    return {} if request.abilities is None else None


def _invalid_model(request: Asked) -> Found | None:
    return {"model": field(request, "model")} if request.abilities is None else None


def _unseen(request: Asked) -> Found | None:
    blind = request.abilities is not None and not request.abilities.images
    shown = [part.get("type") for message in messages(request) for part in parts(message)]
    return {} if blind and "image_url" in shown else None


def _told_thoughts(request: Asked) -> Found | None:
    return {} if any(_thoughts(message) for message in messages(request)) else None


def _thinking_part(request: Asked) -> Found | None:
    able = request.abilities
    found = any(part.get("type") == "thinking" for message in messages(request) for part in parts(message))
    return {} if found and able and not able.thinking and not able.efforts else None


def _long_id(request: Asked) -> Found | None:
    for message in messages(request):
        ids = [item.get("id") for item in calls(message)]
        ids += [message.get("tool_call_id")] if message.get("role") == "tool" else []
        bad = next((str(id_) for id_ in ids if not CALL_ID.fullmatch(str(id_))), None)
        if bad is not None:
            return {"id": bad}
    return None


def _no_json(request: Asked) -> Found | None:
    for message in messages(request):
        for item in calls(message):
            function = mapping(item.get("function"))
            if not _is_object(function.get("arguments")):
                return {"name": function.get("name")}
    return None


def _is_object(arguments: object) -> bool:
    """An object, or text that is one; nothing at all counts as an empty one."""
    if isinstance(arguments, dict) or arguments in (None, ""):
        return True
    try:
        return is_too_deep(str(arguments)) or isinstance(parse_json(str(arguments)), dict)
    except ValueError:
        return False


_LOOKED = [user("Look"), calling(), result()]
_THOUGHT = [user("Look"), calling(reasoning_content="I look."), result()]
_INSUFFICIENT = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'. (insufficient tool messages following tool_calls message)"
)
_ECHO = "The `reasoning_content` in the thinking mode must be passed back to the API."
_ID = "Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."
_ARGUMENTS = (
    "Invalid tool call in messages: tool_calls[].function.arguments for function '{name}' must be a JSON"
    " object string (or an object), got invalid JSON."
)

_STOPPED = replace(REASONS, stop_sequences_max=2, stop_bytes_max=4)

ECHO_RULES = (
    rule(
        "stops-most",
        _many_stops,
        "Invalid request: at most {most} stop sequences are supported",
        evidence="K",
        models="with a limit",
        passes=to(_STOPPED, asked(stop=["a", "b"])),
        offends=to(_STOPPED, asked(stop=["a", "b", "c"])),
        says="Invalid request: at most 2 stop sequences are supported",
        also=((to(REASONS, asked(stop=["a", "b", "c"])), ""), (to(_STOPPED, asked(stop="abcd")), "")),
    ),
    rule(
        "stop-length",
        _long_stop,
        "Invalid request: a stop sequence must be at most {most} bytes long",
        evidence="K",
        models="with a limit",
        passes=to(_STOPPED, asked(stop=["abcd"])),
        offends=to(_STOPPED, asked(stop=["a", "abcde"])),
        says="Invalid request: a stop sequence must be at most 4 bytes long",
        also=(
            (to(REASONS, asked(stop=["abcde"])), ""),
            (
                to(_STOPPED, asked(stop="aäää")),
                "Invalid request: a stop sequence must be at most 4 bytes long",
            ),
        ),
    ),
    rule(
        "echo",
        _forgotten,
        _ECHO,
        evidence="S",
        models="that reason",
        passes=to(REASONS, asked(messages=_THOUGHT)),
        offends=to(REASONS, asked(messages=_LOOKED)),
        also=(
            (asked(messages=_LOOKED), ""),
            (to(REASONS, asked(messages=_LOOKED, thinking={"type": "disabled"})), ""),
            (to(REASONS, asked(messages=_LOOKED, thinking={"type": "enabled"})), _ECHO),
            (to(REASONS, asked(messages=[user("Hello"), assistant("Hello"), user("Bye")])), ""),
            (to(replace(REASONS, thinking=()), asked(messages=_LOOKED)), _ECHO),
            (to(replace(REASONS, sampling=True), asked(messages=_LOOKED)), _ECHO),
            (to(REASONS, asked(messages=[*_THOUGHT, calling("call_2"), result("call_2")])), _ECHO),
        ),
    ),
    rule(
        "choice-thinking",
        _forced_while_thinking,
        "Thinking mode does not support this tool_choice",
        evidence="S",
        models="that reason",
        passes=to(REASONS, asked(tools=[tool()], tool_choice="auto")),
        offends=to(REASONS, asked(tools=[tool()], tool_choice="required")),
        also=(
            (to(REASONS, asked(tools=[tool()], tool_choice="required", thinking={"type": "disabled"})), ""),
            (asked(tools=[tool()], tool_choice="required"), ""),
            (
                to(REASONS, asked(tools=[tool()], tool_choice={"type": "function", "function": {}})),
                "Thinking mode does not support this tool_choice",
            ),
        ),
    ),
    rule(
        "model-exists",
        _unknown_model,
        "Model Not Exist",
        evidence="S",
        passes=asked(),
        offends=to(None, asked(model=f"no-{MODEL}")),
    ),
    rule(
        "results-sufficient",
        unanswered,
        _INSUFFICIENT,
        evidence="S",
        passes=asked(messages=_LOOKED),
        offends=asked(messages=[user("Look"), calling("call_1", "call_2"), result("call_1")]),
    ),
    rule(
        "results-called",
        orphan,
        "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        evidence="S",
        passes=asked(messages=_LOOKED),
        offends=asked(messages=[user("Look"), result()]),
    ),
)

STRIP_RULES = (
    rule(
        "strip",
        _told_thoughts,
        "Reasoning input is not enabled for this model",
        evidence="S",
        passes=asked(messages=[user("Look"), calling("abcdefgh1"), result("abcdefgh1")]),
        offends=asked(messages=[user("Hello"), assistant("Hello", reasoning_content="Hm."), user("Bye")]),
        also=(
            (
                asked(messages=[user("Hello"), assistant("Hello", reasoning="Hm."), user("Bye")]),
                "Reasoning input is not enabled for this model",
            ),
            (asked(messages=[user("Hello"), assistant("Hello", reasoning_content=""), user("Bye")]), ""),
        ),
    ),
    rule(
        "strip-parts",
        _thinking_part,
        "Reasoning input is not enabled for this model",
        evidence="S",
        models="that do not reason",
        passes=to(REASONS, asked(messages=[user("Hello"), assistant([{"type": "thinking"}]), user("Bye")])),
        offends=asked(messages=[user("Hello"), assistant([text(), {"type": "thinking"}]), user("Bye")]),
        also=(
            (asked(messages=[user("Hello"), assistant([text()]), user("Bye")]), ""),
            (to(None, asked(messages=[assistant([{"type": "thinking"}])])), ""),
            (to(replace(REASONS, efforts=()), asked(messages=[assistant([{"type": "thinking"}])])), ""),
            (to(replace(REASONS, thinking=()), asked(messages=[assistant([{"type": "thinking"}])])), ""),
        ),
    ),
)

ID_RULES = (
    replace(
        rule(
            "model-valid",
            _invalid_model,
            "Invalid model: {model}",
            evidence="S",
            passes=asked(),
            offends=to(None, asked(model="no-such-model")),
            says="Invalid model: no-such-model",
            code="invalid_model",
        ),
        kind="not_found",
    ),
    rule(
        "image-enabled",
        _unseen,
        "Image input is not enabled for this model",
        evidence="S",
        models="that see nothing",
        passes=asked(messages=[user([text(), image()])]),
        offends=to(BLIND, asked(messages=[user([text(), image()])])),
        code="3051",
        also=((to(BLIND, asked(messages=[user([text()])])), ""),),
    ),
    rule(
        "call-id-nine",
        _long_id,
        _ID,
        evidence="S",
        passes=asked(messages=[user("Look"), calling("abcdefgh1"), result("abcdefgh1")]),
        offends=asked(messages=[user("Look"), calling("call_12345"), result("call_12345")]),
        says=_ID.format(id="call_12345"),
        code="invalid_function_call",
        also=(
            (
                asked(messages=[user("Look"), calling("abcdefgh1"), result("abcdefgh")]),
                _ID.format(id="abcdefgh"),
            ),
        ),
    ),
)

PARSE_RULES = (
    rule(
        "arguments-json",
        _no_json,
        _ARGUMENTS,
        evidence="S",
        passes=asked(messages=_LOOKED),
        offends=asked(messages=[user("Look"), assistant(tool_calls=[call(arguments='{"a": ')]), result()]),
        says=_ARGUMENTS.format(name="look"),
        also=(
            (asked(messages=[user("Look"), assistant(tool_calls=[call(arguments="")]), result()]), ""),
            (asked(messages=[assistant(tool_calls=[call(arguments={"a": 1})]), result()]), ""),
            (
                asked(messages=[user("Look"), assistant(tool_calls=[call(arguments="[1]")]), result()]),
                _ARGUMENTS.format(name="look"),
            ),
        ),
    ),
)

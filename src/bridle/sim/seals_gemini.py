"""Thought signatures on the generateContent wire.

One sits on a part: on the first call of a reply, or on its words, or, when they are told in
pieces, on an empty part behind them.  It is bound to that part and to the model.  A blob that
cannot be read is refused wherever it stands; that it belongs to its part and its model is
checked since the user last spoke.  Words that are no signature but stand for one, for calls that
come from elsewhere, are taken.  Only models that think at levels check any of this.
"""

from base64 import b64encode

import msgspec
from msgspec.structs import replace

from ..values.json_text import parse_json
from ..values.message import Reply
from ..values.parts import Part, Text, ToolCall
from ._rules_gemini_shape import (
    BUDGETS,
    asked,
    asked_of,
    contents,
    leveled,
    member,
    model,
    parts,
    response,
    rule,
    tool,
    user,
)
from ._rules_reading import (
    Block,
    to,
)
from .rules import Asked, Found, Rule
from .seals import opened, seal, trace

FAMILY = "gemini"
KIND = "thought_signature"
SIGNATURE = "thoughtSignature"
ANYTHING = ""
"""Bound to no part in particular."""
ALPHABET = str.maketrans("-_", "+/")
"""Bytes come back in either alphabet, with or without their padding: clients write them as they like."""
STAND_INS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
STAND_IN_BYTES = tuple(b64encode(words.encode()).decode().rstrip("=") for words in STAND_INS)
"""The same from clients that hold a signature as bytes, without padding."""


def sealed(request: Asked, reply: Reply) -> Reply:
    if request.abilities is None or not request.abilities.thinking or not reply.parts:
        return reply
    name, method = asked_of(request)
    said = list(reply.parts)
    calls = [index for index, part in enumerate(said) if isinstance(part, ToolCall)]
    texts = [index for index, part in enumerate(said) if isinstance(part, Text)]
    if calls:
        place = calls[0]
    elif texts and method != "streamGenerateContent":
        place = texts[-1]
    else:
        place = len(said)
        said.append(Text(text=""))
    said[place] = _signed(said[place], name)
    return replace(reply, parts=tuple(said))


def _signed(part: Part, name: str) -> Part:
    if not isinstance(part, ToolCall | Text):
        return part
    bound = trace(part.text) if isinstance(part, Text) else _trace_of_call(part)
    blob = seal(KIND, FAMILY, name, part=bound)
    return replace(part, native=msgspec.json.encode({SIGNATURE: blob}).decode())


def _trace_of_call(call: ToolCall) -> str:
    try:
        args: object = parse_json(call.arguments or "{}")
    except ValueError:
        return ANYTHING  # cut off, or nonsense: nobody can tell in which shape it will come back
    return trace([call.name, args]) if isinstance(args, dict) else ANYTHING


def _trace(part: Block) -> str:
    made = member(part, "functionCall")
    if isinstance(made, dict):
        return trace([made.get("name"), made.get("args") or {}])
    return trace(part.get("text") or "")


def _checked(part: Block) -> str:
    """The signature on a part, unless it is none and stands for one."""
    blob = member(part, SIGNATURE)
    if not isinstance(blob, str) or not blob:
        return ""
    spelled = blob.translate(ALPHABET).rstrip("=")
    if (blob in STAND_INS or spelled in STAND_IN_BYTES) and member(part, "functionCall"):
        return ""
    return spelled + "=" * (-len(spelled) % 4)


def _corrupted(request: Asked) -> Found | None:
    if not leveled(request):
        return None
    for content in contents(request):
        for part in parts(content):
            note = opened(_checked(part))
            if _checked(part) and (note is None or (note.kind, note.family) != (KIND, FAMILY)):
                return {}
    return None


def _misplaced(request: Asked) -> Found | None:
    if not leveled(request):
        return None
    name, _ = asked_of(request)
    said = contents(request)
    spoke = [index for index, content in enumerate(said) if _is_spoken(content)]
    for content in said[spoke[-1] if spoke else 0 :]:
        for part in parts(content):
            note = opened(_checked(part))
            if note is not None and (note.model, note.bound.get("part")) not in (
                (name, ANYTHING),
                (name, _trace(part)),
            ):
                return {}
    return None


def _is_spoken(content: Block) -> bool:
    own = content.get("role") != "model"
    return own and any(member(part, "functionResponse") is None for part in parts(content))


def _call(name: str = "some-model", **args: object) -> Block:
    made: Block = {"functionCall": {"name": "look", "args": args}}
    return {**made, SIGNATURE: seal(KIND, FAMILY, name, part=_trace(made))}


def _respelled(blob: object) -> str:
    return str(blob).replace("+", "-").replace("/", "_").rstrip("=")


def _talk(made: Block, *later: Block) -> Asked:
    return asked(contents=[user("Look"), model(made), user(response()), *later], tools=[tool()])


_SIGNED = _call(at="Oslo")
_LATER = (model("So."), user("Bye"))

RULES: tuple[Rule, ...] = (
    rule(
        "sealed-signature",
        _corrupted,
        "Corrupted thought signature.",
        evidence="S",
        models="that think at levels",
        passes=_talk(_SIGNED),
        offends=_talk({**_SIGNED, SIGNATURE: seal("thinking", "another", "some-model")}),
        also=(
            (
                _talk({**_SIGNED, SIGNATURE: "c2ln"}, model("So."), user("Bye")),
                "Corrupted thought signature.",
            ),
            (to(BUDGETS, _talk({**_SIGNED, SIGNATURE: "c2ln"})), ""),
            (_talk({**_SIGNED, SIGNATURE: _respelled(_SIGNED[SIGNATURE])}), ""),
            (_talk({**_SIGNED, SIGNATURE: "c2lnbg"}), "Corrupted thought signature."),
            (_talk({**_SIGNED, SIGNATURE: STAND_INS[0]}), ""),
            (_talk({**_SIGNED, SIGNATURE: b64encode(STAND_INS[0].encode()).decode()}), ""),
            (_talk({**_SIGNED, SIGNATURE: STAND_IN_BYTES[1]}), ""),
            (
                asked(contents=[user("Look"), model({"text": "So.", SIGNATURE: STAND_INS[0]}), user("Bye")]),
                "Corrupted thought signature.",
            ),
        ),
    ),
    rule(
        "sealed-part",
        _misplaced,
        "Invalid thought signature.",
        evidence="S",
        models="that think at levels",
        passes=_talk({**_SIGNED, "functionCall": {"args": {"at": "Oslo"}, "name": "look"}}),
        offends=_talk({**_SIGNED, "functionCall": {"name": "look", "args": {"at": "Rome"}}}),
        also=(
            (_talk(_call("another-model")), "Invalid thought signature."),
            (_talk(_call("another-model"), *_LATER), ""),
        ),
    ),
)

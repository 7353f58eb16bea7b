"""Thought signatures on the generateContent wire.

A signature is on a part: on the first call of a reply, or on its text, or, in a stream, on an empty part
after the text. It is bound to that call or to the text up to there, and to the model. A signature that cannot
be read is refused anywhere; that it belongs to its part and model is checked since the last user message. Documented
placeholders for calls from elsewhere are accepted. Only models with thinking levels check any of this.

Reasoning has its own parts, which are sent only with `includeThoughts`.
"""

from base64 import b64encode

import msgspec
from msgspec.structs import replace

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_mapping
from bridle.sim.signatures import digest_value, open_signature, sign_note
from bridle.values.message import Part, Reasoning, Reply, Text, ToolCall
from bridle.values.text import parse_json

from .request import (
    contents,
    find_model_and_method,
    has_thinking_levels,
    is_user_content,
    member,
    parts,
    rule,
)

FAMILY = "gemini"
SIGNATURE_KIND = "thought_signature"
SIGNATURE_FIELD = "thoughtSignature"
UNBOUND = ""
"""Not bound to a part."""
STANDARD_ALPHABET = str.maketrans("-_", "+/")
"""Clients send bytes back in either base64 alphabet, with or without padding."""
PLACEHOLDERS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
PLACEHOLDER_BYTES = tuple(b64encode(words.encode()).decode().rstrip("=") for words in PLACEHOLDERS)
"""The placeholders as sent by clients that hold a signature as bytes, without padding."""


def sign_reply(request: RawRequest, reply: Reply) -> Reply:
    if request.abilities is None or not request.abilities.thinking or not reply.parts:
        return reply
    name, method = find_model_and_method(request)
    parts_sent = list(reply.parts)
    calls = [index for index, part in enumerate(parts_sent) if isinstance(part, ToolCall)]
    texts = [index for index, part in enumerate(parts_sent) if isinstance(part, Text)]
    if calls:
        place = calls[0]
    elif texts and method != "streamGenerateContent":
        place = texts[-1]
    else:
        place = len(parts_sent)
        parts_sent.append(Text(text=""))
    said = "".join(part.text for part in parts_sent[: place + 1] if isinstance(part, Text))
    parts_sent[place] = _sign_part(parts_sent[place], name, said)
    return replace(reply, parts=tuple(parts_sent))


def _sign_part(part: Part, name: str, said: str) -> Part:
    if not isinstance(part, ToolCall | Text):
        return part
    bound = digest_value(said) if isinstance(part, Text) else _digest_call(part)
    blob = sign_note(SIGNATURE_KIND, FAMILY, name, part=bound)
    return replace(part, native=msgspec.json.encode({SIGNATURE_FIELD: blob}).decode())


def _digest_call(call: ToolCall) -> str:
    try:
        args: object = parse_json(call.arguments or "{}")
    except ValueError:
        return UNBOUND  # cut off or malformed: the form in which it will come back is unknown
    return digest_value([call.name, args]) if isinstance(args, dict) else UNBOUND


def _digest_part(part: JsonObject, said: str) -> str:
    """The digest that a part is signed with; `said` is the text of its content up to and with it."""
    call = member(part, "functionCall")
    if isinstance(call, dict):
        return digest_value([call.get("name"), call.get("args") or {}])
    return digest_value(said)


def _checked_signature(part: JsonObject) -> str:
    """Return the signature of a part, unless it is a placeholder."""
    blob = member(part, SIGNATURE_FIELD)
    if not isinstance(blob, str) or not blob:
        return ""
    spelled = blob.translate(STANDARD_ALPHABET).rstrip("=")
    if (blob in PLACEHOLDERS or spelled in PLACEHOLDER_BYTES) and member(part, "functionCall"):
        return ""
    return spelled + "=" * (-len(spelled) % 4)


def _check_sealed_signature(request: RawRequest) -> RuleFinding | None:
    if not has_thinking_levels(request):
        return None
    for content in contents(request):
        for part in parts(content):
            note = open_signature(_checked_signature(part))
            if _checked_signature(part) and (
                note is None or (note.kind, note.family) != (SIGNATURE_KIND, FAMILY)
            ):
                return {}
    return None


def _check_sealed_part(request: RawRequest) -> RuleFinding | None:
    if not has_thinking_levels(request):
        return None
    name, _ = find_model_and_method(request)
    sent = contents(request)
    spoke = [index for index, content in enumerate(sent) if is_user_content(content)]
    for content in sent[spoke[-1] if spoke else 0 :]:
        said = ""
        for part in parts(content):
            text = part.get("text")
            said += text if isinstance(text, str) and not part.get("thought") else ""
            note = open_signature(_checked_signature(part))
            if note is not None and (note.model, note.bound.get("part")) not in (
                (name, UNBOUND),
                (name, _digest_part(part, said)),
            ):
                return {}
    return None


SIGNATURE_RULES: tuple[ProviderRule, ...] = (
    rule(
        "sealed-signature",
        _check_sealed_signature,
        "Corrupted thought signature.",
        evidence="S",
        models="that think at levels",
    ),
    rule(
        "sealed-part",
        _check_sealed_part,
        "Invalid thought signature.",
        evidence="S",
        models="that think at levels",
    ),
)


def complete_reasoning(raw: RawRequest, reply: Reply) -> Reply:
    return reply


def display_reasoning(raw: RawRequest, reply: Reply) -> Reply:
    config = as_mapping(member(as_mapping(member(raw.body, "generationConfig")), "thinkingConfig"))
    if member(config, "includeThoughts") is True:
        return reply
    return replace(reply, parts=tuple(part for part in reply.parts if not isinstance(part, Reasoning)))

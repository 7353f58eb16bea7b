"""Encrypted reasoning, compaction and linked items on the Responses wire.

Encrypted content is bound to the id of its item: with another id it is refused, without one it is accepted.
Reasoning of another model is ignored without an error; content that was not encrypted here is refused. The id
of a call or message holds the index of the reasoning before it in the same reply, so that one without the
other is detected.

Reasoning is always encrypted, and summarized only if the request asks for it.
"""

import hmac
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import as_mapping, field
from bridle.sim.signatures import SIGNING_KEY, digest_value, hide_reasoning_text, open_signature, sign_note
from bridle.values.message import Part, Reasoning, Reply, Text, ToolCall

Json = dict[str, object]

FAMILY = "openai_responses"
REASONING, COMPACTION = "reasoning", "compaction"
DELIVERY_FIELDS = ("stream", "stream_options")
"""Fields about the delivery, which do not change the answer."""
NO_REASONING = 0xFF
"""Index that means no reasoning."""
_ID = re.compile(r"(?:fc|ctc|msg|rs)_([0-9a-f]{32})([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{8})")
_UNREADABLE = (
    "The encrypted content {which} could not be verified. Reason: Encrypted content could not be decrypted"
    " or parsed."
)
_MISNAMED = (
    "The encrypted content for item {id} could not be verified. Reason: Encrypted content item_id did not"
    " match the target item id."
)
_ALONE = "Item '{id}' of type '{type}' was provided without its required 'reasoning' item: '{thought}'."


class ItemPosition(NamedTuple):
    """Position of an item: its reply, its index, and the reasoning before it."""

    reply: str
    part_index: int
    reasoning_index: int

    def make_id(self, prefix: str) -> str:
        token = f"{self.reply}{self.part_index:02x}{self.reasoning_index:02x}"
        return f"{prefix}_{token}{_checksum(token)}"


def sign_reply(request: RawRequest, reply: Reply) -> Reply:
    # The digest of the request identifies the reply: it is the same streamed or not.
    asked = {name: value for name, value in request.body.items() if name not in DELIVERY_FIELDS}
    mark = digest_value(asked) + digest_value(asked, after="once more")
    model = str(request.body.get("model"))
    said: list[Part] = []
    thought, in_message = NO_REASONING, False
    for index, part in enumerate(reply.parts):
        place = ItemPosition(mark, index, thought)
        match part:
            case Reasoning():
                thought = index
                id_ = ItemPosition(mark, index, NO_REASONING).make_id("rs")
                blob = sign_note(REASONING, FAMILY, model, id=id_)
                said.append(replace(part, signature=blob, native=_to_json({"id": id_})))
            case ToolCall():
                said.append(replace(part, native=_to_json(_call_members(part, place))))
            case Text() if not in_message:
                message = {"id": place.make_id("msg"), "status": "completed"}
                kept = msgspec.json.decode(part.native, type=Json) if part.native else {}
                said.append(replace(part, native=_to_json({"message": message, **kept})))
            case _:
                said.append(part)
        in_message = isinstance(part, Text)
    return replace(reply, parts=tuple(said))


def _call_members(call: ToolCall, place: ItemPosition) -> Json:
    """Return the wire members of a call beyond its name and arguments, in the form of its tool."""
    formed = msgspec.json.decode(call.native, type=Json) if call.native else {}
    if formed.get("type") == "custom_tool_call":  # such an item has no status
        return {"id": place.make_id("ctc"), **formed}
    return {"id": place.make_id("fc"), "status": "completed", **formed}


def make_summary_item(model: str, id_: str, words: str = "") -> Json:
    """Make the item that replaces a whole conversation, with encrypted content."""
    blob = sign_note(COMPACTION, FAMILY, model, id=id_, says=words)
    return {"id": id_, "type": COMPACTION, "encrypted_content": blob}


def read_summary(item: Mapping[str, object]) -> str:
    """Return the text of such an item; empty if it was not encrypted here."""
    note = open_signature(item.get("encrypted_content")) if item.get("type") == COMPACTION else None
    return str(note.bound.get("says", "")) if note is not None else ""


def _list_encrypted_items(request: RawRequest) -> Iterator[Json]:
    for item in _list_items(request):
        if item.get("type") in (REASONING, COMPACTION) and isinstance(item.get("encrypted_content"), str):
            yield item


def _check_sealed_content(request: RawRequest) -> RuleFinding | None:
    for item in _list_encrypted_items(request):
        blob = str(item["encrypted_content"])
        note = open_signature(blob)
        if note is None or (note.kind, note.family) != (item["type"], FAMILY):
            id_ = item.get("id")
            return {"which": f"for item {id_}" if id_ else f"{blob[:4]}...{blob[-4:]}"}
    return None


def _check_sealed_id(request: RawRequest) -> RuleFinding | None:
    for item in _list_encrypted_items(request):
        note, id_ = open_signature(item["encrypted_content"]), item.get("id")
        if note is not None and id_ and not note.has_claims(id=str(id_)):
            return {"id": id_}
    return None


def _check_sealed_sibling(request: RawRequest) -> RuleFinding | None:
    items = list(_list_items(request))
    present = {str(item.get("id")) for item in items}
    for item in items:
        place = _parse_position(item.get("id"))
        if place is None or place.reasoning_index == NO_REASONING:
            continue
        wanted = ItemPosition(place.reply, place.reasoning_index, NO_REASONING).make_id("rs")
        if wanted not in present:
            return {"id": item.get("id"), "type": item.get("type", "message"), "thought": wanted}
    return None


def _parse_position(id_: object) -> ItemPosition | None:
    found = _ID.fullmatch(id_) if isinstance(id_, str) else None
    if found is None or _checksum("".join(found.groups()[:3])) != found[4]:
        return None  # not an id that was issued here
    return ItemPosition(found[1], int(found[2], 16), int(found[3], 16))


def _checksum(token: str) -> str:
    return hmac.digest(SIGNING_KEY, token.encode(), "sha256").hex()[:8]


def _list_items(request: RawRequest) -> Iterator[Json]:
    given = request.body.get("input")
    yield from (item for item in (given if isinstance(given, list) else ()) if isinstance(item, dict))


def _to_json(members: Json) -> str:
    return msgspec.json.encode(members).decode()


SIGNATURE_RULES: tuple[ProviderRule, ...] = (
    ProviderRule(
        id="sealed-content",
        find=_check_sealed_content,
        wording=_UNREADABLE,
        evidence="S",
        type="invalid_encrypted_content",
    ),
    ProviderRule(
        id="sealed-id",
        find=_check_sealed_id,
        wording=_MISNAMED,
        evidence="S",
        type="invalid_encrypted_content",
    ),
    ProviderRule(
        id="sealed-sibling",
        find=_check_sealed_sibling,
        wording=_ALONE,
        evidence="S",
        type="invalid_request_error",
    ),
)


SUMMARY_FIELDS = ("summary", "generate_summary")
"""Members of `reasoning` that ask for a summary; the second is the older name."""


def complete_reasoning(asked: RawRequest, reply: Reply) -> Reply:
    return reply


def display_reasoning(asked: RawRequest, reply: Reply) -> Reply:
    reasoning = as_mapping(field(asked, "reasoning"))
    return reply if any(reasoning.get(name) for name in SUMMARY_FIELDS) else hide_reasoning_text(reply)

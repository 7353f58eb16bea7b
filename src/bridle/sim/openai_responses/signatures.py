"""Encrypted reasoning, compaction, and items that belong together, on the Responses wire.

Encrypted content is bound to the id of its item: under another id it is refused, under none it is
taken.  What another model reasoned is left out in silence, as in life; what was never sealed here is
refused.  Items with ids know the reasoning they followed: the id of a call or a message holds the
place of that reasoning in the same reply, so that one can be asked for without the other.
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
"""How an answer comes is no part of what it says."""
NO_REASONING = 0xFF
"""The place of reasoning where there was none."""
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
    """Where an item stood: in which reply, at which place, after which reasoning."""

    reply: str
    part_index: int
    reasoning_index: int

    def make_id(self, prefix: str) -> str:
        token = f"{self.reply}{self.part_index:02x}{self.reasoning_index:02x}"
        return f"{prefix}_{token}{_checksum(token)}"


def sign_reply(request: RawRequest, reply: Reply) -> Reply:
    # The whole request names the reply: the same one is answered in the same bytes, streamed or not.
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
                said.append(replace(part, native=_to_json({"message": message})))
            case _:
                said.append(part)
        in_message = isinstance(part, Text)
    return replace(reply, parts=tuple(said))


def _call_members(call: ToolCall, place: ItemPosition) -> Json:
    """What a call has on the wire beyond its name and arguments; the form of its tool is known already."""
    formed = msgspec.json.decode(call.native, type=Json) if call.native else {}
    prefix = "ctc" if formed.get("type") == "custom_tool_call" else "fc"
    return {"id": place.make_id(prefix), "status": "completed", **formed}


def make_summary_item(model: str, id_: str, words: str = "") -> Json:
    """The item that stands for a whole conversation, and holds what nobody else can read."""
    blob = sign_note(COMPACTION, FAMILY, model, id=id_, says=words)
    return {"id": id_, "type": COMPACTION, "encrypted_content": blob}


def read_summary(item: Mapping[str, object]) -> str:
    """What such an item says; nothing when it was not sealed here."""
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
        return None  # not an id that was given out here
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


# Reasoning on the Responses wire: sealed always, summarised only for a request that asks for a summary.


SUMMARY_FIELDS = ("summary", "generate_summary")
"""Members of `reasoning` that ask for one; the second is the older name."""


def complete_reasoning(asked: RawRequest, reply: Reply) -> Reply:
    return reply


def display_reasoning(asked: RawRequest, reply: Reply) -> Reply:
    reasoning = as_mapping(field(asked, "reasoning"))
    return reply if any(reasoning.get(name) for name in SUMMARY_FIELDS) else hide_reasoning_text(reply)

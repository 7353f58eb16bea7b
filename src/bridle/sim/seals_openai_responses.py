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

from ..values.message import Reply
from ..values.model import Abilities
from ..values.parts import Part, Reasoning, Text, ToolCall
from .rules import Asked, Found, Rule
from .seals import KEY, opened, seal, trace

Json = dict[str, object]

FAMILY = "openai_responses"
REASONING, COMPACTION = "reasoning", "compaction"
DELIVERY = ("stream", "stream_options")
"""How an answer comes is no part of what it says."""
NONE = 0xFF
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


class Place(NamedTuple):
    """Where an item stood: in which reply, at which place, after which reasoning."""

    reply: str
    at: int
    thought: int

    def id(self, prefix: str) -> str:
        token = f"{self.reply}{self.at:02x}{self.thought:02x}"
        return f"{prefix}_{token}{_check(token)}"


def sealed(request: Asked, reply: Reply) -> Reply:
    # The whole request names the reply: the same one is answered in the same bytes, streamed or not.
    asked = {name: value for name, value in request.body.items() if name not in DELIVERY}
    mark = trace(asked) + trace(asked, after="once more")
    model = str(request.body.get("model"))
    said: list[Part] = []
    thought, in_message = NONE, False
    for index, part in enumerate(reply.parts):
        place = Place(mark, index, thought)
        match part:
            case Reasoning():
                thought = index
                id_ = Place(mark, index, NONE).id("rs")
                blob = seal(REASONING, FAMILY, model, id=id_)
                said.append(replace(part, signature=blob, native=_json({"id": id_})))
            case ToolCall():
                said.append(replace(part, native=_json(_members_of(part, place))))
            case Text() if not in_message:
                message = {"id": place.id("msg"), "status": "completed"}
                said.append(replace(part, native=_json({"message": message})))
            case _:
                said.append(part)
        in_message = isinstance(part, Text)
    return replace(reply, parts=tuple(said))


def _members_of(call: ToolCall, place: Place) -> Json:
    """What a call has on the wire beyond its name and arguments; the form of its tool is known already."""
    formed = msgspec.json.decode(call.native, type=Json) if call.native else {}
    prefix = "ctc" if formed.get("type") == "custom_tool_call" else "fc"
    return {"id": place.id(prefix), "status": "completed", **formed}


def summary_of(model: str, id_: str, words: str = "") -> Json:
    """The item that stands for a whole conversation, and holds what nobody else can read."""
    blob = seal(COMPACTION, FAMILY, model, id=id_, says=words)
    return {"id": id_, "type": COMPACTION, "encrypted_content": blob}


def words_in(item: Mapping[str, object]) -> str:
    """What such an item says; nothing when it was not sealed here."""
    note = opened(item.get("encrypted_content")) if item.get("type") == COMPACTION else None
    return str(note.bound.get("says", "")) if note is not None else ""


def _sealed_items(request: Asked) -> Iterator[Json]:
    for item in _items(request):
        if item.get("type") in (REASONING, COMPACTION) and isinstance(item.get("encrypted_content"), str):
            yield item


def _unreadable(request: Asked) -> Found | None:
    for item in _sealed_items(request):
        blob = str(item["encrypted_content"])
        note = opened(blob)
        if note is None or (note.kind, note.family) != (item["type"], FAMILY):
            id_ = item.get("id")
            return {"which": f"for item {id_}" if id_ else f"{blob[:4]}...{blob[-4:]}"}
    return None


def _misnamed(request: Asked) -> Found | None:
    for item in _sealed_items(request):
        note, id_ = opened(item["encrypted_content"]), item.get("id")
        if note is not None and id_ and not note.holds(id=str(id_)):
            return {"id": id_}
    return None


def _alone(request: Asked) -> Found | None:
    items = list(_items(request))
    present = {str(item.get("id")) for item in items}
    for item in items:
        place = _place(item.get("id"))
        if place is None or place.thought == NONE:
            continue
        wanted = Place(place.reply, place.thought, NONE).id("rs")
        if wanted not in present:
            return {"id": item.get("id"), "type": item.get("type", "message"), "thought": wanted}
    return None


def _place(id_: object) -> Place | None:
    found = _ID.fullmatch(id_) if isinstance(id_, str) else None
    if found is None or _check("".join(found.groups()[:3])) != found[4]:
        return None  # not an id that was given out here
    return Place(found[1], int(found[2], 16), int(found[3], 16))


def _check(token: str) -> str:
    return hmac.digest(KEY, token.encode(), "sha256").hex()[:8]


def _items(request: Asked) -> Iterator[Json]:
    given = request.body.get("input")
    yield from (item for item in (given if isinstance(given, list) else ()) if isinstance(item, dict))


def _json(members: Json) -> str:
    return msgspec.json.encode(members).decode()


def _asked(*items: Json) -> Asked:
    return Asked(
        path="/v1/responses",
        headers={},
        body={"model": "some-model", "input": [{"role": "user", "content": "Look"}, *items], "store": False},
        abilities=Abilities(output_tokens=128_000, thinking=("standard",), efforts=("low",), sampling=False),
    )


_REPLY = "0" * 32
_ITS_ID = Place(_REPLY, 0, NONE).id("rs")
_THOUGHT: Json = {
    "type": REASONING,
    "id": _ITS_ID,
    "summary": [],
    "encrypted_content": seal(REASONING, FAMILY, "some-model", id=_ITS_ID),
}
_CALL: Json = {
    "type": "function_call",
    "id": Place(_REPLY, 1, 0).id("fc"),
    "call_id": "call_1",
    "name": "look",
    "arguments": "{}",
}
_OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "seen"}
_FOREIGN = seal(REASONING, "another", "some-model", id=_ITS_ID)

RULES: tuple[Rule, ...] = (
    Rule(
        id="sealed-content",
        find=_unreadable,
        wording=_UNREADABLE,
        evidence="S",
        passes=_asked(_THOUGHT, _CALL, _OUTPUT),
        offends=_asked({**_THOUGHT, "encrypted_content": _FOREIGN}, _CALL, _OUTPUT),
        says=_UNREADABLE.format(which=f"for item {_ITS_ID}"),
        type="invalid_encrypted_content",
        also=((_asked(summary_of("some-model", "cmp_1")), ""),),
    ),
    Rule(
        id="sealed-id",
        find=_misnamed,
        wording=_MISNAMED,
        evidence="S",
        passes=_asked(
            {name: value for name, value in _THOUGHT.items() if name != "id"},
            {name: value for name, value in _CALL.items() if name != "id"},
            _OUTPUT,
        ),
        offends=_asked({**_THOUGHT, "id": "rs_1"}, {**_CALL, "id": "fc_1"}, _OUTPUT),
        says=_MISNAMED.format(id="rs_1"),
        type="invalid_encrypted_content",
    ),
    Rule(
        id="sealed-sibling",
        find=_alone,
        wording=_ALONE,
        evidence="S",
        passes=_asked({**_CALL, "id": Place(_REPLY, 0, NONE).id("fc")}, _OUTPUT),
        offends=_asked(_CALL, _OUTPUT),
        says=_ALONE.format(id=_CALL["id"], type="function_call", thought=_ITS_ID),
        type="invalid_request_error",
        also=((_asked({**_CALL, "id": str(_CALL["id"])[:-1] + "x"}, _OUTPUT), ""),),
    ),
)

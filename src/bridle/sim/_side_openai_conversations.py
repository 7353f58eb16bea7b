"""Conversations that the provider keeps: made, looked at, added to, thrown away."""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ..values.errors import Failure
from ._rules_openai_responses_talk import PREFIXES
from .keeping import KeptConversation
from .side import Door, House, Json, Knock, page

PAGE_DEFAULT, PAGE_MAX = 20, 100
ITEMS_MAX = 20
"""How many items may be added at once."""


def prefix_of(item: Mapping[str, object]) -> str:
    """How the id of such an item begins; a client that sends it back is held to it."""
    return PREFIXES.get(str(item.get("type", "message")), "item")


def conversation_of(body: Mapping[str, object]) -> str:
    """The id of the conversation a request belongs to, if it does."""
    named = body.get("conversation")
    if isinstance(named, dict):
        named = named.get("id")
    return named if isinstance(named, str) else ""


def listed(given: object) -> tuple[Json, ...]:
    """Input as items, whichever way it was written."""
    if isinstance(given, str):
        return ({"type": "message", "role": "user", "content": given},) if given else ()
    items = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
    return tuple({"type": "message", **item} if "role" in item else item for item in items)


def no_conversation(name: str) -> Failure:
    message = f"Conversation with id '{name}' not found."
    return Failure(kind="not_found", message=message, status=404, code="not_found")


def create(house: House, knock: Knock) -> Json | Failure:
    items = listed(knock.body.get("items"))
    if len(items) > ITEMS_MAX:
        return _too_many(len(items))
    metadata = knock.body.get("metadata")
    made = KeptConversation(
        id=house.keeping.new_id("conv"),
        at=knock.now,
        metadata=metadata if isinstance(metadata, dict) else {},
        items=tuple(house.keeping.named(item, prefix_of(item)) for item in items),
    )
    house.keeping.hold(made)
    return _about(made)


def retrieve(house: House, knock: Knock) -> Json | Failure:
    found = house.keeping.conversations.get(knock.found["id"])
    return _about(found) if found else no_conversation(knock.found["id"])


def update(house: House, knock: Knock) -> Json | Failure:
    found = house.keeping.conversations.get(knock.found["id"])
    if found is None:
        return no_conversation(knock.found["id"])
    metadata = knock.body.get("metadata")
    changed = replace(found, metadata=metadata if isinstance(metadata, dict) else {})
    house.keeping.hold(changed)
    return _about(changed)


def delete(house: House, knock: Knock) -> Json | Failure:
    if house.keeping.conversations.pop(knock.found["id"], None) is None:
        return no_conversation(knock.found["id"])
    return {"id": knock.found["id"], "object": "conversation.deleted", "deleted": True}


def items(house: House, knock: Knock) -> Json | Failure:
    found = house.keeping.conversations.get(knock.found["id"])
    if found is None:
        return no_conversation(knock.found["id"])
    in_order = knock.query.get("order", "desc") == "asc"
    return listing(found.items if in_order else found.items[::-1], knock.query)


def add_items(house: House, knock: Knock) -> Json | Failure:
    found = house.keeping.conversations.get(knock.found["id"])
    if found is None:
        return no_conversation(knock.found["id"])
    added = tuple(house.keeping.named(item, prefix_of(item)) for item in listed(knock.body.get("items")))
    if len(added) > ITEMS_MAX:
        return _too_many(len(added))
    house.keeping.hold(replace(found, items=(*found.items, *added)))
    return listing(added, {"limit": str(ITEMS_MAX)})


def item(house: House, knock: Knock) -> Json | Failure:
    found = house.keeping.conversations.get(knock.found["id"])
    if found is None:
        return no_conversation(knock.found["id"])
    named = [each for each in found.items if each.get("id") == knock.found["item"]]
    return named[0] if named else _no_item(knock)


def delete_item(house: House, knock: Knock) -> Json | Failure:
    found = house.keeping.conversations.get(knock.found["id"])
    if found is None:
        return no_conversation(knock.found["id"])
    left = tuple(each for each in found.items if each.get("id") != knock.found["item"])
    if len(left) == len(found.items):
        return _no_item(knock)
    house.keeping.hold(replace(found, items=left))
    return _about(found)


def _about(held: KeptConversation) -> Json:
    return {
        "id": held.id,
        "object": "conversation",
        "created_at": int(held.at),
        "metadata": dict(held.metadata),
    }


def listing(items: Sequence[Json], query: Mapping[str, str]) -> Json:
    """A page of items, as lists are told here."""
    found, more = page(items, query, default=PAGE_DEFAULT, most=PAGE_MAX)
    first, last = (found[0].get("id"), found[-1].get("id")) if found else (None, None)
    return {"object": "list", "data": found, "first_id": first, "last_id": last, "has_more": more}


def _no_item(knock: Knock) -> Failure:
    message = f"Item with id '{knock.found['item']}' not found in conversation '{knock.found['id']}'."
    return Failure(kind="not_found", message=message, status=404, code="not_found")


def _too_many(count: int) -> Failure:
    message = (
        f"Invalid 'items': array too long. Expected an array with maximum length {ITEMS_MAX},"
        f" but got an array with length {count} instead."
    )
    return Failure(kind="invalid", message=message, status=400, code="array_above_max_length")


_ONE = r".*/conversations/(?P<id>[^/]+)"
CONVERSATION_DOORS = (
    Door(method="POST", pattern=re.compile(r".*/conversations"), open=create),
    Door(method="GET", pattern=re.compile(_ONE), open=retrieve),
    Door(method="POST", pattern=re.compile(_ONE), open=update),
    Door(method="DELETE", pattern=re.compile(_ONE), open=delete),
    Door(method="GET", pattern=re.compile(_ONE + "/items"), open=items),
    Door(method="POST", pattern=re.compile(_ONE + "/items"), open=add_items),
    Door(method="GET", pattern=re.compile(_ONE + "/items/(?P<item>[^/]+)"), open=item),
    Door(method="DELETE", pattern=re.compile(_ONE + "/items/(?P<item>[^/]+)"), open=delete_item),
)

"""Conversations that the provider keeps: made, looked at, added to, thrown away."""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from bridle.sim.endpoints import EndpointCall, EndpointRoute, Json, ServerState, page_items
from bridle.sim.stored_objects import StoredConversation
from bridle.values.errors import Failure

from .rules_item_links import ID_PREFIXES

PAGE_DEFAULT, PAGE_MAX = 20, 100
ITEMS_MAX = 20
"""How many items may be added at once."""


def id_prefix(item: Mapping[str, object]) -> str:
    """How the id of such an item begins; a client that sends it back is held to it."""
    return ID_PREFIXES.get(str(item.get("type", "message")), "item")


def find_conversation_id(body: Mapping[str, object]) -> str:
    """The id of the conversation a request belongs to, if it does."""
    named = body.get("conversation")
    if isinstance(named, dict):
        named = named.get("id")
    return named if isinstance(named, str) else ""


def as_items(given: object) -> tuple[Json, ...]:
    """Input as items, whichever way it was written."""
    if isinstance(given, str):
        return ({"type": "message", "role": "user", "content": given},) if given else ()
    items = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
    return tuple({"type": "message", **item} if "role" in item else item for item in items)


def conversation_not_found(name: str) -> Failure:
    message = f"Conversation with id '{name}' not found."
    return Failure(kind="not_found", message=message, status=404, code="not_found")


def create_conversation(house: ServerState, knock: EndpointCall) -> Json | Failure:
    items = as_items(knock.body.get("items"))
    if len(items) > ITEMS_MAX:
        return _too_many_items(len(items))
    metadata = knock.body.get("metadata")
    made = StoredConversation(
        id=house.stored.new_id("conv"),
        created_at=knock.now,
        metadata=metadata if isinstance(metadata, dict) else {},
        items=tuple(house.stored.with_id(item, id_prefix(item)) for item in items),
    )
    house.stored.store_conversation(made)
    return _describe_conversation(made)


def get_conversation(house: ServerState, knock: EndpointCall) -> Json | Failure:
    found = house.stored.conversations.get(knock.path_params["id"])
    return _describe_conversation(found) if found else conversation_not_found(knock.path_params["id"])


def update_conversation(house: ServerState, knock: EndpointCall) -> Json | Failure:
    found = house.stored.conversations.get(knock.path_params["id"])
    if found is None:
        return conversation_not_found(knock.path_params["id"])
    metadata = knock.body.get("metadata")
    changed = replace(found, metadata=metadata if isinstance(metadata, dict) else {})
    house.stored.store_conversation(changed)
    return _describe_conversation(changed)


def delete_conversation(house: ServerState, knock: EndpointCall) -> Json | Failure:
    if house.stored.conversations.pop(knock.path_params["id"], None) is None:
        return conversation_not_found(knock.path_params["id"])
    return {"id": knock.path_params["id"], "object": "conversation.deleted", "deleted": True}


def list_items(house: ServerState, knock: EndpointCall) -> Json | Failure:
    found = house.stored.conversations.get(knock.path_params["id"])
    if found is None:
        return conversation_not_found(knock.path_params["id"])
    in_order = knock.query.get("order", "desc") == "asc"
    return list_page(found.items if in_order else found.items[::-1], knock.query)


def add_conversation_items(house: ServerState, knock: EndpointCall) -> Json | Failure:
    found = house.stored.conversations.get(knock.path_params["id"])
    if found is None:
        return conversation_not_found(knock.path_params["id"])
    added = tuple(house.stored.with_id(item, id_prefix(item)) for item in as_items(knock.body.get("items")))
    if len(added) > ITEMS_MAX:
        return _too_many_items(len(added))
    house.stored.store_conversation(replace(found, items=(*found.items, *added)))
    return list_page(added, {"limit": str(ITEMS_MAX)})


def get_item(house: ServerState, knock: EndpointCall) -> Json | Failure:
    found = house.stored.conversations.get(knock.path_params["id"])
    if found is None:
        return conversation_not_found(knock.path_params["id"])
    named = [each for each in found.items if each.get("id") == knock.path_params["item"]]
    return named[0] if named else _item_not_found(knock)


def delete_item(house: ServerState, knock: EndpointCall) -> Json | Failure:
    found = house.stored.conversations.get(knock.path_params["id"])
    if found is None:
        return conversation_not_found(knock.path_params["id"])
    left = tuple(each for each in found.items if each.get("id") != knock.path_params["item"])
    if len(left) == len(found.items):
        return _item_not_found(knock)
    house.stored.store_conversation(replace(found, items=left))
    return _describe_conversation(found)


def _describe_conversation(held: StoredConversation) -> Json:
    return {
        "id": held.id,
        "object": "conversation",
        "created_at": int(held.created_at),
        "metadata": dict(held.metadata),
    }


def list_page(items: Sequence[Json], query: Mapping[str, str]) -> Json:
    """A page of items, as lists are told here."""
    found, more = page_items(items, query, default=PAGE_DEFAULT, page_max=PAGE_MAX)
    first, last = (found[0].get("id"), found[-1].get("id")) if found else (None, None)
    return {"object": "list", "data": found, "first_id": first, "last_id": last, "has_more": more}


def _item_not_found(knock: EndpointCall) -> Failure:
    message = (
        f"Item with id '{knock.path_params['item']}' not found in conversation '{knock.path_params['id']}'."
    )
    return Failure(kind="not_found", message=message, status=404, code="not_found")


def _too_many_items(count: int) -> Failure:
    message = (
        f"Invalid 'items': array too long. Expected an array with maximum length {ITEMS_MAX},"
        f" but got an array with length {count} instead."
    )
    return Failure(kind="invalid", message=message, status=400, code="array_above_max_length")


_ONE_CONVERSATION = r".*/conversations/(?P<id>[^/]+)"
CONVERSATION_ROUTES = (
    EndpointRoute(method="POST", pattern=re.compile(r".*/conversations"), handle=create_conversation),
    EndpointRoute(method="GET", pattern=re.compile(_ONE_CONVERSATION), handle=get_conversation),
    EndpointRoute(method="POST", pattern=re.compile(_ONE_CONVERSATION), handle=update_conversation),
    EndpointRoute(method="DELETE", pattern=re.compile(_ONE_CONVERSATION), handle=delete_conversation),
    EndpointRoute(method="GET", pattern=re.compile(_ONE_CONVERSATION + "/items"), handle=list_items),
    EndpointRoute(
        method="POST", pattern=re.compile(_ONE_CONVERSATION + "/items"), handle=add_conversation_items
    ),
    EndpointRoute(
        method="GET", pattern=re.compile(_ONE_CONVERSATION + "/items/(?P<item>[^/]+)"), handle=get_item
    ),
    EndpointRoute(
        method="DELETE", pattern=re.compile(_ONE_CONVERSATION + "/items/(?P<item>[^/]+)"), handle=delete_item
    ),
)

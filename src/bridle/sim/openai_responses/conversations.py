"""Conversations that the provider stores: create, get, extend and delete them."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from bridle.sim.endpoints import EndpointCall, EndpointRoute, Json, ServerState, page_items
from bridle.sim.stored_objects import StoredConversation
from bridle.values.errors import Failure

from .rules_item_links import ID_PREFIXES

PAGE_DEFAULT, PAGE_MAX = 20, 100
# not from outside: the limit of the vendor that is simulated
ITEMS_MAX = 20
"""Number of items that may be added at once."""


def id_prefix(item: Mapping[str, object]) -> str:
    """Return the id prefix of such an item; clients must send it back unchanged."""
    return ID_PREFIXES.get(str(item.get("type", "message")), "item")


def find_conversation_id(body: Mapping[str, object]) -> str:
    """Return the id of the conversation that a request belongs to, or ""."""
    named = body.get("conversation")
    if isinstance(named, dict):
        named = named.get("id")
    return named if isinstance(named, str) else ""


def as_items(given: object) -> tuple[Json, ...]:
    """Return input as items, whichever form it has."""
    if isinstance(given, str):
        return ({"type": "message", "role": "user", "content": given},) if given else ()
    items = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
    return tuple({"type": "message", **item} if "role" in item else item for item in items)


def conversation_not_found(name: str) -> Failure:
    message = f"Conversation with id '{name}' not found."
    return Failure(kind="not_found", message=message, status=404, code="not_found")


def create_conversation(state: ServerState, call: EndpointCall) -> Json | Failure:
    items = as_items(call.body.get("items"))
    if len(items) > ITEMS_MAX:
        return _too_many_items(len(items))
    metadata = call.body.get("metadata")
    made = StoredConversation(
        id=state.stored.new_id("conv"),
        created_at=call.now,
        metadata=metadata if isinstance(metadata, dict) else {},
        items=tuple(state.stored.with_id(item, id_prefix(item)) for item in items),
    )
    state.stored.store_conversation(made)
    return _describe_conversation(made)


def get_conversation(state: ServerState, call: EndpointCall) -> Json | Failure:
    found = state.stored.conversations.get(call.path_params["id"])
    return _describe_conversation(found) if found else conversation_not_found(call.path_params["id"])


def update_conversation(state: ServerState, call: EndpointCall) -> Json | Failure:
    found = state.stored.conversations.get(call.path_params["id"])
    if found is None:
        return conversation_not_found(call.path_params["id"])
    metadata = call.body.get("metadata")
    changed = replace(found, metadata=metadata if isinstance(metadata, dict) else {})
    state.stored.store_conversation(changed)
    return _describe_conversation(changed)


def delete_conversation(state: ServerState, call: EndpointCall) -> Json | Failure:
    if state.stored.conversations.pop(call.path_params["id"], None) is None:
        return conversation_not_found(call.path_params["id"])
    return {"id": call.path_params["id"], "object": "conversation.deleted", "deleted": True}


def list_items(state: ServerState, call: EndpointCall) -> Json | Failure:
    found = state.stored.conversations.get(call.path_params["id"])
    if found is None:
        return conversation_not_found(call.path_params["id"])
    in_order = call.query.get("order", "desc") == "asc"
    return list_page(found.items if in_order else found.items[::-1], call.query)


def add_conversation_items(state: ServerState, call: EndpointCall) -> Json | Failure:
    found = state.stored.conversations.get(call.path_params["id"])
    if found is None:
        return conversation_not_found(call.path_params["id"])
    added = tuple(state.stored.with_id(item, id_prefix(item)) for item in as_items(call.body.get("items")))
    if len(added) > ITEMS_MAX:
        return _too_many_items(len(added))
    state.stored.store_conversation(replace(found, items=(*found.items, *added)))
    return list_page(added, {"limit": str(ITEMS_MAX)})


def get_item(state: ServerState, call: EndpointCall) -> Json | Failure:
    found = state.stored.conversations.get(call.path_params["id"])
    if found is None:
        return conversation_not_found(call.path_params["id"])
    named = [each for each in found.items if each.get("id") == call.path_params["item"]]
    return named[0] if named else _item_not_found(call)


def delete_item(state: ServerState, call: EndpointCall) -> Json | Failure:
    found = state.stored.conversations.get(call.path_params["id"])
    if found is None:
        return conversation_not_found(call.path_params["id"])
    left = tuple(each for each in found.items if each.get("id") != call.path_params["item"])
    if len(left) == len(found.items):
        return _item_not_found(call)
    state.stored.store_conversation(replace(found, items=left))
    return _describe_conversation(found)


def _describe_conversation(held: StoredConversation) -> Json:
    return {
        "id": held.id,
        "object": "conversation",
        "created_at": int(held.created_at),
        "metadata": dict(held.metadata),
    }


def list_page(items: Sequence[Json], query: Mapping[str, str]) -> Json:
    """Return a page of items in the form of this provider's lists."""
    found, more = page_items(items, query, default=PAGE_DEFAULT, page_max=PAGE_MAX)
    first, last = (found[0].get("id"), found[-1].get("id")) if found else (None, None)
    return {"object": "list", "data": found, "first_id": first, "last_id": last, "has_more": more}


def _item_not_found(call: EndpointCall) -> Failure:
    message = (
        f"Item with id '{call.path_params['item']}' not found in conversation '{call.path_params['id']}'."
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
    EndpointRoute("POST", r".*/conversations", create_conversation),
    EndpointRoute("GET", _ONE_CONVERSATION, get_conversation),
    EndpointRoute("POST", _ONE_CONVERSATION, update_conversation),
    EndpointRoute("DELETE", _ONE_CONVERSATION, delete_conversation),
    EndpointRoute("GET", _ONE_CONVERSATION + "/items", list_items),
    EndpointRoute("POST", _ONE_CONVERSATION + "/items", add_conversation_items),
    EndpointRoute("GET", _ONE_CONVERSATION + "/items/(?P<item>[^/]+)", get_item),
    EndpointRoute("DELETE", _ONE_CONVERSATION + "/items/(?P<item>[^/]+)", delete_item),
)

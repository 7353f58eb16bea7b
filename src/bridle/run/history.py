"""Moving in and moving out: conversations as the lists that providers' own libraries keep.

    history = import_history("vendor", messages)      their list -> ours, repaired where it is illegal
    agent.run_sync("and now?", history=history)       a new session that goes on from there
    export_history("vendor", result.messages)         ours -> their list

The first word is a vendor or a wire family.  Reasoning and ids that only a vendor can read go
back to that vendor, so naming it is worth more than naming the family.  A conversation is
translated by the family's codec, like any request: there is no second road.
"""

import json
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ..core.handoff import fitted, legal
from ..ports.tool import Json
from ..providers import load
from ..values.errors import MisuseError, ProviderError, UnknownModel
from ..values.message import Message
from ..values.model import Endpoint, Model
from ..values.request import Request
from ..values.result import History
from .line import locate

ANY_MODEL = "any-model"


def import_history(source: str, messages: Sequence[Mapping[str, Json]]) -> History:
    """A list of messages (or items, or contents) as the vendor's API takes it; raises `MisuseError`."""
    endpoint = _endpoint(source)
    codec = load(endpoint.family)
    frame = codec.encode(Request(model=Model(id=ANY_MODEL, endpoint=endpoint)))
    body = {**json.loads(frame.body), codec.listed: list(messages)}
    try:
        request = codec.read(replace(frame, body=json.dumps(body).encode()))
    except (ProviderError, TypeError, ValueError) as error:
        raise MisuseError(f"this is no conversation as {source} lists it: {error}") from error
    told, repairs = legal(_owned(message, endpoint) for message in request.messages)
    instructions = "\n\n".join(text.text for text in request.system)
    return History(messages=told, instructions=instructions, repairs=repairs)


def export_history(target: str, messages: Sequence[Message]) -> list[Json]:
    """The conversation as the vendor's API would be sent it.

    It ends where it ended: what you say next goes behind it.  Files that another provider holds, and
    pictures and documents of types that are not taken everywhere, are words in it.
    """
    endpoint = _endpoint(target)
    codec = load(endpoint.family)
    model = Model(id=ANY_MODEL, endpoint=endpoint)
    request = Request(model=model, messages=fitted(messages, model))
    listed: list[Json] = json.loads(codec.encode(request).body)[codec.listed]
    return listed


def _endpoint(name: str) -> Endpoint:
    try:
        return locate(f"{name}:={ANY_MODEL}", spoken_to=False).endpoint
    except UnknownModel:
        family = name.replace("-", "_")
        return Endpoint(name=family, family=load(family).family)


def _owned(message: Message, endpoint: Endpoint) -> Message:
    if message.origin is None:
        return message
    return replace(message, origin=replace(message.origin, endpoint=endpoint.home))

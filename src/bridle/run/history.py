"""Imports and exports conversations as the message lists of providers' own APIs.

    history = import_history("vendor", messages)      their list to ours, repaired where it is invalid
    agent.run_sync("and now?", history=history)       start a new session from it
    export_history("vendor", result.messages)         ours to their list

The first argument is a vendor or a wire family.  Prefer the vendor: reasoning and ids that only it can read
are returned only to it.  A list in the form of another family is read in that form.  The family's codec
translates the conversation, as it does for every request.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from bridle.core.context.view import make_legal, replace_unsupported_media
from bridle.ports.codec import Codec
from bridle.ports.tool import Json
from bridle.providers import family_names, load_codec
from bridle.values.errors import MisuseError, ProviderError, UnknownModel
from bridle.values.message import Message, Opaque, Text
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from bridle.values.result import History

from .model_connection import find_model_by_name

ANY_MODEL = "any-model"
_OPENING = Message(role="user", parts=(Text(text="…"),))
"""Message before an item that is read alone, because a first system message is the instructions."""
_EMPTY_VALUES: tuple[Json, ...] = (None, False, "", "{}", [], {})
_FORM_MEMBERS = ("role", "type", "cache_control")
"""Members that say how an item is read, and cache breakpoints, which Bridle sets itself."""
MessageList = Sequence[Mapping[str, Json]]


def import_history(source: str, messages: MessageList | Mapping[str, Json]) -> History:
    """Import a list of messages (or items, or contents) of a vendor's API; raises `MisuseError`.

    Accepts the whole request body too: on some wires the system prompt is outside the list.
    `History.repairs` lists what was dropped or repaired.
    """
    _check_vendor("import_history", source)
    given = _check_messages(messages)
    endpoint = _find_endpoint(source)
    named = load_codec(endpoint.family)
    items = _find_items(given, named)
    form, request = _read_in_any_form(source, endpoint, named, items, given)
    if form is not named:
        endpoint = _endpoint_of(form)
    head, rest = _split_instructions(request.messages)
    legal, repairs = make_legal(_set_origin_endpoint(message, endpoint) for message in rest)
    notes = [
        *_explain_form(form, named, items),
        *repairs,
        *_explain_unread(legal, form),
        *_explain_dropped(form, endpoint, given),
        *_explain_settings(form, endpoint, given),
    ]
    instructions = "\n\n".join((*(text.text for text in request.system), *head))
    return History(messages=legal, instructions=instructions, repairs=tuple(notes), family=form.family)


def _check_vendor(function: str, name: object) -> None:
    if not isinstance(name, str):
        raise MisuseError(
            f"{function} takes a vendor name first and the messages second, not {type(name).__name__}"
        )


def _check_messages(messages: object) -> MessageList | Mapping[str, Json]:
    """The list or request body; an iterator becomes a list, because it is read more than once."""
    if isinstance(messages, Mapping):
        return messages
    if isinstance(messages, Iterable) and not isinstance(messages, str | bytes | bytearray):
        return list(messages)
    raise MisuseError(
        f"import_history takes a list of messages or a request body, not {type(messages).__name__};"
        " for JSON text use json.loads(…)"
    )


def _find_items(messages: MessageList | Mapping[str, Json], codec: Codec) -> Sequence[object]:
    if not isinstance(messages, Mapping):
        return messages
    listed = messages.get(codec.messages_field)
    lists = [value for value in messages.values() if isinstance(value, list)]
    if not lists and listed is None:
        raise MisuseError(f"this request body has no list of messages ({codec.messages_field!r})")
    return listed if isinstance(listed, list) else max(lists, key=len, default=[])


def _read_in_any_form(
    source: str,
    endpoint: Endpoint,
    named: Codec,
    items: Sequence[object],
    given: MessageList | Mapping[str, Json],
) -> tuple[Codec, Request]:
    """The codec whose form the list has, and the list as a request.

    The named family is used unless only another family recognizes items.  If no family recognizes any, the
    list is plain text and the first family that can read it is used.
    """
    others = [load_codec(family) for family in family_names() if family != named.family]
    recognized = {codec.family: sum(map(codec.recognizes_item, items)) for codec in (named, *others)}
    best = max(others, key=lambda codec: recognized[codec.family])
    if recognized[named.family] or not recognized[best.family]:
        try:
            return named, _read_as(named, endpoint, given)
        except (ProviderError, TypeError, ValueError) as error:
            failure = MisuseError(f"this is not a conversation in the form of {source}: {error}")
        others = others if not any(recognized.values()) else []
    else:
        failure, others = MisuseError(f"this is not a conversation in the form of {source}"), [best]
    for codec in others:
        try:
            return codec, _read_as(codec, _endpoint_of(codec), given)
        except (ProviderError, TypeError, ValueError):
            continue  # the error of the named family is reported
    raise failure


def _read_as(codec: Codec, endpoint: Endpoint, given: MessageList | Mapping[str, Json]) -> Request:
    frame = codec.encode(Request(model=Model(id=ANY_MODEL, endpoint=endpoint)))
    members = given if isinstance(given, Mapping) else {codec.messages_field: list(given)}
    return codec.decode_request(
        replace(frame, body=json.dumps({**json.loads(frame.body), **members}).encode())
    )


def _split_instructions(messages: Sequence[Message]) -> tuple[tuple[str, ...], Sequence[Message]]:
    """The texts of the system messages at the head of the list, and the messages after them."""
    count = 0
    while count < len(messages) and _is_instruction(messages[count]):
        count += 1
    return tuple(message.text for message in messages[:count]), messages[count:]


def _is_instruction(message: Message) -> bool:
    return message.role == "system" and all(isinstance(part, Text) for part in message.parts)


def _explain_form(form: Codec, named: Codec, items: Sequence[object]) -> Iterator[str]:
    if form is not named:
        yield f"the list has the form of {form.family}, not of {named.family}, and was read in that form"
    others = [load_codec(family) for family in family_names() if family != form.family]
    for number, item in enumerate(items, 1):
        if not form.recognizes_item(item) and (
            of := next((c for c in others if c.recognizes_item(item)), None)
        ):
            yield f"item {number} has the form of {of.family}; {form.family} does not read all of it"


def _explain_unread(messages: Sequence[Message], form: Codec) -> Iterator[str]:
    for number, message in enumerate(messages, 1):
        for part in message.parts:
            if isinstance(part, Opaque) and not part.text:
                kind = repr(part.kind) if part.kind else "a part without a type"
                yield f"{kind} in message {number} is kept for {form.family}; no other wire reads it"


def _explain_dropped(
    form: Codec, endpoint: Endpoint, given: MessageList | Mapping[str, Json]
) -> Iterator[str]:
    """One sentence about each item with members or parts that the conversation does not contain."""
    listed = given.get(form.messages_field) if isinstance(given, Mapping) else given
    opening = Request(model=Model(id=ANY_MODEL, endpoint=endpoint), messages=(_OPENING,))
    before: list[Mapping[str, Json]] = []

    def read_kept(item: Mapping[str, Json]) -> object:
        try:
            request = _read_as(form, endpoint, [*before, item])
        except (ProviderError, TypeError, ValueError):
            return None
        head, rest = _split_instructions(request.messages)
        return tuple(text.text for text in request.system), head, rest

    for number, item in enumerate(listed if isinstance(listed, Sequence) else (), 1):
        if not isinstance(item, Mapping):
            continue
        if not before and _split_instructions(_read_as(form, endpoint, [item]).messages)[1]:
            before = json.loads(form.encode(opening).body)[form.messages_field]
        if dropped := tuple(_find_dropped(item, read_kept)):
            yield f"not kept of item {number}: {', '.join(dropped)}"


def _find_dropped(
    item: Mapping[str, Json], read_kept: Callable[[Mapping[str, Json]], object], path: str = ""
) -> Iterator[str]:
    """Members whose removal changes nothing, in the item and in each of its parts."""
    kept = read_kept(item)
    for name, value in item.items():
        if value in _EMPTY_VALUES or name in _FORM_MEMBERS:
            continue
        if read_kept({other: each for other, each in item.items() if other != name}) == kept:
            yield path + name
        elif isinstance(value, list) and not path:
            for place, part in enumerate(value):
                if not isinstance(part, Mapping):
                    continue
                if read_kept({**item, name: [part]}) == read_kept({**item, name: []}):
                    yield f"{name}[{place}]"
                else:
                    read_alone = partial(_read_part_alone, read_kept, item, name)
                    yield from _find_dropped(part, read_alone, f"{name}[{place}].")


def _read_part_alone(
    read_kept: Callable[[Mapping[str, Json]], object],
    item: Mapping[str, Json],
    name: str,
    part: Mapping[str, Json],
) -> object:
    return read_kept({**item, name: [part]})


def _explain_settings(
    form: Codec, endpoint: Endpoint, given: MessageList | Mapping[str, Json]
) -> Iterator[str]:
    """One sentence about the fields of a request body that are no part of the conversation."""
    if isinstance(given, Mapping):
        no_items: dict[str, Json] = {form.messages_field: []}
        fields = [
            name
            for name, value in given.items()
            if name != form.messages_field and not _read_as(form, endpoint, {**no_items, name: value}).system
        ]
        if fields:
            yield f"not kept, because a history is messages and a system prompt: {', '.join(fields)}"


def export_history(target: str, messages: Sequence[Message]) -> list[dict[str, Json]]:
    """Export the conversation as the message list of a vendor's API; append your next message to it.

    Files stored at another provider, and media types that are not accepted everywhere, become text.
    """
    _check_vendor("export_history", target)
    if not isinstance(messages, Sequence) or not all(isinstance(each, Message) for each in messages):
        raise MisuseError("export_history takes messages of Bridle, such as result.messages")
    endpoint = _find_endpoint(target)
    codec = load_codec(endpoint.family)
    model = Model(id=ANY_MODEL, endpoint=endpoint)
    request = Request(model=model, messages=replace_unsupported_media(messages, model))
    listed: list[dict[str, Json]] = json.loads(codec.encode(request).body)[codec.messages_field]
    return listed


def _find_endpoint(name: str) -> Endpoint:
    try:
        return find_model_by_name(f"{name}:={ANY_MODEL}", needs_address=False).endpoint
    except UnknownModel:
        family = name.replace("-", "_")
        return Endpoint(name=family, family=load_codec(family).family)


def _endpoint_of(codec: Codec) -> Endpoint:
    return Endpoint(name=codec.family, family=codec.family)


def _set_origin_endpoint(message: Message, endpoint: Endpoint) -> Message:
    if message.origin is None:
        return message
    return replace(message, origin=replace(message.origin, endpoint=endpoint.endpoint_id))

"""Builds the view: the messages of a conversation as a model is sent them.

The log keeps the originals. The view may have to differ: an imported conversation may be invalid, an image
may exceed every limit, a hundred screenshots cost more than they are worth.

    make_legal                 repair a conversation from elsewhere
    find_due_view_change       changes of the view that are due now, with their reason
    replace_unsupported_media  messages without a session, with text for unsupported media
    rebuild_view               the view after all recorded changes, for the current model

Rule 1: a change is decided once, recorded, and never reverted: a fluctuating view never hits the cache, and
        newer models reject reasoning whose past was edited.
Rule 2: parts that one model cannot accept are changed for that model only. Other models get the original,
        because their reasoning may be bound to it.
Rule 3: a call and its result are never separated.
Rule 4: nothing here knows a provider; the endpoint's abilities say what it accepts.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from bridle.core.state import Conversation, State
from bridle.values.errors import Failure
from bridle.values.events import Compacted, PartRef, ViewChange, ViewChanged
from bridle.values.message import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from bridle.values.model import Model

from .excerpt import LONG_CHARACTERS, shorten_long_text
from .media import find_unsupported_media
from .summary_view import list_kept_messages, replace_summarized_turns

PICTURES_KEPT = 3
"""Number of the newest screenshots that stay."""
PICTURES_SLACK = 3
"""Number of additional ones before the old ones are removed: every change is a cache miss."""
REPAIRS_MAX = 3
"""Maximum number of removals per run after a rejection."""
WIRE_ID_CHARACTERS = 40
"""A longer call id contains more than a name, such as a signature."""
REFUSED_PART = "[this was left out: it could not be processed]"
PICTURE_REMOVED = "[an older picture was here]"
NO_RESULT = "No result of this call is known."
CONVERSATION_OPENING = "(The conversation begins here.)"


def find_due_view_change(state: State) -> ViewChanged | None:
    """Changes of the view that are due, with their reason; None if there are none."""
    model_key = state.settings.model.model_key
    if state.conversation.unsupported_parts:
        whys = dict.fromkeys(part.why for part in state.conversation.unsupported_parts)
        changes = tuple(part.change for part in state.conversation.unsupported_parts)
        return ViewChanged(changes=changes, why="; ".join(whys), model_key=model_key)
    if state.run.refusals.rejected_parts:
        changes = tuple(
            ViewChange(message=m, part=p, inner=i, text=_replacement_text(state, (m, p, i)))
            for m, p, i in state.run.refusals.rejected_parts
        )
        message = state.run.attempt.failure.message if state.run.attempt.failure else ""
        return ViewChanged(changes=changes, why=f"the provider refused it: {message}", model_key=model_key)
    if state.run.refusals.reply_echo == "refused":
        message = state.run.attempt.failure.message if state.run.attempt.failure else ""
        why = f"the provider refused its own last reply as it came: {message}"
        return ViewChanged(changes=strip_last_reply(state), why=why, model_key=model_key)
    if state.run.refusals.reasoning_status == "refused":
        changes = tuple(drop_reasoning(state, state.conversation.transcript.messages)) or drop_bound_items(
            state
        )
        return ViewChanged(changes=changes, why="earlier reasoning was not taken back", model_key=model_key)
    kept = state.settings.compaction.pictures if state.settings.compaction else PICTURES_KEPT
    if state.conversation.picture_count > kept + PICTURES_SLACK:
        pictures = tuple(find_pictures(state))
        old = pictures[: len(pictures) - kept]
        return ViewChanged(changes=old, why=f"only the newest {kept} pictures from tools are sent on")
    return None


def list_omitted_media(state: State) -> tuple[str, ...]:
    """Media that the model cannot accept and that this run has not reported yet, one sentence each."""
    recorded = state.run.adjustments.recorded_notes
    notes = (part.change.text.strip("[]") for part in state.conversation.unsupported_parts)
    return tuple(note for note in dict.fromkeys(notes) if note not in recorded)


def rebuild_view(state: State) -> State:
    """The state with the view for its model, and the parts that the model cannot accept."""
    conversation = state.conversation
    model, messages = state.settings.model, conversation.transcript.messages
    view, changed, hidden = view_for_model(messages, conversation.view_changes, model)
    sent = (*list_kept_messages(conversation, hidden), *messages[hidden:])
    if changed:
        latest = _latest_changes(conversation.view_changes, model)
        sent = _edit_in_place(sent, {name: tuple(found.values()) for name, found in latest.items()})
    unfit = (unfit for message in sent for unfit in find_unsupported_media(message, model))
    return replace(
        state,
        conversation=replace(
            conversation,
            view=view,
            summarized_count=hidden,
            changed_parts=changed,
            picture_count=sum(map(count_pictures, view)),
            unsupported_parts=tuple(unfit),
        ),
    )


def view_for_model(
    messages: Iterable[Message], recorded: Iterable[ViewChanged | Compacted], model: Model
) -> tuple[tuple[Message, ...], frozenset[PartRef], int]:
    """Messages as this model sees them, the parts changed, and the number of messages summarized."""
    recorded = tuple(recorded)
    if not recorded:
        return tuple(messages), frozenset(), 0  # of a transcript: its own tuple, so that both grow at once
    by_message = _latest_changes(recorded, model)
    each = [
        _apply_changes(message, by_message[message.id].values()) if message.id in by_message else message
        for message in messages
    ]
    view, hidden = replace_summarized_turns(each, recorded, model)
    return view, frozenset().union(*by_message.values()), hidden


def _latest_changes(
    recorded: Iterable[ViewChanged | Compacted], model: Model
) -> Mapping[str, Mapping[PartRef, ViewChange]]:
    """By message, the change of each part that counts for this model: the latest."""
    by_message: dict[str, dict[PartRef, ViewChange]] = {}
    for event in recorded:
        if event.model_key in ("", model.model_key):
            for change in event.changes:
                by_message.setdefault(change.message, {})[part_ref(change)] = change
    return by_message


def find_removable_parts(state: State, refs: Iterable[PartRef]) -> tuple[PartRef, ...]:
    """Parts of the view as parts of the original messages, without those already changed."""
    if state.run.refusals.part_removals >= REPAIRS_MAX:
        return ()
    found = (_original_part_ref(state, ref) for ref in refs)
    return tuple(ref for ref in found if ref is not None and ref not in state.conversation.changed_parts)


def _replacement_text(state: State, ref: PartRef) -> str:
    """Text for a part that is omitted: for a long text, its beginning and end."""
    name, at, inner = ref
    message = next(each for each in state.conversation.transcript.messages if each.id == name)
    part: Part = message.parts[at]
    if isinstance(part, ToolResult) and inner >= 0:
        part = part.parts[inner]
    return (
        shorten_long_text(part.text)
        if isinstance(part, Text) and len(part.text) > LONG_CHARACTERS
        else REFUSED_PART
    )


def _original_part_ref(state: State, ref: PartRef) -> PartRef | None:
    message, index, inner = ref
    original = next((each for each in state.conversation.transcript.messages if each.id == message), None)
    if original is None:
        return _quoted_prompt_ref(state, message, index)
    recorded = [
        event
        for event in state.conversation.view_changes
        if event.model_key in ("", state.settings.model.model_key)
    ]
    removed = {
        change.part
        for event in recorded
        for change in event.changes
        if change.message == message and change.inner < 0 and not change.text and not change.strip_native
    }
    kept = [at for at in range(len(original.parts)) if at not in removed]
    return (message, kept[index], inner) if index < len(kept) else None


def _quoted_prompt_ref(state: State, message: str, index: int) -> PartRef | None:
    """Original of a user message that is quoted in the message replacing old turns."""
    if (
        not state.conversation.summarized_count
        or message != state.conversation.view[0].id
        or index >= len(state.conversation.view[0].parts)
    ):
        return None
    quoted = state.conversation.view[0].parts[index]
    for each in list_kept_messages(state.conversation, state.conversation.summarized_count):
        if quoted in each.parts:
            return each.id, each.parts.index(quoted), -1
    return None


def part_ref(change: ViewChange) -> PartRef:
    return change.message, change.part, change.inner


def replace_unsupported_media(messages: Iterable[Message], model: Model) -> tuple[Message, ...]:
    """Messages without a session, with text in place of unsupported media."""
    return tuple(
        _apply_changes(message, (unfit.change for unfit in find_unsupported_media(message, model)))
        for message in messages
    )


def count_pictures(message: Message) -> int:
    """Number of images in the tool results of this message."""
    return sum(isinstance(part, Media) for result in message.results for part in result.parts)


def make_legal(messages: Iterable[Message]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The conversation with every call answered once, in order and in place; and the repairs made.

    Idempotent: a valid conversation is returned unchanged, without repairs.
    """
    original = tuple(messages)
    repairs: list[str] = []
    results = _first_results(original, repairs)
    origins = {result.call_id: message.origin for message in original for result in message.results}
    legal: list[Message] = []
    for message in original:
        parts = _drop_blank_parts(part for part in message.parts if not isinstance(part, ToolResult))
        if not message.parts:
            repairs.append(f"{message.id or 'a message'} of the {message.role} is empty and was left out")
        elif len(parts) < len(message.parts) - len(message.results):
            repairs.append(f"{_describe_unsent(message)} in {message.id or 'a message'} was left out")
        if not parts:
            continue
        if not legal and message.role == "assistant":
            legal.append(Message(role="user", parts=(Text(text=CONVERSATION_OPENING),)))
            repairs.append("the conversation began with the model; an opening was put before it")
        legal.append(replace(message, role="user" if message.role == "tool" else message.role, parts=parts))
        if message.calls:
            answers = tuple(_result_or_unknown(call, results, repairs) for call in message.calls)
            owner = next((origins[call.id] for call in message.calls if call.id in origins), None)
            legal.append(Message(role="tool", parts=answers, at=message.at, origin=owner))
    return tuple(legal), tuple(repairs)


def rename_imported_calls(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages with call ids that no later reply of the session can get.

    Replies number their calls `c1_0`, `c2_0`, …, and so does a history from another session.
    """
    names: dict[str, str] = {}
    renamed = []
    for number, message in enumerate(messages, start=1):
        parts: list[Part] = []
        for at, part in enumerate(message.parts):
            if isinstance(part, ToolCall):
                names[part.id] = f"i{number}_{at}"
                parts.append(replace(part, id=names[part.id]))
            elif isinstance(part, ToolResult):
                parts.append(replace(part, call_id=names.get(part.call_id, part.call_id)))
            else:
                parts.append(part)
        renamed.append(replace(message, parts=tuple(parts)))
    return tuple(renamed)


def _first_results(messages: tuple[Message, ...], repairs: list[str]) -> Mapping[str, ToolResult]:
    """The first result of every call, if the call precedes it."""
    called_ids: set[str] = set()
    found: dict[str, ToolResult] = {}
    for message in messages:
        called_ids.update(call.id for call in message.calls)
        for result in message.results:
            if result.call_id not in called_ids:
                repairs.append(f"a result for {result.call_id!r}, which was never called, was left out")
            elif result.call_id in found:
                repairs.append(f"a second result for {result.call_id!r} was left out")
            else:
                found[result.call_id] = result
    return found


def _result_or_unknown(call: ToolCall, results: Mapping[str, ToolResult], repairs: list[str]) -> ToolResult:
    if call.id in results:
        return results[call.id]
    repairs.append(f"the call {call.id!r} of {call.name} had no result; it was answered as unknown")
    return ToolResult(call_id=call.id, parts=(Text(text=NO_RESULT),), outcome="unknown")


def _describe_unsent(message: Message) -> str:
    """Description of the parts of a message that are not worth sending."""
    has_blank = any(isinstance(part, Text) and not part.text.strip() for part in message.parts)
    has_reasoning = any(isinstance(part, Reasoning) for part in message.parts)
    if has_reasoning and not _drop_blank_parts(message.parts):
        return (
            "blank text and reasoning that led to nothing" if has_blank else "reasoning that led to nothing"
        )
    return "blank text"


def _drop_blank_parts(parts: Iterable[Part]) -> tuple[Part, ...]:
    # A blank text may carry a provider's signature, which must stay in place.
    kept = tuple(part for part in parts if not isinstance(part, Text) or part.text.strip() or part.native)
    return kept if any(not isinstance(part, Reasoning) for part in kept) else ()


def find_pictures(state: State) -> Iterator[ViewChange]:
    conversation = state.conversation
    for message in conversation.transcript.messages[conversation.summarized_count :]:
        for at, part in enumerate(message.parts):
            if isinstance(part, ToolResult):
                for inner, media in enumerate(part.parts):
                    if isinstance(media, Media) and (message.id, at, inner) not in conversation.changed_parts:
                        yield ViewChange(message=message.id, part=at, inner=inner, text=PICTURE_REMOVED)


def drop_reasoning(state: State, messages: Iterable[Message]) -> Iterator[ViewChange]:
    """Changes that remove all reasoning; a partial chain of signatures is invalid.

    Text and calls stay, without the provider's own data, which may be a signature too or refer to one.
    """
    for message in messages:
        if message.role != "assistant":
            continue
        for at, part in enumerate(message.parts):
            if (message.id, at, -1) in state.conversation.changed_parts:
                continue
            if isinstance(part, Reasoning):
                yield ViewChange(message=message.id, part=at)
            elif isinstance(part, Text | ToolCall) and part.native is not None:
                yield ViewChange(message=message.id, part=at, strip_native=True)


def drop_bound_items(state: State) -> tuple[ViewChange, ...]:
    """Changes that replace the provider's items in all replies.

    An item may refer to removed reasoning by its id, or be reasoning of a form that we do not know.
    """
    changed = state.conversation.changed_parts
    return tuple(
        ViewChange(message=message.id, part=at, text=part.text or REFUSED_PART)
        for message in state.conversation.transcript.messages
        if message.role == "assistant"
        for at, part in enumerate(message.parts)
        if isinstance(part, Opaque) and (message.id, at, -1) not in changed
    )


def has_next_repair(state: State, failure: Failure) -> bool:
    """True if the view was just changed because of refused reasoning, or can be changed once more."""
    if failure.kind != "reasoning_refused":
        return False
    return state.run.refusals.reasoning_status == "left out" or bool(drop_bound_items(state))


def is_echo_refused(state: State, failure: Failure) -> bool:
    """True if an unspecific rejection may concern the model's last reply as it was sent back."""
    named = failure.kind != "invalid" or failure.refused_parameter
    return not named and bool(strip_last_reply(state))


def strip_last_reply(state: State) -> tuple[ViewChange, ...]:
    """Changes that reduce the model's last reply to text and calls.

    A reply is sent back as it came, including data we do not interpret. All earlier replies were accepted,
    because another one followed them.
    """
    if state.run.refusals.part_removals >= REPAIRS_MAX:
        return ()
    messages = reversed(state.conversation.transcript.messages)
    last = next((message for message in messages if message.role == "assistant"), None)
    endpoint_id = state.settings.model.endpoint.endpoint_id
    if last is None or last.origin is None or last.origin.endpoint != endpoint_id:
        return ()
    has_words = any(isinstance(part, Text | ToolCall) for part in last.parts)
    return tuple(
        ViewChange(message=last.id, part=at, strip_native=isinstance(part, Text | ToolCall),
               text="" if has_words else REFUSED_PART)
        for at, part in enumerate(last.parts)
        if (last.id, at, -1) not in state.conversation.changed_parts and _is_echoed(part)
    )  # fmt: skip


def _strip_native(part: Part | None) -> Part | None:
    if isinstance(part, ToolCall) and len(part.wire_id) > WIRE_ID_CHARACTERS:
        return replace(part, native=None, wire_id="")
    if isinstance(part, Media):
        return replace(part, native=None, name="")
    return replace(part, native=None) if isinstance(part, Text | ToolCall) else part


def _is_echoed(part: Part) -> bool:
    """True if the provider gets back more of the part than our view of it."""
    long_id = isinstance(part, ToolCall) and len(part.wire_id) > WIRE_ID_CHARACTERS
    return isinstance(part, Reasoning) or part.native is not None or long_id


def list_edited_messages(conversation: Conversation, messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages with the changes for every model, each part in its original place; a removed one is empty."""
    return _list_changed(conversation, messages, (ViewChanged, Compacted))


def list_uncompacted_messages(conversation: Conversation, messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages as hooks let them pass: like `list_edited_messages`, without the changes of compactions."""
    return _list_changed(conversation, messages, ViewChanged)


def _list_changed(
    conversation: Conversation,
    messages: Iterable[Message],
    kinds: type[ViewChanged] | tuple[type[ViewChanged], type[Compacted]],
) -> tuple[Message, ...]:
    messages = tuple(messages)
    ids = {message.id for message in messages}
    changes: dict[str, list[ViewChange]] = {}
    for event in conversation.view_changes:
        for change in event.changes if not event.model_key and isinstance(event, kinds) else ():
            if change.message in ids:
                changes.setdefault(change.message, []).append(change)
    return _edit_in_place(messages, changes)


def list_compacted_parts(conversation: Conversation) -> frozenset[PartRef]:
    """The parts that a compaction shortened, or that were changed for one model only."""
    return frozenset(
        part_ref(change)
        for event in conversation.view_changes
        if event.model_key or isinstance(event, Compacted)
        for change in event.changes
    )


def _edit_in_place(
    messages: Iterable[Message], changes: Mapping[str, Iterable[ViewChange]]
) -> tuple[Message, ...]:
    """The messages with these changes, each part in its original place; a removed one is empty."""
    return tuple(
        replace(message, parts=tuple(part or Text(text="") for part in _change_parts(message, found)))
        if (found := changes.get(message.id))
        else message
        for message in messages
    )


def _change_parts(message: Message, changes: Iterable[ViewChange]) -> list[Part | None]:
    """The changed parts in their places; None for a removed one."""
    parts: list[Part | None] = list(message.parts)
    for change in changes:
        part = parts[change.part]
        if change.strip_native:
            parts[change.part] = _strip_native(part)
        elif change.arguments:
            if isinstance(part, ToolCall):
                parts[change.part] = replace(part, arguments=change.arguments, native=None, wire_id="")
        elif change.inner < 0:
            parts[change.part] = Text(text=change.text) if change.text else None
        elif isinstance(part, ToolResult):
            inner = [
                Text(text=change.text) if at == change.inner else each for at, each in enumerate(part.parts)
            ]
            parts[change.part] = replace(part, parts=tuple(inner), native=None)
    return parts


def _apply_changes(message: Message, changes: Iterable[ViewChange]) -> Message:
    parts = _change_parts(message, changes)
    kept = [at for at, part in enumerate(parts) if part is not None]
    added = tuple(place for place, at in enumerate(kept) if at in message.added_parts)
    return replace(message, parts=tuple(part for part in parts if part is not None), added_parts=added)

"""Summaries in the view: native summaries made by the provider, and the message that replaces old turns.

For a native summary, the provider is asked to compact exactly the turns to be replaced, with the same tools
and instructions, and returns items that only it can read. This has two advantages: a model that binds
reasoning to the preceding text still accepts that of the newest turns, and the provider loses less. User
messages are preserved in one of three ways:

    kept       the provider returns them verbatim beside its summary
    restated   we repeat them after the summary; for models that do not bind reasoning
    quoted     the summary repeats them as instructed; otherwise its text is used like a summary of ours

If the provider cannot do it, or its answer is unusable, the run falls back to an ordinary summary.

In the view, one user message replaces the summarized turns: an introduction, the users' messages verbatim,
and the summary; or the provider's own items, for that provider. Only the latest summary counts, because it
covers everything before its end.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from bridle.core.state import Conversation, State
from bridle.values.message import (
    Compacted,
    Media,
    Message,
    Opaque,
    Part,
    PromptPart,
    Reply,
    Text,
    ViewChanged,
)
from bridle.values.model import Model

NATIVE_KIND = "compaction"
"""Kind of such an item, for every provider that makes one."""
NATIVE_SUMMARY_ASK = """\
Write down what is needed to go on with this work. What you write will stand in place of the conversation \
above. Do not call a tool; answer with the summary and nothing else.

Begin with everything the user said, word for word and complete. Then say"""
_SPEAKER_OF_ROLE = {"user": "user", "tool": "user", "assistant": "assistant"}


def can_summarize_natively(state: State) -> bool:
    """True if the provider should be asked for a native summary."""
    options, progress, model = state.settings.compaction, state.run.compaction, state.settings.model
    if options is None or not options.native or options.model is not None or not model.abilities.compaction:
        return False
    return not progress.native_disabled and not progress.overflow.kind and not progress.split_count


def native_cut_points(state: State, end: int) -> tuple[int, ...]:
    """Indices where old turns may end, best first: the current prompt stays, if possible."""
    conversation = state.conversation
    messages = conversation.transcript.messages
    latest = next((at for at, each in enumerate(messages) if each.id in conversation.prompt_ids[-1:]), end)
    return tuple(
        find_cut_point(messages, place, conversation.summarized_count) for place in (min(latest, end), end)
    )


def find_cut_point(messages: Sequence[Message], end: int, least: int) -> int:
    """Index at or before `end` where old turns may end; `least` if there is none.

    The next message must have another role: the provider would merge two in a row, and reject reasoning as
    bound to different text.
    """
    while end > least:
        before, after = (_SPEAKER_OF_ROLE.get(each.role, "") for each in messages[end - 1 : end + 1])
        if before and after and before != after and messages[end].role != "tool":
            return end
        end -= 1
    return least


def extract_native_parts(reply: Reply) -> tuple[Opaque, ...]:
    """The provider's summary items; empty if it made none."""
    parts = tuple(part for part in reply.parts if isinstance(part, Opaque))
    return parts if any(part.kind == NATIVE_KIND for part in parts) else ()


def native_summary_text(parts: Iterable[Opaque]) -> str:
    return "\n".join(part.text for part in parts if part.kind == NATIVE_KIND and part.text).strip()


def has_prompts_intact(native_parts: Sequence[Opaque], prompts: Iterable[Message], model: Model) -> bool:
    """True if the user messages stay verbatim when these items replace them."""
    if _has_other_items(native_parts) or not model.abilities.bound_thinking:
        return True
    summary = _collapse_spaces(native_summary_text(native_parts))
    return all(_collapse_spaces(each.text) in summary and not _has_media(each) for each in prompts)


def is_native_summary_accepted(event: Compacted, model: Model) -> bool:
    """True if this model is sent the provider's own summary."""
    origin, endpoint = event.native_origin, model.endpoint
    same_origin = origin is not None and (origin.family, origin.endpoint) == (
        endpoint.family,
        endpoint.endpoint_id,
    )
    return bool(event.native_parts) and same_origin and model.abilities.compaction


def native_replacement(
    event: Compacted, prompts: Sequence[Message], model: Model
) -> tuple[Opaque | Text | Media, ...]:
    """Items that replace the turns in the view: the native summary, and user messages where we restate them.

    A summary made for another model may not quote the user messages, because they were restated there.
    """
    same_model = event.native_origin is not None and event.native_origin.model == model.id
    quoted = model.abilities.bound_thinking and (
        same_model or has_prompts_intact(event.native_parts, prompts, model)
    )
    if _has_other_items(event.native_parts) or quoted:
        return event.native_parts
    prompt_parts = [part for each in prompts for part in each.parts if isinstance(part, PromptPart)]
    return (
        *event.native_parts,
        *(Text(text=event.label) for _ in prompt_parts[:1] if event.label),
        *prompt_parts,
    )


def _has_media(message: Message) -> bool:
    """True if the message has media, which no summary can quote."""
    return any(isinstance(part, Media) for part in message.parts)


def _has_other_items(parts: Iterable[Opaque]) -> bool:
    return any(part.kind != NATIVE_KIND for part in parts)


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


def replace_summarized_turns(
    view: Sequence[Message], recorded: Iterable[ViewChanged | Compacted], model: Model
) -> tuple[tuple[Message, ...], int]:
    """The view with a summary in place of the turns it covers, and the number of those messages.

    `view` contains every message, with the changes of its parts already applied.
    """
    latest = next((each for each in reversed(tuple(recorded)) if _is_summary_in_force(each, model)), None)
    if not isinstance(latest, Compacted):
        return tuple(view), 0
    count = next((at + 1 for at, message in enumerate(view) if message.id == latest.summarized_until), 0)
    if not count:
        return tuple(view), 0  # the transcript ends before the summary
    return (_make_summary_message(latest, view[:count], model), *view[count:]), count


def list_kept_ids(conversation: Conversation) -> tuple[str, ...]:
    """Prompts, and instructions for them, that are kept verbatim however long the conversation becomes."""
    if not conversation.instruction_ids and not conversation.hidden_ids:
        return conversation.prompt_ids
    candidates = (*conversation.prompt_ids, *conversation.instruction_ids)
    return tuple(each for each in candidates if each not in conversation.hidden_ids)


def list_kept_messages(conversation: Conversation, end: int) -> tuple[Message, ...]:
    """Those among the first `end` messages of the transcript."""
    kept = list_kept_ids(conversation)
    return tuple(message for message in conversation.transcript.messages[:end] if message.id in kept)


def add_compaction(conversation: Conversation, event: Compacted) -> Conversation:
    """The conversation with the event; prompts and instructions that it covers and does not keep are hidden."""
    changes = (*conversation.view_changes, event)
    ids = [message.id for message in conversation.transcript.messages]
    if event.summarized_until not in ids:
        return replace(conversation, view_changes=changes)
    gone = {*ids[: ids.index(event.summarized_until) + 1]} - {*event.prompt_ids}
    candidates = (*conversation.prompt_ids, *conversation.instruction_ids)
    return replace(
        conversation, view_changes=changes, hidden_ids=tuple(each for each in candidates if each in gone)
    )


def _is_summary_in_force(event: ViewChanged | Compacted, model: Model) -> bool:
    """True if the event replaces turns for this model; another provider's native summary does not."""
    return isinstance(event, Compacted) and bool(
        event.summarized_until and (event.summary or is_native_summary_accepted(event, model))
    )


def _make_summary_message(event: Compacted, messages: Sequence[Message], model: Model) -> Message:
    name = f"{messages[0].id}-{event.summarized_until}"
    at = messages[-1].at
    if is_native_summary_accepted(event, model):
        prompts = [message for message in messages if message.id in event.prompt_ids]
        return Message(
            role="user",
            parts=native_replacement(event, prompts, model),
            id=name,
            at=at,
            origin=event.native_origin,
            provenance="summary",
        )
    parts: list[Part] = [Text(text=event.lead)] if event.lead else []
    for message in messages:
        if message.id in event.prompt_ids:
            parts += [Text(text=event.label), *message.parts] if event.label else message.parts
    if event.summary:
        parts.append(Text(text=event.summary))
    return Message(role="user", parts=tuple(parts), id=name, at=at, provenance="summary")

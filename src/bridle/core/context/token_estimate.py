"""Appends messages to a session, and estimates tokens.

`extend_conversation` adds a message to transcript and view. `append_message` is for messages of ours, which
no provider has counted yet: it also raises the estimate of the next prompt, conservatively, so that a budget
errs by stopping early.

The window is the model's own, or a smaller one that its server reported: a self-hosted server may run with
less than the model can read. It says so when it rejects a prompt (`Failure.window_tokens`), which applies to
this model for the rest of the session.

Truncation: some servers silently drop the beginning of a prompt. Their own count reveals it: fewer tokens
than the prompt has words. No tokenizer produces fewer tokens than words, so counting words is conservative;
images, reasoning and template text are not counted. It is a suspicion, not a proof, because some servers do
not count cached tokens. Only endpoints known for it are checked (`Abilities.cuts_prompts`), and only for
prompts long enough to be meaningful.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from bridle.core.state import Conversation, State, TokenEstimate
from bridle.values.errors import Failure
from bridle.values.message import Media, Message, Opaque, Part, Reasoning, Reply, Text, ToolCall, ToolResult
from bridle.values.model import Model
from bridle.values.request import Request, ToolSpec
from bridle.values.usage import Usage

from .media import find_unsupported_media
from .view import count_pictures

T = TypeVar("T", bound=Part)

_MEDIA_TYPE_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
PICTURE_TOKENS = 5_000
"""Cost of the largest image a model processes."""
MESSAGE_TOKENS = 16
"""Overhead of a message: its role and delimiters."""
DOUBTED_SHARE_MIN = 0.5
"""Share of the window below which a usage is not doubted: nothing depends on it."""
LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "
LETTERS_PER_TOKEN = 2
"""Words have four letters per token, names and codes two.

Digits, signs and other scripts count one per byte.
"""


def extend_conversation(conversation: Conversation, model: Model, message: Message) -> Conversation:
    """The conversation with one more message, in the transcript and in the view of this model."""
    has_media = _has_media(message.parts)
    transcript = conversation.transcript.append(
        _complete_media(message, model.endpoint.endpoint_id) if has_media else message
    )
    placed = transcript.messages[-1]
    if conversation.view is conversation.transcript.messages:
        view = transcript.messages  # nothing was changed for the model: one tuple is both
    else:
        view = conversation.view + (placed,)  # noqa: RUF005 - one copy; unpacking makes two
    if not has_media:
        return replace(conversation, transcript=transcript, view=view)
    return replace(
        conversation,
        transcript=transcript,
        view=view,
        picture_count=conversation.picture_count + count_pictures(placed),
        unsupported_parts=(*conversation.unsupported_parts, *find_unsupported_media(placed, model)),
    )


def _has_media(parts: tuple[Part, ...]) -> bool:
    for part in parts:
        if type(part) is Media:
            return True
        if type(part) is ToolResult and _has_media(part.parts):
            return True
    return False


def _complete_media(message: Message, endpoint_id: str) -> Message:
    """Complete file references with their holder, and normalize media types.

    A file known only by its id is held by the endpoint that the conversation is with when it is named.
    """

    def complete(part: T) -> T:
        if isinstance(part, ToolResult):
            return replace(part, parts=tuple(map(complete, part.parts)))
        if not isinstance(part, Media):
            return part
        holder = message.origin.endpoint if message.origin else endpoint_id
        return replace(
            part,
            endpoint_id=part.endpoint_id or (holder if part.file_id else ""),
            media_type=_MEDIA_TYPE_ALIASES.get(part.media_type.lower(), part.media_type),
        )

    return replace(message, parts=tuple(map(complete, message.parts)))


def append_message(state: State, message: Message) -> State:
    return replace(
        state,
        conversation=extend_conversation(state.conversation, state.settings.model, message),
        estimate=estimate_after_message(state, message),
    )


def estimate_after_message(state: State, message: Message) -> TokenEstimate:
    """Estimate after a message of ours, which no provider has counted yet."""
    before = state.estimate.prompt_tokens or estimate_overhead(state)
    tokens = before + estimate_part_tokens(message.parts) + MESSAGE_TOKENS
    return replace(state.estimate, prompt_tokens=tokens)


def append_prompt(state: State, message: Message) -> State:
    """Append a user prompt, which is kept verbatim however long the conversation becomes."""
    after = append_message(state, message)
    return replace(
        after,
        conversation=replace(
            after.conversation,
            prompt_ids=after.conversation.prompt_ids + (after.conversation.transcript.messages[-1].id,),  # noqa: RUF005
        ),
    )


def append_history(state: State, messages: Sequence[Message]) -> State:
    """Append an imported history, as `append_prompt` and `append_message` of each do, with one copy."""
    if not messages:
        return state
    conversation, model = state.conversation, state.settings.model
    transcript = conversation.transcript.extend(
        _complete_media(message, model.endpoint.endpoint_id) if _has_media(message.parts) else message
        for message in messages
    )
    placed = transcript.messages[len(conversation.transcript.messages) :]
    is_unchanged = conversation.view is conversation.transcript.messages
    unsupported = (part for message in placed for part in find_unsupported_media(message, model))
    tokens = (state.estimate.prompt_tokens or estimate_overhead(state)) + sum(
        estimate_part_tokens(message.parts) + MESSAGE_TOKENS for message in messages
    )
    return replace(
        state,
        conversation=replace(
            conversation,
            transcript=transcript,
            view=transcript.messages if is_unchanged else (*conversation.view, *placed),
            picture_count=conversation.picture_count + sum(map(count_pictures, placed)),
            unsupported_parts=(*conversation.unsupported_parts, *unsupported),
            prompt_ids=(*conversation.prompt_ids, *(each.id for each in placed if each.role == "user")),
        ),
        estimate=replace(state.estimate, prompt_tokens=tokens),
    )


def doubt_usage(state: State, reply: Reply) -> str:
    """Reason why the usage of a reply is not the size of the next prompt; empty if it is plausible.

    Providers add up the inner steps of hosted tools. The usage is doubted if it fills much of the window, and our
    conservative estimate of everything that was sent and said is lower.
    """
    total, window = reply.usage.total, window_tokens(state)
    if not window or total <= DOUBTED_SHARE_MIN * window:
        return ""
    estimate = max(state.estimate.prompt_tokens, _estimate_view(state)) + _estimate_reply(reply)
    # guard: usage-below-estimate
    if total <= estimate:
        return ""
    return (
        f"{state.settings.model.name} counted {total:,} tokens for a window of {window:,}, and at most {estimate:,}"
        " were sent and said; the window is reckoned by our estimate"
    )


def _estimate_view(state: State) -> int:
    view = state.conversation.view
    opaque = (part for message in view for part in message.parts if isinstance(part, Opaque))
    texts = sum(estimate_part_tokens(message.parts) + MESSAGE_TOKENS for message in view)
    return estimate_overhead(state) + texts + sum(len(part.native) for part in opaque)


def _estimate_reply(reply: Reply) -> int:
    opaque = sum(len(part.native) for part in reply.parts if isinstance(part, Opaque))
    return estimate_part_tokens(reply.parts) + opaque + reply.usage.reasoning


def estimate_after_reply(state: State, reply: Reply, *, doubted: bool = False) -> TokenEstimate:
    """Estimate after a reply: the provider's count, or our own if there is none or it is `doubted`.

    The output count is raised if the reply has more words: a server that counts 5 tokens for a long reply would
    otherwise make the next prompt exceed the window unnoticed.
    """
    total, before = reply.usage.total, state.estimate
    if not total or doubted:
        return replace(before, prompt_tokens=before.prompt_tokens + estimate_part_tokens(reply.parts))
    characters = 0
    for part in reply.parts:  # results of hosted tools are counted as input
        if part.__class__ is Text:
            characters += len(part.text)
        elif part.__class__ is ToolCall:
            characters += len(part.arguments)
    # A word and the space after it take two characters: shorter texts need not be searched.
    if characters >= 2 * REPLY_WORDS_MIN and characters >= 2 * (reply.usage.output - reply.usage.reasoning):
        total += _missing_output_tokens(reply)
    return TokenEstimate(prompt_tokens=total, counted_tokens=total, reported_windows=before.reported_windows)


def _missing_output_tokens(reply: Reply) -> int:
    """Tokens by which the output count is certainly too low; 0 if it is plausible."""
    counted = reply.usage.output - reply.usage.reasoning
    # Results of hosted tools are counted as input.
    written = (part for part in reply.parts if not isinstance(part, ToolResult))
    words = sum(len(WORD.findall(text)) for part in written for text in _part_texts(part))
    return words - counted if words >= REPLY_WORDS_MIN and counted < COUNTED_SHARE_MIN * words else 0


def is_substantial(part: Part) -> bool:
    """True if the part can make up a message by itself; reasoning alone cannot."""
    if isinstance(part, Text):
        return bool(part.text.strip())
    return not isinstance(part, Reasoning)


def instruction_owner(state: State) -> str:
    """Owner of the functions that write instructions now (`InstructionWritten.owner`)."""
    origin = state.run.origin
    agent = ("", *origin.agents)[-1]
    if origin.first_settings is not None and agent == origin.first_settings.name:
        agent = ""  # the run came back to the agent that started it
    is_override = any(each.option == "instructions" for each in state.settings.overrides)
    return f"{agent}:{len(state.conversation.prompt_ids)}" if is_override else agent


def written_instructions(state: State) -> str:
    """Instructions that functions of the agent wrote for the session, in the order of the functions."""
    owner = instruction_owner(state)
    texts = {each.name: each.instructions for each in state.memory.instructions if each.owner == owner}
    found = (texts.get(function.name, "") for function in state.settings.session_functions)
    return "\n\n".join(text for text in found if text)


def estimate_overhead(state: State) -> int:
    settings = state.settings
    texts = [settings.instructions, state.memory.text, settings.output.parameters if settings.output else ""]
    if settings.session_functions:
        texts.append(written_instructions(state))
    tokens = sum(estimate_text_tokens(text) for text in texts) + estimate_tool_tokens(settings.tools)
    revealed = tuple(spec for spec in settings.hidden_tools if spec.name in state.tools.revealed)
    return tokens + estimate_tool_tokens(revealed) + MESSAGE_TOKENS


def estimate_tool_tokens(tools: tuple[ToolSpec, ...]) -> int:
    texts = [text for spec in tools for text in (spec.name, spec.description, spec.parameters)]
    return sum(map(estimate_text_tokens, texts))


def estimate_text_tokens(text: str) -> int:
    data = text.encode("utf-8", "replace")
    others = len(data.translate(None, LETTERS))
    return others + (len(data) - others) // LETTERS_PER_TOKEN + 1


def estimate_part_tokens(parts: tuple[Part, ...]) -> int:
    total = 0
    for part in parts:
        if type(part) is Text or type(part) is Reasoning:
            total += estimate_text_tokens(part.text)
        elif type(part) is ToolResult:
            total += estimate_part_tokens(part.parts)
        elif type(part) is ToolCall:
            total += estimate_text_tokens(part.name) + estimate_text_tokens(part.arguments)
        elif type(part) is Media:
            # A file is read as text and grows with its size; an image is not.
            total += PICTURE_TOKENS if part.kind == "image" else max(PICTURE_TOKENS, len(part.data) // 2)
    return total


WINDOW_TOKENS_MIN = 256
"""No server runs with less; a smaller number in a rejection means something else."""


def window_tokens(state: State) -> int:
    """Window of the current model."""
    own = state.settings.window_tokens
    return _smaller_window(state, state.settings.model, own) if state.estimate.reported_windows else own


def model_window_tokens(state: State, model: Model) -> int:
    """Window of any model, without the agent's setting."""
    return _smaller_window(state, model, model.abilities.prompt_tokens_max)


def record_window(state: State, failure: Failure) -> tuple[tuple[str, int], ...]:
    """Windows reported so far, with the one in this failure if it is plausible."""
    estimate = state.estimate
    reported, own = failure.window_tokens, window_tokens(state)
    if failure.kind != "context" or reported is None or not WINDOW_TOKENS_MIN <= reported < own:
        return estimate.reported_windows
    model_key = state.settings.model.model_key
    return (*(each for each in estimate.reported_windows if each[0] != model_key), (model_key, reported))


def _smaller_window(state: State, model: Model, own: int) -> int:
    return min(own, dict(state.estimate.reported_windows).get(model.model_key, own))


WORD = re.compile(r"\w+")
PROMPT_WORDS_MIN = 500
"""Servers do not truncate shorter prompts, and template text would outweigh the words."""
REPLY_WORDS_MIN = 50
"""Words of a reply below which its token count is not doubted: no window depends on it."""
COUNTED_SHARE_MIN = 0.8
"""A token count below this share of the words is too low."""


def truncation_hint(request: Request, usage: Usage) -> str:
    """Reason to believe that the beginning of the prompt was dropped; empty if there is none."""
    # Messages stored at the provider are not sent again and may not be counted again.
    if not request.model.abilities.cuts_prompts or request.server_state_until or usage.incomplete:
        return ""
    counted = usage.prompt
    if not counted:
        return ""
    words = sum(len(WORD.findall(text)) for text in _prompt_texts(request))
    if words < PROMPT_WORDS_MIN or counted >= COUNTED_SHARE_MIN * words:
        return ""
    return (
        f"{request.model.name} counted {counted} tokens in a prompt of {words} words: it seems to have left"
        " out a part of it, as servers do whose context is set too small; raise it there, or send less"
    )


def _prompt_texts(request: Request) -> Iterator[str]:
    for text in request.system:
        yield text.text
    for spec in request.tools:
        yield f"{spec.name} {spec.description}"  # the template decides how the schema is written
    for message in request.messages:
        yield from _message_texts(message)


def _message_texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        yield from _part_texts(part)


def _part_texts(part: Part) -> Iterator[str]:
    inner: tuple[Part, ...] = part.parts if isinstance(part, ToolResult) else (part,)
    for each in inner:
        if isinstance(each, Text):
            yield each.text
        elif isinstance(each, ToolCall):
            yield f"{each.name} {each.arguments}"

"""Decides about state stored at the provider: named prompts and conversation objects.

Named prompts are billed by the hour. Where a free cache exists as well, reading costs the same either way. So
storage pays off only after a pause longer than the free cache lasts, and short enough that storage costs less
than processing the prompt again. Only the head is stored (tools and instructions); conservatively, nothing
after a named prompt counts as cached for free. In dollars, per pause:

    saved   head x (input - cache_read)                        the call after the pause reads it
    paid    head x storage x hours                             from now until then, with a margin
            head x cache_read                                  once, when it is created
            rest x (input - cache_read) x (calls - 1)          the rest of the prompt, at each further call

It is done only if `saved` exceeds `paid`, every price is known, and it is enabled (`Settings.cache_by_name`).
The next pause is assumed to be as long as the longest so far.

A conversation object grows with every request to it, and with the reply. It is used only while the log proves
its content: every request to it was answered by a reply that became a message, and nothing sent has changed
since. An interrupted request may or may not have been added. Then, or if the provider no longer has the
object, it is dropped by an event, a new one is created, and the next request sends everything. If none can be
created, everything is sent every time. The session's own log is always complete.
"""

from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise

from msgspec.structs import replace

from bridle.core.budget.limits import charge, limit_scopes
from bridle.core.context.assemble import (
    digest_lines,
    has_distinct_call_ids,
    previous_reply_id,
    relies_on_server_state,
)
from bridle.core.context.token_estimate import estimate_text_tokens, estimate_tool_tokens, is_substantial
from bridle.core.effects import DropConversation, DropPrompt, OpenConversation, StorePrompt
from bridle.core.state import Phase, State
from bridle.values import events as e
from bridle.values.cache import CacheDegraded, PromptDropped, PromptStored
from bridle.values.errors import Failure, FailureKind
from bridle.values.message import Message, Reply, Stop
from bridle.values.request import Request, ToolChoice
from bridle.values.settings import Settings
from bridle.values.usage import MILLION, Rates, Usage

from .breakpoints import RECENT_MESSAGES_MAX
from .diagnosis import apply_cache_degraded
from .tracking import ServerConversation

HOUR_SECONDS = 3_600
# not from outside: time that we wait for our own work
STORED_SECONDS_MAX = 4 * HOUR_SECONDS
"""Longest pause to store a prompt for."""
PAUSE_MARGIN = Decimal("1.25")
"""The next pause may be somewhat longer than the longest so far."""
MINIMUM_TOKENS_MARGIN = Decimal("1.2")
"""Factor by which a conservative estimate must exceed the provider's minimum."""


def plan_stored_prompt(state: State, request: Request) -> StorePrompt | DropPrompt | None:
    """Action on the named prompt before this request; None if there is none."""
    settings, stored = state.settings, _current_stored_prompt(state)
    if stored is None and not settings.cache_by_name:
        return None
    head = _head_digest(state, request)
    if stored is not None and (why := _explain_useless(state, stored, head)):
        return DropPrompt(
            stored=stored,
            why=why,
            already_dropped=state.run.refusals.server_state_lost or stored.expires_at <= state.now,
        )
    # After the provider lost a prompt, no new one is stored before the next reply.
    if not settings.cache_by_name or state.run.refusals.server_state_lost or _is_storing_refused(state, head):
        return None
    pause = expected_pause(settings, state.conversation.view)
    if pause is None:
        return None
    seconds = float(Decimal(pause) * PAUSE_MARGIN)
    if stored is not None and stored.expires_at >= state.now + pause:
        return None
    system_tokens = sum(estimate_text_tokens(text.text) for text in request.system)
    tokens = stored.tokens if stored else estimate_tool_tokens(request.tools) + system_tokens
    if not _is_worth_storing(state, tokens, seconds, stored) or not _is_affordable(
        state, tokens, seconds, stored
    ):
        return None
    return StorePrompt(request=request, seconds=seconds, prompt_head=head, stored=stored)


def stored_prompt_name(state: State, request: Request) -> str:
    """Name that replaces tools and instructions in the next request; empty if they are sent.

    A tool choice cannot be combined with a name.
    """
    stored = _current_stored_prompt(state)
    if stored is None:
        return ""
    forced = request.tool_choice != ToolChoice()
    if forced or _explain_useless(state, stored, _head_digest(state, request)):
        return ""
    return stored.name


def expected_pause(settings: Settings, view: tuple[Message, ...]) -> float | None:
    """Longest recent pause that exceeded the free cache; None if there was none."""
    times = [message.at for message in view[-RECENT_MESSAGES_MAX:]]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    least = settings.model.abilities.cache_seconds
    return max((pause for pause in pauses if least < pause <= STORED_SECONDS_MAX), default=None)


def storage_usd(rates: Rates | None, tokens: int, seconds: float, *, created: bool) -> Decimal | None:
    """Cost of storing these tokens for this long; a new prompt is also billed as input."""
    if rates is None or rates.storage is None:
        return None
    hours = Decimal(seconds) / HOUR_SECONDS
    return tokens * (rates.storage * hours + (rates.input if created else 0)) / MILLION


def _is_worth_storing(state: State, tokens: int, seconds: float, stored_prompt: PromptStored | None) -> bool:
    model = state.settings.model
    rates = model.price.rates(state.estimate.prompt_tokens, state.now) if model.price else None
    if rates is None or rates.storage is None or not model.abilities.cache_named:
        return False
    if stored_prompt is None and tokens < model.abilities.cache_minimum_tokens * MINIMUM_TOKENS_MARGIN:
        return False
    saved = tokens * (rates.input - rates.cache_read)
    paid_seconds = stored_prompt.expires_at - state.now if stored_prompt else 0.0
    storage_cost = tokens * rates.storage * Decimal(seconds - paid_seconds) / HOUR_SECONDS
    creation_cost = Decimal(0) if stored_prompt else tokens * rates.cache_read
    rest_tokens = max(0, state.estimate.prompt_tokens - tokens)
    rest_cost = rest_tokens * (rates.input - rates.cache_read) * (_calls_between_pauses(state) - 1)
    return saved > storage_cost + creation_cost + rest_cost


def _calls_between_pauses(state: State) -> int:
    """Maximum number of recent calls without a long pause in between; at least 1."""
    least = state.settings.model.abilities.cache_seconds
    calls, highest, last = 0, 1, None
    for message in state.conversation.view[-RECENT_MESSAGES_MAX:]:
        calls = 0 if last is not None and message.at - last > least else calls
        calls += message.role == "assistant"
        highest, last = max(highest, calls), message.at
    return highest


def _is_affordable(state: State, tokens: int, seconds: float, stored: PromptStored | None) -> bool:
    """True if it fits into the remaining dollars, together with the worst case of the next call."""
    model = state.settings.model
    rates = model.price.rates(state.estimate.prompt_tokens, state.now) if model.price else None
    usd = storage_usd(rates, tokens, seconds, created=stored is None)
    for scope in limit_scopes(state):
        limit, spent = scope.limits.usd, scope.spent.usd
        if limit is not None and (usd is None or spent is None or spent + 2 * usd > limit):
            return False
    return True


def _current_stored_prompt(state: State) -> PromptStored | None:
    return state.cache.stored_prompt if isinstance(state.cache.stored_prompt, PromptStored) else None


def _is_storing_refused(state: State, head: str) -> bool:
    dropped, model_key = state.cache.stored_prompt, state.settings.model.model_key
    return isinstance(dropped, PromptDropped) and (dropped.model_key, dropped.prompt_head) == (
        model_key,
        head,
    )


def _explain_useless(state: State, stored: PromptStored, head: str) -> str:
    """Reason why a named prompt is useless now; empty if it is usable."""
    if state.run.refusals.server_state_lost:
        return "the provider has forgotten it"
    if stored.expires_at <= state.now:
        return "its lifetime ended"
    if stored.model_key != state.settings.model.model_key:
        return "another model is in use"
    if stored.prompt_head != head:
        return "tools or instructions have changed"
    return "" if state.settings.cache_by_name else "it is switched off"


def _head_digest(state: State, request: Request) -> str:
    """Digest of the prompt before the conversation; empty if nothing may be stored."""
    if not state.settings.cache_by_name and state.cache.stored_prompt is None:
        return ""
    tools = (text for spec in request.tools for text in (spec.name, spec.description, spec.parameters))
    hosted = (f"{spec.native} {spec.native_digest}" for spec in request.tools if spec.native is not None)
    return digest_lines((*tools, *hosted, *(text.text for text in request.system)))


def _apply_prompt_stored(state: State, event: PromptStored, at: float, proof: str) -> State:
    usage = Usage(input=event.tokens) if event.created else Usage()
    return replace(charge(state, usage, event.usd), cache=replace(state.cache, stored_prompt=event))


def _apply_prompt_dropped(state: State, event: PromptDropped, at: float, proof: str) -> State:
    return replace(state, cache=replace(state.cache, stored_prompt=event if event.prompt_head else None))


CACHE_TRANSITIONS: dict[tuple[Phase, type], Callable[..., State]] = {
    **{(phase, CacheDegraded): apply_cache_degraded for phase in Phase},
    **{
        (phase, PromptStored): _apply_prompt_stored for phase in (Phase.CALLING_MODEL, Phase.EVALUATING_REPLY)
    },
    **{
        (phase, PromptDropped): _apply_prompt_dropped
        for phase in (Phase.CALLING_MODEL, Phase.EVALUATING_REPLY)
    },
}
"""Phases in which these events may occur."""


CONVERSATION_STRATEGY = "conversation"
CONTENT_UNKNOWN = "a request to it was interrupted, so its content is unknown"
CONVERSATION_FORGOTTEN = "the provider no longer has it"
NOT_A_MESSAGE = "it contains a reply that is not part of the conversation"
VIEW_DIFFERS = "its content differs from what is sent"
SWITCHED_OFF = "conversation objects are switched off"
OTHER_MODEL = "another model is in use"


def plan_conversation(state: State) -> OpenConversation | DropConversation | None:
    """Action on the conversation object before the next request; None if there is none."""
    conversation, model_key = state.cache.server_conversation, state.settings.model.model_key
    if conversation is not None and conversation.name:
        why = _explain_unusable(state, conversation)
        return (
            DropConversation(conversation=conversation.name, model_key=conversation.model_key, why=why)
            if why
            else None
        )
    if state.settings.chain != CONVERSATION_STRATEGY or (
        conversation is not None and conversation.model_key == model_key
    ):
        return None
    return OpenConversation(model_key=model_key)


def _explain_unusable(state: State, conversation: ServerConversation) -> str:
    if state.settings.chain != CONVERSATION_STRATEGY:
        return SWITCHED_OFF
    if conversation.model_key != state.settings.model.model_key:
        return OTHER_MODEL
    if conversation.unusable_reason or conversation.in_flight:
        return conversation.unusable_reason or CONTENT_UNKNOWN
    return VIEW_DIFFERS if conversation.reply_id and conversation.reply_id != previous_reply_id(state) else ""


def mark_conversation_sent(state: State, event: e.ModelAsked) -> ServerConversation | None:
    conversation = state.cache.server_conversation
    return (
        replace(conversation, in_flight=True)
        if conversation is not None and event.conversation
        else conversation
    )


def mark_conversation_answered(state: State, reply: Reply) -> ServerConversation | None:
    conversation = state.cache.server_conversation
    if conversation is None or not conversation.in_flight:
        return conversation
    refused = reply.stop in (Stop.REFUSED, Stop.FILTERED)
    if (
        refused
        or not reply.id
        or not any(map(is_substantial, reply.parts))
        or not has_distinct_call_ids(reply.calls)
    ):
        return replace(conversation, in_flight=False, unusable_reason=NOT_A_MESSAGE)
    return replace(conversation, in_flight=False, reply_id=reply.id)


def classify_failure(state: State, failure: Failure) -> Failure:
    """The failure as it is handled: a rejection of provider-side state becomes `forgotten`.

    The provider's state may differ from the log, so everything is sent before a part is blamed.
    """
    names_parameter = failure.refused_parameter is not None
    refused = failure.kind == "invalid" and not names_parameter and relies_on_server_state(state)
    return replace(failure, kind="forgotten") if refused else failure


def mark_conversation_failed(
    state: State, event: e.ModelFailed, kind: FailureKind
) -> ServerConversation | None:
    conversation, failure = state.cache.server_conversation, event.failure
    if conversation is None or not conversation.in_flight:
        return conversation
    if kind == "forgotten":
        return replace(conversation, in_flight=False, unusable_reason=CONVERSATION_FORGOTTEN)
    # A rejected request was not added; an interrupted one may have been.
    refused = failure.status is not None and 400 <= failure.status < 500 and event.usage is None
    return replace(conversation, in_flight=False, unusable_reason="" if refused else CONTENT_UNKNOWN)


def allow_new_conversation(state: State) -> ServerConversation | None:
    """Conversation at the start of a run; an earlier failure to create one is forgotten."""
    conversation = state.cache.server_conversation
    return conversation if conversation is not None and conversation.name else None


def _apply_conversation_opened(state: State, event: e.ConversationOpened, at: float, proof: str) -> State:
    return replace(
        state,
        cache=replace(
            state.cache, server_conversation=ServerConversation(name=event.name, model_key=event.model_key)
        ),
    )


def _apply_conversation_dropped(state: State, event: e.ConversationDropped, at: float, proof: str) -> State:
    return replace(
        state,
        cache=replace(
            state.cache,
            server_conversation=None if event.name else ServerConversation(model_key=event.model_key),
        ),
    )


CONVERSATION_TRANSITIONS: dict[tuple[Phase, type], Callable[..., State]] = {
    **{
        (phase, e.ConversationOpened): _apply_conversation_opened
        for phase in (Phase.CALLING_MODEL, Phase.EVALUATING_REPLY)
    },
    **{
        (phase, e.ConversationDropped): _apply_conversation_dropped
        for phase in (Phase.CALLING_MODEL, Phase.EVALUATING_REPLY)
    },
}
"""Phases in which these events may occur."""

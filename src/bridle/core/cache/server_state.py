"""Whether to have the front of a prompt kept by name, which is paid for by the hour.

Where prompts are kept for nothing as well, reading costs the same either way.  So storage pays only for what
would have been forgotten: the call after a pause that is longer than the provider remembers unpaid, and
too short for storing to cost what reading anew does.  It is the front that is kept, tools and instructions;
by the careful reading nothing behind a named prompt is kept unpaid, so a conversation that grows over
many calls between two pauses loses more than it saves.  In dollars, for one pause:

    saved   front x (input - cache_read)                       the call after the pause reads it
    paid    front x storage x hours                            from now until then, with a margin
            front x cache_read                                 once, when it is made: it is read at once
            behind x (input - cache_read) x (calls - 1)        what is behind it, at every further call

Only when the first is more than the others together, only when every price is known, and only when
somebody switched it on (`Settings.cache_by_name`).  The next pause is taken to be as long as the longest.
"""

from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise

from msgspec.structs import replace

from bridle.core.budget.limits import add_spending, limit_scopes
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
STORED_SECONDS_MAX = 4 * HOUR_SECONDS
"""Nobody is waited for longer than this at the provider's."""
PAUSE_MARGIN = Decimal("1.25")
"""The next pause may be somewhat longer than the longest."""
MINIMUM_TOKENS_MARGIN = Decimal("1.2")
"""An estimate of tokens on the dear side has to be this much above the least that is kept."""


def plan_stored_prompt(state: State, request: Request) -> StorePrompt | DropPrompt | None:
    """What is to be done about the named prompt before this request is sent."""
    settings, kept = state.settings, _current_stored_prompt(state)
    now = _head_digest(state, request)
    if kept is not None and (why := _explain_useless(state, kept, now)):
        return DropPrompt(
            stored=kept, why=why, already_dropped=state.run.server_state_lost or kept.expires_at <= state.now
        )
    # Whoever has just forgotten one is not given another before it has answered.
    if not settings.cache_by_name or state.run.server_state_lost or _is_storing_refused(state, now):
        return None
    pause = expected_pause(settings, state.view)
    if pause is None:
        return None
    seconds = float(Decimal(pause) * PAUSE_MARGIN)
    if kept is not None and kept.expires_at >= state.now + pause:
        return None
    written = sum(estimate_text_tokens(text.text) for text in request.system)
    tokens = kept.tokens if kept else estimate_tool_tokens(request.tools) + written
    if not _is_worth_storing(state, tokens, seconds, kept) or not _is_affordable(
        state, tokens, seconds, kept
    ):
        return None
    return StorePrompt(request=request, seconds=seconds, prompt_head=now, stored=kept)


def stored_prompt_name(state: State, request: Request) -> str:
    """The name that stands for tools and instructions in the next request; none when they are sent.

    A choice of tools is refused beside a name.
    """
    kept = _current_stored_prompt(state)
    forced = request.tool_choice != ToolChoice()
    if kept is None or forced or _explain_useless(state, kept, _head_digest(state, request)):
        return ""
    return kept.name


def expected_pause(settings: Settings, view: tuple[Message, ...]) -> float | None:
    """The longest of late that outlasted what is kept unpaid; None when there was none."""
    times = [message.at for message in view[-RECENT_MESSAGES_MAX:]]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    least = settings.model.abilities.cache_seconds
    return max((pause for pause in pauses if least < pause <= STORED_SECONDS_MAX), default=None)


def storage_usd(rates: Rates | None, tokens: int, seconds: float, *, created: bool) -> Decimal | None:
    """What keeping so many tokens for so long costs; made anew, they are read as any prompt."""
    if rates is None or rates.storage is None:
        return None
    hours = Decimal(seconds) / HOUR_SECONDS
    return tokens * (rates.storage * hours + (rates.input if created else 0)) / MILLION


def _is_worth_storing(state: State, tokens: int, seconds: float, kept: PromptStored | None) -> bool:
    model = state.settings.model
    rates = model.price.rates(state.prompt_tokens, state.now) if model.price else None
    if rates is None or rates.storage is None or not model.abilities.cache_named:
        return False
    if kept is None and tokens < model.abilities.cache_minimum_tokens * MINIMUM_TOKENS_MARGIN:
        return False
    saved = tokens * (rates.input - rates.cache_read)
    again = kept.expires_at - state.now if kept else 0.0
    stored = tokens * rates.storage * Decimal(seconds - again) / HOUR_SECONDS
    read = Decimal(0) if kept else tokens * rates.cache_read
    behind = max(0, state.prompt_tokens - tokens)
    lost = behind * (rates.input - rates.cache_read) * (_calls_between_pauses(state) - 1)
    return saved > stored + read + lost


def _calls_between_pauses(state: State) -> int:
    """How many calls the busiest stretch without a long pause had, of late; at least one."""
    least = state.settings.model.abilities.cache_seconds
    calls, most, last = 0, 1, None
    for message in state.view[-RECENT_MESSAGES_MAX:]:
        calls = 0 if last is not None and message.at - last > least else calls
        calls += message.role == "assistant"
        most, last = max(most, calls), message.at
    return most


def _is_affordable(state: State, tokens: int, seconds: float, kept: PromptStored | None) -> bool:
    """Whether it fits into what is left in dollars, beside the worst case of the call that comes next."""
    model = state.settings.model
    rates = model.price.rates(state.prompt_tokens, state.now) if model.price else None
    usd = storage_usd(rates, tokens, seconds, created=kept is None)
    for scope in limit_scopes(state):
        limit, spent = scope.limits.usd, scope.spent.usd
        if limit is not None and (usd is None or spent is None or spent + 2 * usd > limit):
            return False
    return True


def _current_stored_prompt(state: State) -> PromptStored | None:
    return state.stored_prompt if isinstance(state.stored_prompt, PromptStored) else None


def _is_storing_refused(state: State, now: str) -> bool:
    named, seat = state.stored_prompt, state.settings.model.model_key
    return isinstance(named, PromptDropped) and (named.model_key, named.prompt_head) == (seat, now)


def _explain_useless(state: State, kept: PromptStored, now: str) -> str:
    """Why a named prompt is of no more use; empty when it is."""
    if state.run.server_state_lost:
        return "the provider has forgotten it"
    if kept.expires_at <= state.now:
        return "its time was up"
    if kept.model_key != state.settings.model.model_key:
        return "another model is asked"
    if kept.prompt_head != now:
        return "tools or instructions have changed"
    return "" if state.settings.cache_by_name else "it is switched off"


def _head_digest(state: State, request: Request) -> str:
    """Digest of what stands before the conversation; nobody asks for it unless something may be kept."""
    if not state.settings.cache_by_name and state.stored_prompt is None:
        return ""
    tools = (text for spec in request.tools for text in (spec.name, spec.description, spec.parameters))
    return digest_lines((*tools, *(text.text for text in request.system)))


def _apply_prompt_stored(state: State, event: PromptStored, at: float, proof: str) -> State:
    usage = Usage(input=event.tokens) if event.created else Usage()
    run = replace(state.run, spent=add_spending(state.run.spent, usage, event.usd))
    return replace(
        state, run=run, total_spent=add_spending(state.total_spent, usage, event.usd), stored_prompt=event
    )


def _apply_prompt_dropped(state: State, event: PromptDropped, at: float, proof: str) -> State:
    return replace(state, stored_prompt=event if event.prompt_head else None)


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
"""Where these may happen."""


# State kept by the provider as a conversation object: when one is made, used and dropped.
#
# An object grows by every request that names it, and by the reply.  So it is used only as long as the log
# proves what is in it: every request to it was answered by a reply that became a message, and nothing of what
# was sent has changed since.  A request that broke off may or may not have been added.  Then, and when the
# provider no longer has the object, it is dropped by an event, a new one is made, and the next request sends
# everything.  Where none can be made everything is sent every time.  The session's own log is always complete.


CONVERSATION_STRATEGY = "conversation"
CONTENT_UNKNOWN = "a request to it broke off, so what it holds is unknown"
CONVERSATION_FORGOTTEN = "the provider no longer has it"
NOT_A_MESSAGE = "it holds a reply that is not part of what is sent"
VIEW_DIFFERS = "what it holds is not what is sent any more"
SWITCHED_OFF = "conversation objects are switched off"
OTHER_MODEL = "another model is asked"


def plan_conversation(state: State) -> OpenConversation | DropConversation | None:
    """What is to be done about the object before the next request."""
    held, seat = state.server_conversation, state.settings.model.model_key
    if held is not None and held.name:
        why = _explain_unusable(state, held)
        return DropConversation(conversation=held.name, model_key=held.model_key, why=why) if why else None
    if state.settings.chain != CONVERSATION_STRATEGY or (held is not None and held.model_key == seat):
        return None
    return OpenConversation(model_key=seat)


def _explain_unusable(state: State, held: ServerConversation) -> str:
    if state.settings.chain != CONVERSATION_STRATEGY:
        return SWITCHED_OFF
    if held.model_key != state.settings.model.model_key:
        return OTHER_MODEL
    if held.unusable_reason or held.in_flight:
        return held.unusable_reason or CONTENT_UNKNOWN
    return VIEW_DIFFERS if held.reply_id and held.reply_id != previous_reply_id(state) else ""


def mark_conversation_sent(state: State, event: e.ModelAsked) -> ServerConversation | None:
    held = state.server_conversation
    return replace(held, in_flight=True) if held is not None and event.conversation else held


def mark_conversation_answered(state: State, reply: Reply) -> ServerConversation | None:
    held = state.server_conversation
    if held is None or not held.in_flight:
        return held
    refused = reply.stop in (Stop.REFUSED, Stop.FILTERED)
    if (
        refused
        or not reply.id
        or not any(map(is_substantial, reply.parts))
        or not has_distinct_call_ids(reply.calls)
    ):
        return replace(held, in_flight=False, unusable_reason=NOT_A_MESSAGE)
    return replace(held, in_flight=False, reply_id=reply.id)


def classify_failure(state: State, failure: Failure) -> Failure:
    """The failure as it is handled: a refusal of state that the provider holds means that it is not ours.

    What the provider holds may differ from the log, so everything is sent before anything is blamed.
    """
    known = failure.refused_parameter is not None
    refused = failure.kind == "invalid" and not known and relies_on_server_state(state)
    return replace(failure, kind="forgotten") if refused else failure


def mark_conversation_failed(
    state: State, event: e.ModelFailed, kind: FailureKind
) -> ServerConversation | None:
    held, failure = state.server_conversation, event.failure
    if held is None or not held.in_flight:
        return held
    if kind == "forgotten":
        return replace(held, in_flight=False, unusable_reason=CONVERSATION_FORGOTTEN)
    # What was refused was added to nothing; what was begun may have been.
    refused = failure.status is not None and 400 <= failure.status < 500 and event.usage is None
    return replace(held, in_flight=False, unusable_reason="" if refused else CONTENT_UNKNOWN)


def allow_new_conversation(state: State) -> ServerConversation | None:
    """A new run asks once more where none could be made before."""
    held = state.server_conversation
    return held if held is not None and held.name else None


def _apply_conversation_opened(state: State, event: e.ConversationOpened, at: float, proof: str) -> State:
    return replace(state, server_conversation=ServerConversation(name=event.name, model_key=event.model_key))


def _apply_conversation_dropped(state: State, event: e.ConversationDropped, at: float, proof: str) -> State:
    return replace(
        state, server_conversation=None if event.name else ServerConversation(model_key=event.model_key)
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
"""Where these may happen."""

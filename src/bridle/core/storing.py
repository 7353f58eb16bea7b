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

from ..values.cached import CacheDegraded, PromptDropped, PromptKept
from ..values.message import Message
from ..values.request import Request, ToolChoice
from ..values.settings import Settings
from ..values.usage import MILLION, Rates, Usage
from .alarms import cache_degraded
from .budget import plus
from .effects import DropPrompt, KeepPrompt
from .limits import scopes
from .locking import digest
from .marking import MESSAGES_LOOKED_AT
from .saying import text_tokens, tools_tokens
from .state import Phase, State

HOUR_SECONDS = 3_600
LONGEST_SECONDS = 4 * HOUR_SECONDS
"""Nobody is waited for longer than this at the provider's."""
MARGIN = Decimal("1.25")
"""The next pause may be somewhat longer than the longest."""
SURE = Decimal("1.2")
"""An estimate of tokens on the dear side has to be this much above the least that is kept."""


def storing(state: State, request: Request) -> KeepPrompt | DropPrompt | None:
    """What is to be done about the named prompt before this request is sent."""
    settings, kept = state.settings, _kept(state)
    now = _front(state, request)
    if kept is not None and (why := _useless(state, kept, now)):
        return DropPrompt(kept=kept, why=why, gone=state.run.unchained or kept.until <= state.now)
    # Whoever has just forgotten one is not given another before it has answered.
    if not settings.cache_by_name or state.run.unchained or _refused(state, now):
        return None
    pause = expected_pause(settings, state.view)
    if pause is None:
        return None
    seconds = float(Decimal(pause) * MARGIN)
    if kept is not None and kept.until >= state.now + pause:
        return None
    written = sum(text_tokens(text.text) for text in request.system)
    tokens = kept.tokens if kept else tools_tokens(request.tools) + written
    if not _pays(state, tokens, seconds, kept) or not _affordable(state, tokens, seconds, kept):
        return None
    return KeepPrompt(request=request, seconds=seconds, front=now, kept=kept)


def kept_as(state: State, request: Request) -> str:
    """The name that stands for tools and instructions in the next request; none when they are sent.

    A choice of tools is refused beside a name.
    """
    kept = _kept(state)
    forced = request.tool_choice != ToolChoice()
    if kept is None or forced or _useless(state, kept, _front(state, request)):
        return ""
    return kept.name


def expected_pause(settings: Settings, view: tuple[Message, ...]) -> float | None:
    """The longest of late that outlasted what is kept unpaid; None when there was none."""
    times = [message.at for message in view[-MESSAGES_LOOKED_AT:]]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    least = settings.model.abilities.cache_seconds
    return max((pause for pause in pauses if least < pause <= LONGEST_SECONDS), default=None)


def storage_usd(rates: Rates | None, tokens: int, seconds: float, *, created: bool) -> Decimal | None:
    """What keeping so many tokens for so long costs; made anew, they are read as any prompt."""
    if rates is None or rates.storage is None:
        return None
    hours = Decimal(seconds) / HOUR_SECONDS
    return tokens * (rates.storage * hours + (rates.input if created else 0)) / MILLION


def _pays(state: State, tokens: int, seconds: float, kept: PromptKept | None) -> bool:
    model = state.settings.model
    rates = model.price.rates(state.prompt_tokens, state.now) if model.price else None
    if rates is None or rates.storage is None or not model.abilities.cache_named:
        return False
    if kept is None and tokens < model.abilities.cache_minimum_tokens * SURE:
        return False
    saved = tokens * (rates.input - rates.cache_read)
    again = kept.until - state.now if kept else 0.0
    stored = tokens * rates.storage * Decimal(seconds - again) / HOUR_SECONDS
    read = Decimal(0) if kept else tokens * rates.cache_read
    behind = max(0, state.prompt_tokens - tokens)
    lost = behind * (rates.input - rates.cache_read) * (_calls_between_pauses(state) - 1)
    return saved > stored + read + lost


def _calls_between_pauses(state: State) -> int:
    """How many calls the busiest stretch without a long pause had, of late; at least one."""
    least = state.settings.model.abilities.cache_seconds
    calls, most, last = 0, 1, None
    for message in state.view[-MESSAGES_LOOKED_AT:]:
        calls = 0 if last is not None and message.at - last > least else calls
        calls += message.role == "assistant"
        most, last = max(most, calls), message.at
    return most


def _affordable(state: State, tokens: int, seconds: float, kept: PromptKept | None) -> bool:
    """Whether it fits into what is left in dollars, beside the worst case of the call that comes next."""
    model = state.settings.model
    rates = model.price.rates(state.prompt_tokens, state.now) if model.price else None
    usd = storage_usd(rates, tokens, seconds, created=kept is None)
    for scope in scopes(state):
        limit, spent = scope.limits.usd, scope.spent.usd
        if limit is not None and (usd is None or spent is None or spent + 2 * usd > limit):
            return False
    return True


def _kept(state: State) -> PromptKept | None:
    return state.named if isinstance(state.named, PromptKept) else None


def _refused(state: State, now: str) -> bool:
    named, seat = state.named, state.settings.model.seat
    return isinstance(named, PromptDropped) and (named.seat, named.front) == (seat, now)


def _useless(state: State, kept: PromptKept, now: str) -> str:
    """Why a named prompt is of no more use; empty when it is."""
    if state.run.unchained:
        return "the provider has forgotten it"
    if kept.until <= state.now:
        return "its time was up"
    if kept.seat != state.settings.model.seat:
        return "another model is asked"
    if kept.front != now:
        return "tools or instructions have changed"
    return "" if state.settings.cache_by_name else "it is switched off"


def _front(state: State, request: Request) -> str:
    """Digest of what stands before the conversation; nobody asks for it unless something may be kept."""
    if not state.settings.cache_by_name and state.named is None:
        return ""
    tools = (text for spec in request.tools for text in (spec.name, spec.description, spec.parameters))
    return digest((*tools, *(text.text for text in request.system)))


def _prompt_kept(state: State, event: PromptKept, at: float, proof: str) -> State:
    usage = Usage(input=event.tokens) if event.created else Usage()
    run = replace(state.run, spent=plus(state.run.spent, usage, event.usd))
    return replace(state, run=run, total=plus(state.total, usage, event.usd), named=event)


def _prompt_dropped(state: State, event: PromptDropped, at: float, proof: str) -> State:
    return replace(state, named=event if event.front else None)


CACHED: dict[tuple[Phase, type], Callable[..., State]] = {
    **{(phase, CacheDegraded): cache_degraded for phase in Phase},
    **{(phase, PromptKept): _prompt_kept for phase in (Phase.ASKING, Phase.JUDGING)},
    **{(phase, PromptDropped): _prompt_dropped for phase in (Phase.ASKING, Phase.JUDGING)},
}
"""Where these may happen."""

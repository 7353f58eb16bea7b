"""Prompts that a provider keeps by name: have one made, kept for longer, or dropped, and write it down.

None of it may break a run.  What the provider refuses is recorded with its reason and not tried again;
the request then goes out whole, as it would have without.
"""

from collections.abc import Awaitable, Callable, Mapping

from ..core.effects import DropPrompt, KeepPrompt
from ..core.state import State
from ..core.storing import storage_usd
from ..ports.clock import Clock
from ..ports.codec import HttpRequest
from ..ports.prompts import Named, PromptKeeping
from ..values.cached import PromptDropped, PromptKept
from ..values.errors import ProviderError
from ..values.event import Event
from .line import Line
from .reserving import Purses
from .sending import send

Write = Callable[[Event], Awaitable[None]]
SHARED = "a shared budget sets nothing aside for storage"
UNABLE = "this endpoint keeps nothing by name"
LABEL = "bridle"


async def store_prompt(
    effect: KeepPrompt | DropPrompt,
    lines: Mapping[str, Line],
    state: State,
    clock: Clock,
    write: Write,
    purses: Purses,
) -> None:
    line, shared = lines[state.settings.model.seat], bool(purses.sources(state))
    codec = line.codec
    if not isinstance(codec, PromptKeeping) or shared:
        await write(_dropped(effect, line, SHARED if shared else UNABLE))
        return
    try:
        if isinstance(effect, DropPrompt):
            if not effect.gone:
                await _sent(codec, line, codec.drop_prompt(effect.kept.name), clock.now())
            await write(_dropped(effect, line, effect.why))
        else:
            await write(await _kept(effect, codec, line, clock))
    except ProviderError as error:
        await write(_dropped(effect, line, error.failure.message))


async def _kept(effect: KeepPrompt, codec: PromptKeeping, line: Line, clock: Clock) -> PromptKept:
    began, kept, model = clock.now(), effect.kept, line.model
    if kept is None:
        named = await _sent(codec, line, codec.keep_prompt(effect.request, effect.seconds, LABEL), began)
        paid_seconds = effect.seconds
    else:
        named = await _sent(codec, line, codec.keep_longer(kept.name, effect.seconds), began)
        paid_seconds = effect.seconds - max(0.0, kept.until - began)
    tokens = named.tokens or (kept.tokens if kept else 0)
    rates = model.price.rates(tokens, began) if model.price else None
    return PromptKept(
        name=named.name or (kept.name if kept else ""),
        seat=model.seat,
        front=effect.front,
        tokens=tokens,
        seconds=effect.seconds,
        until=began + effect.seconds,
        created=kept is None,
        usd=storage_usd(rates, tokens, paid_seconds, created=kept is None),
    )


def _dropped(effect: KeepPrompt | DropPrompt, line: Line, why: str) -> PromptDropped:
    kept = effect.kept
    # What could not be made is not tried again; what was there and is not needed may be made again.
    lasting = isinstance(effect, KeepPrompt)
    return PromptDropped(
        name=kept.name if kept else "",
        why=why,
        seat=line.model.seat if lasting else "",
        front=effect.front if isinstance(effect, KeepPrompt) else "",
    )


async def _sent(codec: PromptKeeping, line: Line, wanted: HttpRequest, now: float) -> Named:
    return codec.named(*await send(line, wanted, now))

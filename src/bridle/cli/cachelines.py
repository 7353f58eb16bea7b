"""What happened to a provider's cache, each in a line of a session's story."""

from ..values.cached import CacheDegraded, CacheEvent, PrefixMoved, PromptDropped, PromptKept
from ..watchers.console import dollars, duration


def cache_line(event: CacheEvent) -> tuple[str, str]:
    """What it is called, and what there is to say of it."""
    match event:
        case PrefixMoved(layer=layer, block=block, why=why, anew_tokens=anew):
            return "prefix", f"moved: {layer}, from {block} on: {why} (up to {anew} tokens read anew)"
        case CacheDegraded():
            return "cache", _degraded(event)
        case PromptKept():
            return "cache", _stored(event)
        case PromptDropped(name=name, why=why):
            return "cache", f"{name} is kept no longer: {why}" if name else f"nothing is stored: {why}"


def _stored(kept: PromptKept) -> str:
    usd = dollars(None if kept.usd is None else float(kept.usd))
    how = "are kept" if kept.created else "stay kept"
    return f"{kept.tokens:,} tokens {how} as {kept.name} for {duration(kept.seconds)} ({usd})"


def _degraded(alarm: CacheDegraded) -> str:
    before = "" if alarm.rate_before is None else f", {alarm.rate_before:.0%} before"
    why = f"{alarm.verdict} ({alarm.why})" if alarm.why else alarm.verdict
    lost = dollars(None if alarm.usd is None else float(alarm.usd))
    return (
        f"hit rate {alarm.rate:.0%} over {alarm.calls} calls{before}: {why};"
        f" {alarm.missed_tokens:,} tokens missed, {lost}"
    )

"""Hits and misses, as those servers of Chat Completions count them that tell both."""

from bridle.sim.cache.cache_report import CacheReport, CacheReporter, Message


def report_cache_use(message: Message, told: CacheReport) -> Message | None:
    usage = message.get("usage")
    if told.cache_mode != "hits" or not isinstance(usage, dict):
        return None
    hit = told.usage.cache_read
    counts = {"prompt_cache_hit_tokens": hit, "prompt_cache_miss_tokens": told.usage.prompt - hit}
    return {**message, "usage": {**usage, **counts}}


CACHE_REPORTER = CacheReporter(add_report=report_cache_use)

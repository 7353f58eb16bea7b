"""Cache report of the Chat Completions servers that count both hits and misses."""

from bridle.sim.cache.cache_report import CacheReport, CacheReporter, Message


def report_cache_use(message: Message, report: CacheReport) -> Message | None:
    usage = message.get("usage")
    if report.cache_mode != "hits" or not isinstance(usage, dict):
        return None
    hit = report.usage.cache_read
    counts = {"prompt_cache_hit_tokens": hit, "prompt_cache_miss_tokens": report.usage.prompt - hit}
    return {**message, "usage": {**usage, **counts}}


CACHE_REPORTER = CacheReporter(add_report=report_cache_use)

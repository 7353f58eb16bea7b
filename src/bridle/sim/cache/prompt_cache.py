"""The simulated prompt cache: finds the cached prefix of a prompt and stores new ones.

A prompt is a chain of blocks (`prompt_layout.py`). Each block has a hash of everything up to and including
it, so a change anywhere changes the hashes of all later blocks, and a setting that invalidates a section
changes its hashes from the start. The cache maps hashes to expiry times; it never holds a text.

The model's abilities select one of three cache modes:

    marks    at blocks marked by the request; a mark looks back over a few positions
    points   at blocks marked by the request, and at the end of the newest input
    prefix   everywhere, at a fixed step in tokens (at block ends if no step is known);
             `hits` is the same, reported in other fields

Reading an entry or writing it again renews it, for the lifetime it was written with. Prefixes shorter than
the model's minimum are never stored. The caller supplies the time; the lifetime of an entry starts with its
request.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b

from bridle.values.base import Value
from bridle.values.model import Abilities
from bridle.values.usage import Usage

from .prompt_layout import SECTIONS, PromptBlock, PromptText
from .token_estimate import TOKEN_PATTERN

ENTRIES_MAX = 500_000
"""Some tens of megabytes. The least recently used entries are dropped first."""
STEPS_REMEMBERED_MAX = 20_000
LOOKBACK_POSITIONS = 20
"""Number of positions that a mark looks back over, itself included."""
WRITES_MAX = 4
"""Number of points that one request can store."""
POINTS_FIRST, POINTS_LATEST, ENDS_LATEST = 2, 50, 20
"""Numbers of explicit points and of earlier ends that are looked up."""
LONG_SECONDS = 3_600
"""Entries with at least this lifetime are billed separately."""
DURATION_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

PrefixHash = bytes


class PrefixPoint(Value, kw_only=True):
    """A point where a prompt can be split: the hash and length of the prefix up to there."""

    hash: PrefixHash
    tokens: int


class CacheEntry(Value, kw_only=True):
    expires_at: float
    lifetime_seconds: float


class CachePlan(Value, kw_only=True):
    """The lookups and writes of one request."""

    searches: tuple[tuple[PrefixPoint, ...], ...]
    """Each search stops at the first hit."""
    writes: tuple[tuple[PrefixPoint, float], ...]
    """Points to store, in prompt order, with their lifetimes in seconds."""
    is_free: bool = False
    """True if writing is free. Then it is not reported, and every request sets its own lifetime."""


class SimulatedPromptCache:
    def __init__(self) -> None:
        self._entries: dict[PrefixHash, CacheEntry] = {}
        self._steps = StepPoints()

    def measure_usage(self, layout: "PromptLayout", now: float) -> Usage:
        """Return the uncached, read and written tokens of the prompt. Stores nothing."""
        total, plan = layout.prompt.tokens, self._make_plan(layout)
        found = (self._find_hit(search, now) for search in plan.searches)
        read = max((point.tokens for point in found if point), default=0)
        if plan.is_free:
            return Usage(input=total - read, cache_read=read)
        end, long = read, 0
        for point, seconds in plan.writes:
            new = max(0, point.tokens - end)
            end += new
            long += new if seconds >= LONG_SECONDS else 0
        return Usage(input=total - end, cache_read=read, cache_write=end - read, cache_write_1h=long)

    def write_entries(self, layout: "PromptLayout", now: float) -> None:
        """Renew the entries that were read, and store the new ones."""
        plan = self._make_plan(layout)
        for search in plan.searches if not plan.is_free else ():
            if point := self._find_hit(search, now):
                self._write_entry(point.hash, self._entries[point.hash].lifetime_seconds, now)
        for point, seconds in plan.writes:
            self._write_entry(point.hash, seconds, now, extend=plan.is_free)
        self._evict_entries(now)

    def _make_plan(self, layout: "PromptLayout") -> CachePlan:
        plan = CACHE_PLANNERS.get(layout.abilities.cache)
        if plan is None or layout.prompt.tokens < layout.abilities.cache_minimum_tokens:
            return CachePlan(searches=(), writes=())
        return plan(layout, self._steps)

    def _find_hit(self, search: Sequence[PrefixPoint], now: float) -> PrefixPoint | None:
        for point in search:
            entry = self._entries.get(point.hash)
            if entry is not None and entry.expires_at > now:
                return point
        return None

    def _write_entry(self, name: PrefixHash, seconds: float, now: float, *, extend: bool = False) -> None:
        """Renew an entry for the lifetime of its writer, or for the new lifetime if writing is free."""
        entry = self._entries.pop(name, None)
        expires_at = now + seconds
        if entry is not None and entry.expires_at > now:
            seconds = seconds if extend else entry.lifetime_seconds
            expires_at = max(entry.expires_at, now + seconds)
        self._entries[name] = CacheEntry(expires_at=expires_at, lifetime_seconds=seconds)

    def _evict_entries(self, now: float) -> None:
        if len(self._entries) > ENTRIES_MAX:
            alive = [(name, entry) for name, entry in self._entries.items() if entry.expires_at > now]
            self._entries = dict(alive[-ENTRIES_MAX // 2 :])


class PromptLayout:
    """A prompt with a hash and a length after every block."""

    def __init__(self, prompt: PromptText, account: str, abilities: Abilities, model: str = "") -> None:
        """Compute the hashes. They include the account and the model, which never share entries."""
        self.prompt, self.account, self.abilities, self.model = prompt, account, abilities, model
        self.blocks = prompt.blocks
        self.prefix_points: list[PrefixPoint] = []
        self.block_origins: list[PrefixHash] = []
        """For each block, the hash of everything before its text."""
        name, tokens, section = _hash_parts(account.encode(), model.encode()), 0, -1
        for block in self.blocks:
            while section < SECTIONS.index(block.section):
                section += 1
                name = _hash_parts(name, prompt.cache_salts.get(SECTIONS[section], "").encode())
            origin = _hash_parts(
                name, f"{block.kind} {block.overhead_tokens} {block.key}".encode("utf-8", "surrogatepass")
            )
            self.block_origins.append(origin)
            name = _hash_parts(origin, block.text.encode("utf-8", "surrogatepass"))
            tokens += block.tokens
            self.prefix_points.append(PrefixPoint(hash=name, tokens=tokens))

    def is_cacheable(self, point: PrefixPoint) -> bool:
        return point.tokens >= max(1, self.abilities.cache_minimum_tokens)

    def make_plan(self, searches: Sequence[Sequence[int]], writes: Sequence[tuple[int, float]]) -> CachePlan:
        """Convert block numbers to points, without those too short to be stored."""
        return CachePlan(
            searches=tuple(
                tuple(
                    self.prefix_points[number]
                    for number in search
                    if self.is_cacheable(self.prefix_points[number])
                )
                for search in searches
            ),
            writes=tuple(
                (self.prefix_points[number], seconds)
                for number, seconds in writes
                if self.is_cacheable(self.prefix_points[number])
            ),
        )


def _plan_by_marks(layout: PromptLayout, _: "StepPoints") -> CachePlan:
    marked = [number for number, block in enumerate(layout.blocks) if block.breakpoint_ttl][-WRITES_MAX:]
    searches = [list(_lookback_blocks(layout.blocks, number)) for number in marked]
    return layout.make_plan(
        searches, [(number, parse_duration(layout.blocks[number].breakpoint_ttl)) for number in marked]
    )


def _lookback_blocks(blocks: Sequence[PromptBlock], number: int) -> Iterator[int]:
    earliest = blocks[number].position - LOOKBACK_POSITIONS
    while number >= 0 and blocks[number].position > earliest:
        yield number
        number -= 1


def _plan_by_points(layout: PromptLayout, _: "StepPoints") -> CachePlan:
    prompt, blocks = layout.prompt, layout.blocks
    explicit = [number for number, block in enumerate(blocks) if block.breakpoint_ttl]
    ends = (
        [number for number, block in enumerate(blocks) if block.is_implicit_breakpoint]
        if prompt.allows_implicit_cache
        else []
    )
    implicit = {end: parse_duration(prompt.retention) or layout.abilities.cache_seconds for end in ends[-1:]}
    explicit_writes = {
        number: parse_duration(blocks[number].breakpoint_ttl)
        for number in explicit[-(WRITES_MAX - len(implicit)) :]
    }
    looked_up = {*explicit[:POINTS_FIRST], *explicit[-POINTS_LATEST:], *ends[-(ENDS_LATEST + 1) :]}
    return layout.make_plan(
        [sorted(looked_up, reverse=True)], sorted({**implicit, **explicit_writes}.items())
    )


def _plan_by_prefix(layout: PromptLayout, steps: "StepPoints") -> CachePlan:
    abilities = layout.abilities
    seconds = parse_duration(layout.prompt.retention) or abilities.cache_seconds
    points = layout.prefix_points
    if abilities.cache_step_tokens:
        points = steps.points_of(layout)
    cacheable = [point for point in points if layout.is_cacheable(point)]
    return CachePlan(
        searches=(tuple(reversed(cacheable)),),
        writes=tuple((point, seconds) for point in cacheable),
        is_free=True,
    )


CACHE_PLANNERS: Mapping[str, Callable[[PromptLayout, "StepPoints"], CachePlan]] = {
    "marks": _plan_by_marks,
    "points": _plan_by_points,
    "prefix": _plan_by_prefix,
    "hits": _plan_by_prefix,
}


class StepPoints:
    """Points at a fixed step in tokens, independent of block ends.

    A point inside a block is hashed from the text before it. Blocks that were split before are remembered by
    hash, so only the new part of a longer prompt is split.
    """

    def __init__(self) -> None:
        self._known_points: dict[tuple[PrefixHash, int], list[PrefixPoint]] = {}

    def points_of(self, layout: PromptLayout) -> list[PrefixPoint]:
        step = layout.abilities.cache_step_tokens
        found: list[PrefixPoint] = []
        begin = 0
        for block, origin, after in zip(
            layout.blocks, layout.block_origins, layout.prefix_points, strict=True
        ):
            if begin // step != after.tokens // step:
                key = (after.hash, step)
                if key not in self._known_points:
                    if len(self._known_points) >= STEPS_REMEMBERED_MAX:
                        self._known_points.clear()
                    self._known_points[key] = list(_cut_block(block, origin, begin, after.tokens, step))
                found += self._known_points[key]
            begin = after.tokens
        return found


def _cut_block(
    block: PromptBlock, origin: PrefixHash, begin: int, end: int, step: int
) -> Iterator[PrefixPoint]:
    ends = [piece.end() for piece in TOKEN_PATTERN.finditer(block.text)]
    digest, done = blake2b(origin, digest_size=16), 0
    for tokens in range((begin // step + 1) * step, end + 1, step):
        inside = tokens - begin - block.overhead_tokens
        upto = ends[inside - 1] if inside > 0 else 0
        # The hash is updated in steps: hashing every prefix from the start takes minutes for a long text.
        digest.update(block.text[done:upto].encode("utf-8", "surrogatepass"))
        done = upto
        yield PrefixPoint(hash=digest.copy().digest(), tokens=tokens)


def _hash_parts(*parts: bytes) -> PrefixHash:
    """Hash parts in order, with their lengths, so that different splits give different hashes."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def parse_duration(duration: str) -> float:
    """Convert `5m` to seconds; 0 for anything that is not a duration."""
    number, unit = duration[:-1], duration[-1:]
    return float(number) * DURATION_UNITS[unit] if number.isdigit() and unit in DURATION_UNITS else 0.0

"""The prompt cache of a simulated provider: what of a prompt was there before, and what is kept of it.

A prompt is a chain of blocks (prompt.py).  Each block has a name made of everything up
to and including it, so a change anywhere gives all later blocks other names, and a
setting that spoils a section gives the section another name from its start.  The cache
knows names and until when they are kept; it never holds a text.

How a provider keeps prompts is one of three ways, and the model's abilities say which:

    marks    where the request marked a block; a mark looks back over a few positions
    points   where the request says, and at the end of the newest thing said to the model
    prefix   everywhere, every so many tokens (at block ends when no step is known);
             `hits` is the same, told in other words

Reading keeps alive what was read, and so does asking to keep what is kept already.  It
is kept for as long as was asked when it was written.  What ends before the model's
minimum is never kept, so short prompts leave no trace here.  Time is given; the life of
an entry starts when its request does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b

from bridle.values.base import Value
from bridle.values.model import Abilities
from bridle.values.usage import Usage

from .prompt_layout import SECTIONS, PromptBlock, PromptText
from .token_estimate import TOKEN_PATTERN

ENTRIES_MAX = 500_000
"""Some tens of megabytes.  What was not used for longest is forgotten first."""
STEPS_REMEMBERED_MAX = 20_000
LOOKBACK_POSITIONS = 20
"""How far a mark looks back, itself included."""
WRITES_MAX = 4
"""How many places one request can have kept."""
POINTS_FIRST, POINTS_LATEST, ENDS_LATEST = 2, 50, 20
"""Which explicit points, and how many earlier ends, are looked up."""
LONG_SECONDS = 3_600
"""What is kept this long is billed apart."""
DURATION_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

PrefixHash = bytes


class PrefixPoint(Value):
    """Somewhere a prompt can be cut: what it is called up to there, and how long it is."""

    hash: PrefixHash
    tokens: int


class CacheEntry(Value):
    expires_at: float
    lifetime_seconds: float


class CachePlan(Value):
    """What one request wants of the cache."""

    searches: tuple[tuple[PrefixPoint, ...], ...]
    """Each is gone through until something is found."""
    writes: tuple[tuple[PrefixPoint, float], ...]
    """Where to keep, in the order of the prompt, and for how many seconds."""
    is_free: bool = False
    """Whether keeping costs nothing.  Then nobody is told, and each request keeps it as long as it says."""


class SimulatedPromptCache:
    def __init__(self) -> None:
        self._entries: dict[PrefixHash, CacheEntry] = {}
        self._steps = StepPoints()

    def charge_prompt(self, layout: "PromptLayout", now: float) -> Usage:
        """What the prompt costs, and what it wrote is there from now on."""
        usage = self.measure_usage(layout, now)
        self.write_entries(layout, now)
        return usage

    def measure_usage(self, layout: "PromptLayout", now: float) -> Usage:
        """What the prompt costs: fresh, read and written tokens.  Nothing is kept by asking."""
        total, wish = layout.prompt.tokens, self._make_plan(layout)
        found = (self._find_hit(search, now) for search in wish.searches)
        read = max((place.tokens for place in found if place), default=0)
        if wish.is_free:
            return Usage(input=total - read, cache_read=read)
        end, long = read, 0
        for place, seconds in wish.writes:
            new = max(0, place.tokens - end)
            end += new
            long += new if seconds >= LONG_SECONDS else 0
        return Usage(input=total - end, cache_read=read, cache_write=end - read, cache_write_1h=long)

    def write_entries(self, layout: "PromptLayout", now: float) -> None:
        """What was read is kept on, what was to be written is kept."""
        wish = self._make_plan(layout)
        for search in wish.searches if not wish.is_free else ():
            if place := self._find_hit(search, now):
                self._write_entry(place.hash, self._entries[place.hash].lifetime_seconds, now)
        for place, seconds in wish.writes:
            self._write_entry(place.hash, seconds, now, extend=wish.is_free)
        self._evict_entries(now)

    def _make_plan(self, layout: "PromptLayout") -> CachePlan:
        plan = CACHE_PLANNERS.get(layout.abilities.cache)
        if plan is None or layout.prompt.tokens < layout.abilities.cache_minimum_tokens:
            return CachePlan(searches=(), writes=())
        return plan(layout, self._steps)

    def _find_hit(self, search: Sequence[PrefixPoint], now: float) -> PrefixPoint | None:
        for place in search:
            kept = self._entries.get(place.hash)
            if kept is not None and kept.expires_at > now:
                return place
        return None

    def _write_entry(self, name: PrefixHash, seconds: float, now: float, *, extend: bool = False) -> None:
        """What is kept already is kept on for as long as its writer paid for, or was told for nothing."""
        kept = self._entries.pop(name, None)
        until = now + seconds
        if kept is not None and kept.expires_at > now:
            seconds = seconds if extend else kept.lifetime_seconds
            until = max(kept.expires_at, now + seconds)
        self._entries[name] = CacheEntry(expires_at=until, lifetime_seconds=seconds)

    def _evict_entries(self, now: float) -> None:
        if len(self._entries) > ENTRIES_MAX:
            alive = [(name, kept) for name, kept in self._entries.items() if kept.expires_at > now]
            self._entries = dict(alive[-ENTRIES_MAX // 2 :])


class PromptLayout:
    """A prompt with a name and a length after every block."""

    def __init__(self, prompt: PromptText, account: str, abilities: Abilities, model: str = "") -> None:
        """Nobody reads another account's cache, and no model another's."""
        self.prompt, self.account, self.abilities, self.model = prompt, account, abilities, model
        self.blocks = prompt.blocks
        self.prefix_points: list[PrefixPoint] = []
        self.block_origins: list[PrefixHash] = []
        """By block: the name of everything before its text."""
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

    def is_cacheable(self, place: PrefixPoint) -> bool:
        return place.tokens >= max(1, self.abilities.cache_minimum_tokens)

    def make_plan(self, searches: Sequence[Sequence[int]], writes: Sequence[tuple[int, float]]) -> CachePlan:
        """From numbers of blocks to places, without those that are too short to be kept."""
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
    own = {end: parse_duration(prompt.retention) or layout.abilities.cache_seconds for end in ends[-1:]}
    stated = {
        number: parse_duration(blocks[number].breakpoint_ttl)
        for number in explicit[-(WRITES_MAX - len(own)) :]
    }
    looked_up = {*explicit[:POINTS_FIRST], *explicit[-POINTS_LATEST:], *ends[-(ENDS_LATEST + 1) :]}
    return layout.make_plan([sorted(looked_up, reverse=True)], sorted({**own, **stated}.items()))


def _plan_by_prefix(layout: PromptLayout, steps: "StepPoints") -> CachePlan:
    abilities = layout.abilities
    seconds = parse_duration(layout.prompt.retention) or abilities.cache_seconds
    places = layout.prefix_points
    if abilities.cache_step_tokens:
        places = steps.points_of(layout)
    kept = [place for place in places if layout.is_cacheable(place)]
    return CachePlan(
        searches=(tuple(reversed(kept)),), writes=tuple((place, seconds) for place in kept), is_free=True
    )


CACHE_PLANNERS: Mapping[str, Callable[[PromptLayout, "StepPoints"], CachePlan]] = {
    "marks": _plan_by_marks,
    "points": _plan_by_points,
    "prefix": _plan_by_prefix,
    "hits": _plan_by_prefix,
}


class StepPoints:
    """Places every so many tokens, wherever blocks end.

    A place inside a block is named by what of its text comes before it.  Blocks that were
    cut before are remembered by name, so a prompt that grew is cut only where it grew.
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
    name, done = blake2b(origin, digest_size=16), 0
    for tokens in range((begin // step + 1) * step, end + 1, step):
        inside = tokens - begin - block.overhead_tokens
        upto = ends[inside - 1] if inside > 0 else 0
        # Word by word: to name every place from the start takes minutes for a long text.
        name.update(block.text[done:upto].encode("utf-8", "surrogatepass"))
        done = upto
        yield PrefixPoint(hash=name.copy().digest(), tokens=tokens)


def _hash_parts(*parts: bytes) -> PrefixHash:
    """One name for parts in order; their lengths go in, so that no two orders of parts look alike."""
    name = blake2b(digest_size=16)
    for part in parts:
        name.update(len(part).to_bytes(8, "big"))
        name.update(part)
    return name.digest()


def parse_duration(duration: str) -> float:
    """`5m` in seconds; nought for what is no duration."""
    number, unit = duration[:-1], duration[-1:]
    return float(number) * DURATION_UNITS[unit] if number.isdigit() and unit in DURATION_UNITS else 0.0

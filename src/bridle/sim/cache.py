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

from ..values.model import Abilities
from ..values.usage import Usage
from ..values.value import Value
from .prompt import SECTIONS, Block, Prompt
from .tokens import PIECE

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
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

Name = bytes


class Place(Value):
    """Somewhere a prompt can be cut: what it is called up to there, and how long it is."""

    name: Name
    tokens: int


class Kept(Value):
    until: float
    seconds: float


class Wish(Value):
    """What one request wants of the cache."""

    searches: tuple[tuple[Place, ...], ...]
    """Each is gone through until something is found."""
    writes: tuple[tuple[Place, float], ...]
    """Where to keep, in the order of the prompt, and for how many seconds."""
    free: bool = False
    """Whether keeping costs nothing.  Then nobody is told, and each request keeps it as long as it says."""


class Cache:
    def __init__(self) -> None:
        self._kept: dict[Name, Kept] = {}
        self._steps = Steps()

    def account(self, layout: "Layout", now: float) -> Usage:
        """What the prompt costs, and what it wrote is there from now on."""
        usage = self.weighed(layout, now)
        self.keep(layout, now)
        return usage

    def weighed(self, layout: "Layout", now: float) -> Usage:
        """What the prompt costs: fresh, read and written tokens.  Nothing is kept by asking."""
        total, wish = layout.prompt.tokens, self._wish(layout)
        found = (self._found(search, now) for search in wish.searches)
        read = max((place.tokens for place in found if place), default=0)
        if wish.free:
            return Usage(input=total - read, cache_read=read)
        end, long = read, 0
        for place, seconds in wish.writes:
            new = max(0, place.tokens - end)
            end += new
            long += new if seconds >= LONG_SECONDS else 0
        return Usage(input=total - end, cache_read=read, cache_write=end - read, cache_write_1h=long)

    def keep(self, layout: "Layout", now: float) -> None:
        """What was read is kept on, what was to be written is kept."""
        wish = self._wish(layout)
        for search in wish.searches if not wish.free else ():
            if place := self._found(search, now):
                self._keep(place.name, self._kept[place.name].seconds, now)
        for place, seconds in wish.writes:
            self._keep(place.name, seconds, now, extend=wish.free)
        self._forget(now)

    def _wish(self, layout: "Layout") -> Wish:
        plan = WAYS.get(layout.abilities.cache)
        if plan is None or layout.prompt.tokens < layout.abilities.cache_minimum_tokens:
            return Wish(searches=(), writes=())
        return plan(layout, self._steps)

    def _found(self, search: Sequence[Place], now: float) -> Place | None:
        for place in search:
            kept = self._kept.get(place.name)
            if kept is not None and kept.until > now:
                return place
        return None

    def _keep(self, name: Name, seconds: float, now: float, *, extend: bool = False) -> None:
        """What is kept already is kept on for as long as its writer paid for, or was told for nothing."""
        kept = self._kept.pop(name, None)
        until = now + seconds
        if kept is not None and kept.until > now:
            seconds = seconds if extend else kept.seconds
            until = max(kept.until, now + seconds)
        self._kept[name] = Kept(until=until, seconds=seconds)

    def _forget(self, now: float) -> None:
        if len(self._kept) > ENTRIES_MAX:
            alive = [(name, kept) for name, kept in self._kept.items() if kept.until > now]
            self._kept = dict(alive[-ENTRIES_MAX // 2 :])


class Layout:
    """A prompt with a name and a length after every block."""

    def __init__(self, prompt: Prompt, account: str, abilities: Abilities, model: str = "") -> None:
        """Nobody reads another account's cache, and no model another's."""
        self.prompt, self.account, self.abilities, self.model = prompt, account, abilities, model
        self.blocks = prompt.blocks
        self.places: list[Place] = []
        self.origins: list[Name] = []
        """By block: the name of everything before its text."""
        name, tokens, section = _named(account.encode(), model.encode()), 0, -1
        for block in self.blocks:
            while section < SECTIONS.index(block.section):
                section += 1
                name = _named(name, prompt.salts.get(SECTIONS[section], "").encode())
            origin = _named(name, f"{block.kind} {block.lead} {block.key}".encode("utf-8", "surrogatepass"))
            self.origins.append(origin)
            name = _named(origin, block.text.encode("utf-8", "surrogatepass"))
            tokens += block.tokens
            self.places.append(Place(name=name, tokens=tokens))

    def keepable(self, place: Place) -> bool:
        return place.tokens >= max(1, self.abilities.cache_minimum_tokens)

    def wish(self, searches: Sequence[Sequence[int]], writes: Sequence[tuple[int, float]]) -> Wish:
        """From numbers of blocks to places, without those that are too short to be kept."""
        return Wish(
            searches=tuple(
                tuple(self.places[number] for number in search if self.keepable(self.places[number]))
                for search in searches
            ),
            writes=tuple(
                (self.places[number], seconds)
                for number, seconds in writes
                if self.keepable(self.places[number])
            ),
        )


def _by_marks(layout: Layout, _: "Steps") -> Wish:
    marked = [number for number, block in enumerate(layout.blocks) if block.mark][-WRITES_MAX:]
    searches = [list(_back_from(layout.blocks, number)) for number in marked]
    return layout.wish(searches, [(number, seconds_of(layout.blocks[number].mark)) for number in marked])


def _back_from(blocks: Sequence[Block], number: int) -> Iterator[int]:
    earliest = blocks[number].position - LOOKBACK_POSITIONS
    while number >= 0 and blocks[number].position > earliest:
        yield number
        number -= 1


def _by_points(layout: Layout, _: "Steps") -> Wish:
    prompt, blocks = layout.prompt, layout.blocks
    explicit = [number for number, block in enumerate(blocks) if block.mark]
    ends = [number for number, block in enumerate(blocks) if block.ends] if prompt.own else []
    own = {end: seconds_of(prompt.kept) or layout.abilities.cache_seconds for end in ends[-1:]}
    stated = {number: seconds_of(blocks[number].mark) for number in explicit[-(WRITES_MAX - len(own)) :]}
    looked_up = {*explicit[:POINTS_FIRST], *explicit[-POINTS_LATEST:], *ends[-(ENDS_LATEST + 1) :]}
    return layout.wish([sorted(looked_up, reverse=True)], sorted({**own, **stated}.items()))


def _by_prefix(layout: Layout, steps: "Steps") -> Wish:
    abilities = layout.abilities
    seconds = seconds_of(layout.prompt.kept) or abilities.cache_seconds
    places = layout.places
    if abilities.cache_step_tokens:
        places = steps.of(layout)
    kept = [place for place in places if layout.keepable(place)]
    return Wish(
        searches=(tuple(reversed(kept)),), writes=tuple((place, seconds) for place in kept), free=True
    )


WAYS: Mapping[str, Callable[[Layout, "Steps"], Wish]] = {
    "marks": _by_marks,
    "points": _by_points,
    "prefix": _by_prefix,
    "hits": _by_prefix,
}


class Steps:
    """Places every so many tokens, wherever blocks end.

    A place inside a block is named by what of its text comes before it.  Blocks that were
    cut before are remembered by name, so a prompt that grew is cut only where it grew.
    """

    def __init__(self) -> None:
        self._cut: dict[tuple[Name, int], list[Place]] = {}

    def of(self, layout: Layout) -> list[Place]:
        step = layout.abilities.cache_step_tokens
        found: list[Place] = []
        begin = 0
        for block, origin, after in zip(layout.blocks, layout.origins, layout.places, strict=True):
            if begin // step != after.tokens // step:
                key = (after.name, step)
                if key not in self._cut:
                    if len(self._cut) >= STEPS_REMEMBERED_MAX:
                        self._cut.clear()
                    self._cut[key] = list(_cut(block, origin, begin, after.tokens, step))
                found += self._cut[key]
            begin = after.tokens
        return found


def _cut(block: Block, origin: Name, begin: int, end: int, step: int) -> Iterator[Place]:
    ends = [piece.end() for piece in PIECE.finditer(block.text)]
    name, done = blake2b(origin, digest_size=16), 0
    for tokens in range((begin // step + 1) * step, end + 1, step):
        inside = tokens - begin - block.lead
        upto = ends[inside - 1] if inside > 0 else 0
        # Word by word: to name every place from the start takes minutes for a long text.
        name.update(block.text[done:upto].encode("utf-8", "surrogatepass"))
        done = upto
        yield Place(name=name.copy().digest(), tokens=tokens)


def _named(*parts: bytes) -> Name:
    """One name for parts in order; their lengths go in, so that no two orders of parts look alike."""
    name = blake2b(digest_size=16)
    for part in parts:
        name.update(len(part).to_bytes(8, "big"))
        name.update(part)
    return name.digest()


def seconds_of(duration: str) -> float:
    """`5m` in seconds; nought for what is no duration."""
    number, unit = duration[:-1], duration[-1:]
    return float(number) * UNITS[unit] if number.isdigit() and unit in UNITS else 0.0

"""Counting: tokens used, what they cost, and the limits set on both.

The four counts `input`, `cache_read`, `cache_write` and `output` never overlap,
so their sum is what the provider processed.  `reasoning` is part of `output`,
`cache_write_1h` part of `cache_write`.

Dollars are `Decimal`, computed once when a reply arrives and recorded with it:
a rate card that changes next month must not change last month's invoice.  An
unknown price is None and stays None in every sum; it is never nought.

A rate card is data: what a token costs may depend on the length of the prompt, the day, the
hour, and the terms the provider says it served the call on.  Terms that the card does not
name make the price unknown, because the usual one would be a guess.
"""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

import msgspec

from .base import Value
from .errors import MisuseError

MILLION = 1_000_000


class Usage(Value):
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cache_write_1h: int = 0
    incomplete: bool = False
    """True when a call was cut off before it reported its final counts, or never reported any."""
    unbilled: bool = False
    """True when the provider counted these tokens and does not charge for them."""
    searches: int = 0
    """Searches the provider made for the model and charges for one by one."""
    terms: tuple[str, ...] = ()
    """What the call was served on, in the provider's words (`flex`, `batch`), when not as usual."""

    @property
    def is_known(self) -> bool:
        """Whether the prompt was counted, as it is in every call; what nobody counted is not nought."""
        return self.prompt > 0 or not self.incomplete

    @property
    def prompt(self) -> int:
        """Every token the model read, cached or not."""
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        return self.prompt + self.output

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            cache_write_1h=self.cache_write_1h + other.cache_write_1h,
            incomplete=self.incomplete or other.incomplete,
            unbilled=self.unbilled and other.unbilled,
            searches=self.searches + other.searches,
        )


class Rates(Value):
    """Dollars per million tokens, for prompts longer than `above_prompt_tokens`."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal | None
    """None when nobody says what it costs."""
    above_prompt_tokens: int = 0
    storage: Decimal | None = None
    """For every million tokens that are kept by name, and every hour; None when nobody says."""
    valid_from: float | None = None
    valid_until: float | None = None
    """From when on they no longer hold.  What holds then is unknown, unless a later card says so."""

    def cost(self, usage: Usage) -> Decimal | None:
        if usage.cache_write_1h and self.cache_write_1h is None:
            return None
        short_writes = usage.cache_write - usage.cache_write_1h
        picodollars = (
            self.input * usage.input
            + self.cache_read * usage.cache_read
            + self.cache_write * short_writes
            + (self.cache_write_1h or 0) * usage.cache_write_1h
            + self.output * usage.output
        )
        return picodollars / MILLION

    def scale(self, factor: Decimal) -> "Rates":
        return msgspec.structs.replace(
            self,
            input=self.input * factor,
            output=self.output * factor,
            cache_read=self.cache_read * factor,
            cache_write=self.cache_write * factor,
            cache_write_1h=None if self.cache_write_1h is None else self.cache_write_1h * factor,
            storage=None if self.storage is None else self.storage * factor,
        )

    def highest_with(self, other: "Rates") -> "Rates":
        """Of each rate the higher."""
        if self == other:
            return self
        hours = [rate for rate in (self.cache_write_1h, other.cache_write_1h) if rate is not None]
        return msgspec.structs.replace(
            self,
            input=max(self.input, other.input),
            output=max(self.output, other.output),
            cache_read=max(self.cache_read, other.cache_read),
            cache_write=max(self.cache_write, other.cache_write),
            cache_write_1h=max(hours, default=None),
        )

    def is_valid_at(self, at: float) -> bool:
        return (self.valid_from is None or self.valid_from <= at) and (
            self.valid_until is None or at < self.valid_until
        )


class PriceFactor(Value):
    """What every rate is multiplied by: on these terms, or at these hours."""

    factor: Decimal
    term: str = ""
    hours: tuple[int, int] | None = None
    """From the one to before the other, UTC."""


HOURS_AHEAD_SECONDS = 900.0
"""A call asked for now may be priced by the hour it ends in."""
TIER_MARGIN = 0.03
"""By how much of its length a prompt may be longer than estimated and change its tier."""


class Price(Value):
    """A rate card: the tier with the highest threshold the prompt exceeds prices the whole request.

    `at` is when the call was made, in seconds since 1970; without it, the newest rates at the usual hours.
    """

    tiers: tuple[Rates, ...]
    factors: tuple[PriceFactor, ...] = ()
    search_usd: Decimal | None = None

    def rates(self, prompt_tokens: int, at: float | None = None) -> Rates | None:
        """As they stand on the card, before any factor; None when none of them holds then."""
        holding = [tier for tier in self.tiers if at is None or tier.is_valid_at(at)]
        if not holding:
            return None
        newest = max(tier.valid_from or 0.0 for tier in holding)
        card = [tier for tier in holding if (tier.valid_from or 0.0) == newest]
        reached = [tier for tier in card if prompt_tokens > tier.above_prompt_tokens]
        return max(reached or card[:1], key=lambda tier: tier.above_prompt_tokens)

    def cost(self, usage: Usage, at: float | None = None) -> Decimal | None:
        if usage.unbilled:
            return Decimal(0)
        rates, factor = self.rates(usage.prompt, at), self._term_factor(usage.terms)
        if rates is None or factor is None or (usage.searches and self.search_usd is None):
            return None
        tokens = rates.scale(factor * self._hour_factor(at)).cost(usage)
        return None if tokens is None else tokens + (self.search_usd or 0) * usage.searches

    def highest_rates(self, prompt_tokens: int, at: float | None, words: Iterable[str] = ()) -> Rates | None:
        """The most a call may cost that is made now, when these words are asked of the provider.

        A prompt that is nearly long enough for a dearer tier may turn out to be, and by the time it is
        asked another hour or another card may hold.
        """
        known = {factor.term for factor in self.factors}
        asked = self._term_factor(tuple(word for word in words if word and word in known))
        if asked is None or self.rates(prompt_tokens, at) is None:
            return None
        nearly = prompt_tokens + int(prompt_tokens * TIER_MARGIN)
        moments = (at,) if at is None else (at, at + HOURS_AHEAD_SECONDS)
        dearest: Rates | None = None
        for tokens in (prompt_tokens, nearly):
            for moment in moments:
                rates = self.rates(tokens, moment)
                if rates is not None:
                    found = rates.scale(self._hour_factor(moment) * max(asked, Decimal(1)))
                    dearest = found if dearest is None else dearest.highest_with(found)
        return dearest

    def _term_factor(self, terms: tuple[str, ...]) -> Decimal | None:
        by_term = {each.term: each.factor for each in self.factors if each.term}
        product = Decimal(1)
        for term in terms:
            if term not in by_term:
                return None
            product *= by_term[term]
        return product

    def _hour_factor(self, at: float | None) -> Decimal:
        if at is None:
            return Decimal(1)
        hour = int(at % DAY_SECONDS // HOUR_SECONDS)
        spans = (each for each in self.factors if each.hours and each.hours[0] <= hour < each.hours[1])
        return max((each.factor for each in spans), default=Decimal(1))


DAY_SECONDS, HOUR_SECONDS = 86_400, 3_600


class Reservation(Value):
    """What was set aside of a shared budget for one call: the most it may come to."""

    pool: str
    tokens: int
    usd: Decimal | None = None
    """None when the price is unknown."""
    output_tokens: int = 0
    """The most the reply may have."""
    id: str = ""
    """Of the call, in every budget it draws from."""
    budget_warning: str = ""
    """What is used of the budget by now, when it is so much that the model is to be told."""


STEPS_DEFAULT = 100
"""A run that has called its model a hundred times is far more often lost than busy."""


class Limits(Value):
    """The most that may be used, together, by whatever they are set for.  None is no limit."""

    usd: Decimal | None = None
    """May be given as a float or a string: `Budget(usd=0.50)`."""
    tokens: int | None = None
    steps: int | None = None
    """Replies of a model."""
    seconds: float | None = None
    tool_calls: int | None = None
    """Calls that are run: those of one reply count each, those that are denied or wrong do not."""
    wrap_up: float | None = None
    """The share of any of these, such as 0.8, from which on the model is told, once, to finish."""

    def __post_init__(self) -> None:
        for name, exact in _LIMIT_TYPES.items():
            limit = getattr(self, name)
            if limit is not None:
                msgspec.structs.force_setattr(self, name, _parse_limit(name, limit, exact))
        if self.wrap_up is not None and not 0 < self.wrap_up < 1:
            raise MisuseError(f"wrap_up is a share of the limits, such as 0.8; not {self.wrap_up!r}")


class Budget(Limits):
    """The limits of one run, and of what it is part of.  Reaching one ends the run; raise it and resume."""

    steps: int | None = STEPS_DEFAULT
    session: Limits | None = None
    """What all runs of the session may use together."""
    tenant: Limits | None = None
    """What all sessions of the run's tenant in the same store may use together, in whatever process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("session", "tenant"):
            given: object = getattr(self, name)
            if given is not None and type(given) is not Limits:
                raise MisuseError(f"Budget({name}=…) takes Limits(usd=…, tokens=…, …), not {given!r}")


_LIMIT_TYPES: dict[str, type[int] | type[float] | type[Decimal]] = {
    "usd": Decimal,
    "tokens": int,
    "steps": int,
    "seconds": float,
    "tool_calls": int,
    "wrap_up": float,
}


def _parse_limit(
    name: str, given: object, exact: type[int] | type[float] | type[Decimal]
) -> int | float | Decimal:
    """The limit as the number it is kept as: what is kept as anything else could never be read again."""
    if isinstance(given, bool) or not isinstance(given, int | float | str | Decimal):
        raise MisuseError(f"Budget({name}=…) takes a number, not {given!r}")
    try:
        number = Decimal(str(given))
    except InvalidOperation:
        raise MisuseError(f"Budget({name}=…) takes a number, not {given!r}") from None
    if not number.is_finite() or number < 0:
        raise MisuseError(f"Budget({name}=…) cannot be {given!r}; leave it out for no limit")
    if exact is int and number != int(number):
        raise MisuseError(f"Budget({name}=…) takes a whole number, not {given!r}")
    return exact(number)

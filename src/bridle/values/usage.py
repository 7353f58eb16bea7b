"""Counting: tokens used, what they cost, and the limits set on both.

The four counts `input`, `cache_read`, `cache_write` and `output` never overlap,
so their sum is what the provider processed.  `reasoning` is part of `output`,
`cache_write_1h` part of `cache_write`.

Dollars are `Decimal`, computed once when a reply arrives and recorded with it:
a rate card that changes next month must not change last month's invoice.  An
unknown price is None and stays None in every sum; it is never nought.
"""

from decimal import Decimal, InvalidOperation

import msgspec

from .errors import MisuseError
from .value import Value

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

    @property
    def known(self) -> bool:
        """Whether anything was counted; what nobody counted is not nought."""
        return self.total > 0 or not self.incomplete

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
        )


class Rates(Value):
    """Dollars per million tokens, for prompts longer than `above_prompt_tokens`."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal
    above_prompt_tokens: int = 0

    def cost(self, usage: Usage) -> Decimal:
        short_writes = usage.cache_write - usage.cache_write_1h
        picodollars = (
            self.input * usage.input
            + self.cache_read * usage.cache_read
            + self.cache_write * short_writes
            + self.cache_write_1h * usage.cache_write_1h
            + self.output * usage.output
        )
        return picodollars / MILLION


class Price(Value):
    """A rate card: the tier with the highest threshold the prompt exceeds prices the whole request."""

    tiers: tuple[Rates, ...]

    def rates(self, prompt_tokens: int) -> Rates:
        reached = [tier for tier in self.tiers if prompt_tokens > tier.above_prompt_tokens]
        return max(reached or self.tiers[:1], key=lambda tier: tier.above_prompt_tokens)

    def cost(self, usage: Usage) -> Decimal:
        return Decimal(0) if usage.unbilled else self.rates(usage.prompt).cost(usage)


STEPS_DEFAULT = 100
"""A run that has called its model a hundred times is far more often lost than busy."""


class Budget(Value):
    """The limits of one run.  None is no limit.  Reaching one ends the run; raise it and resume."""

    usd: Decimal | None = None
    """May be given as a float or a string: `Budget(usd=0.50)`."""
    tokens: int | None = None
    steps: int | None = STEPS_DEFAULT
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, exact in _LIMITS.items():
            limit = getattr(self, name)
            if limit is not None:
                msgspec.structs.force_setattr(self, name, _limit(name, limit, exact))


_LIMITS: dict[str, type[int] | type[float] | type[Decimal]] = {
    "usd": Decimal,
    "tokens": int,
    "steps": int,
    "seconds": float,
}


def _limit(name: str, given: object, exact: type[int] | type[float] | type[Decimal]) -> int | float | Decimal:
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

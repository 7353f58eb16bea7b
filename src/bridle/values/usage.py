"""Token usage, prices, and limits.

The counts `input`, `cache_read`, `cache_write` and `output` never overlap; their sum is what the provider
processed. `reasoning` is part of `output`, `cache_write_1h` part of `cache_write`.

Dollars are `Decimal`, computed once when a reply arrives and recorded with it, so that a later price change
does not alter past costs. An unknown price is None and stays None in every sum; it is never 0.

A rate card is data: the price of a token may depend on the prompt's length, the date, the day of the week, the
hour, and the service terms that were requested or reported. Terms missing from the card make the price unknown.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import msgspec

from .base import Value, ValueMeta
from .errors import MisuseError

MILLION = 1_000_000
HostedCount = Literal["searches", "file_searches", "containers", "images", "pages"]
"""Counts of `Usage` that have a price per use."""
HOSTED_COUNTS: tuple[HostedCount, ...] = get_args(HostedCount)
CONCEPT_COUNTS: dict[str, HostedCount] = {
    "web_search": "searches",
    "file_search": "file_searches",
    "code_execution": "containers",
    "image_generation": "images",
}
"""The count by which a hosted tool is charged; the other concepts cost tokens only."""


class Usage(Value, kw_only=True):
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cache_write_1h: int = 0
    incomplete: bool = False
    """True if a call was cut off before it reported its final counts, or reported none."""
    unbilled: bool = False
    """True if the provider counted these tokens but does not charge for them."""
    searches: int = 0
    """Searches made by the provider and charged individually, as are the counts that follow."""
    file_searches: int = 0
    containers: int = 0
    """Containers that the provider started to run code."""
    images: int = 0
    """Images that a hosted tool made."""
    pages: int = 0
    """Pages that a hosted tool opened, where the provider charges for them."""
    terms: tuple[str, ...] = ()
    """Service terms in the provider's words (`flex`, `batch`), if not the usual ones."""

    @property
    def is_known(self) -> bool:
        """False if the call was cut off before its prompt was counted; the counts are then unknown, not 0."""
        return not self.incomplete or self.prompt > 0

    @property
    def prompt(self) -> int:
        """All tokens that the model read, cached or not."""
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        return self.input + self.cache_read + self.cache_write + self.output

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
            file_searches=self.file_searches + other.file_searches,
            containers=self.containers + other.containers,
            images=self.images + other.images,
            pages=self.pages + other.pages,
        )

    def excess_over(self, other: "Usage") -> "Usage":
        """Each count by which this exceeds `other`, or 0."""
        tokens = ("input", "cache_read", "cache_write", "output", "reasoning", "cache_write_1h")
        return Usage(
            **{name: max(0, getattr(self, name) - getattr(other, name)) for name in (*tokens, *HOSTED_COUNTS)}
        )

    @property
    def hosted_counts(self) -> tuple[tuple[HostedCount, int], ...]:
        """Uses of hosted tools that are charged individually; empty if there were none."""
        # Most calls have none, and every call is priced.
        if not (self.searches or self.file_searches or self.containers or self.images or self.pages):
            return ()
        return tuple((name, count) for name in HOSTED_COUNTS if (count := getattr(self, name)))


class Rates(Value, kw_only=True):
    """Dollars per million tokens, for prompts longer than `above_prompt_tokens`."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal | None
    """None if unknown."""
    above_prompt_tokens: int = 0
    storage: Decimal | None = None
    """Per million stored tokens and hour; None if unknown."""
    valid_from: float | None = None
    valid_until: float | None = None
    """End of validity. Later rates are unknown unless another card has them."""

    def cost(self, usage: Usage) -> Decimal | None:
        if usage.cache_write_1h and self.cache_write_1h is None:
            return None
        short_writes = usage.cache_write - usage.cache_write_1h
        # defect: cached-price
        picodollars = (
            self.input * usage.input
            + self.cache_read * usage.cache_read
            + self.cache_write * short_writes
            + (self.cache_write_1h or 0) * usage.cache_write_1h
            + self.output * usage.output
        )
        return picodollars / MILLION

    def scale(self, factor: Decimal, cache_factor: Decimal | None = None) -> "Rates":
        """The rates times a factor; reads of the cache times another one, if there is one."""
        return msgspec.structs.replace(
            self,
            input=self.input * factor,
            output=self.output * factor,
            cache_read=self.cache_read * (factor if cache_factor is None else cache_factor),
            cache_write=self.cache_write * factor,
            cache_write_1h=None if self.cache_write_1h is None else self.cache_write_1h * factor,
            storage=None if self.storage is None else self.storage * factor,
        )

    def highest_with(self, other: "Rates") -> "Rates":
        """The higher value of each rate."""
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
        return is_within(at, self.valid_from, self.valid_until)


def is_within(at: float | None, first: float | None, end: float | None) -> bool:
    """True at a time from `first` until before `end`; None is no bound, and no time is within every period."""
    return at is None or ((first is None or first <= at) and (end is None or at < end))


STANDARD_TERMS = frozenset({
    "", "standard", "standard_only", "default", "auto", "unspecified", "on_demand", "not_available", "global"
})  # fmt: skip
"""Words for service terms that are billed at the list price."""
TERM_FIELDS = {
    "service_tier": "",
    "serviceTier": "",
    "speed": "speed-",
    "inference_geo": "geo-",
    "performanceConfig": "latency-",
}
"""Request fields that choose service terms, with the prefix of their terms; replies report them by the same names."""


def name_service_term(field: str, word: object) -> str:
    """The term that a word in a request or reply field stands for; empty for the standard one."""
    said = word.strip().lower() if isinstance(word, str) else ""
    return "" if said in STANDARD_TERMS else TERM_FIELDS[field] + said


def list_service_terms(members: Mapping[str, object]) -> tuple[str, ...]:
    """The service terms among the members of a request or reply; an object's words are all in one field."""
    found: list[str] = []
    for field in TERM_FIELDS:
        if field not in members or (value := members[field]) is None:
            continue
        for word in value.values() if isinstance(value, dict) else (value,):
            if term := name_service_term(field, word):
                found.append(term)
    return tuple(found)


class PriceFactor(Value, kw_only=True):
    """Factor on every rate, for a service term or for certain hours."""

    factor: Decimal
    term: str = ""
    cache_factor: Decimal | None = None
    """Factor on the rates of cached tokens, if it is another one."""
    hours: tuple[int, int] | None = None
    """First hour (inclusive) and last hour (exclusive), UTC."""
    days: tuple[int, int] | None = None
    """First and last day of the week (inclusive; Monday is 1), UTC, on which the hours apply; None for all days."""

    def applies_at(self, at: float) -> bool:
        """True at one of its hours, on one of its days."""
        if self.hours is None or not self.hours[0] <= at % DAY_SECONDS // HOUR_SECONDS < self.hours[1]:
            return False
        # 1 January 1970 was a Thursday.
        return self.days is None or self.days[0] <= (at // DAY_SECONDS + 3) % 7 + 1 <= self.days[1]


class HostedRate(Value, kw_only=True):
    """Dollars for each use of a hosted tool."""

    count: HostedCount
    usd: Decimal
    per_reply: bool = False
    """True if a reply is charged once, however often it used the tool."""
    valid_from: float | None = None
    valid_until: float | None = None

    def cost(self, count: int) -> Decimal:
        return self.usd * (min(count, 1) if self.per_reply else count)


HOURS_AHEAD_SECONDS = 900.0
"""A call sent now may be priced by the hour in which it ends."""
TIER_MARGIN = 0.03
"""Share by which a prompt may exceed its estimate and so reach a higher tier."""


class Price(Value, kw_only=True):
    """A rate card: the tier with the highest threshold that the prompt exceeds prices the whole request.

    `at` is the time of the call in seconds since 1970; without it, the newest rates at usual hours apply.
    """

    tiers: tuple[Rates, ...]
    factors: tuple[PriceFactor, ...] = ()
    hosted: tuple[HostedRate, ...] = ()
    """Prices of hosted tools; one without a valid row is unknown."""

    def rates(self, prompt_tokens: int, at: float | None = None) -> Rates | None:
        """Rates on the card before any factor; None if none are valid at that time."""
        if len(self.tiers) == 1 and (at is None or self.tiers[0].is_valid_at(at)):
            return self.tiers[0]
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
        rates = self.rates(usage.prompt, at)
        factors = self._term_factors(usage.terms) if usage.terms else _NO_CHANGES
        if rates is None or factors is None:
            return None
        if self.factors:
            hour = self._hour_factor(at)
            if hour != NO_CHANGE or factors != _NO_CHANGES:
                rates = rates.scale(factors[0] * hour, factors[1] * hour)
        dollars = rates.cost(usage)
        for name, count in usage.hosted_counts:
            rate = self.hosted_rate(name, at)
            if rate is None or dollars is None:
                return None
            dollars += rate.cost(count)
        return dollars

    def hosted_rate(self, count: HostedCount, at: float | None) -> HostedRate | None:
        """The newest rate that applies at a time; None if the price is unknown."""
        valid = [
            each
            for each in self.hosted
            if each.count == count and is_within(at, each.valid_from, each.valid_until)
        ]
        return max(valid, key=lambda each: each.valid_from or 0.0, default=None)

    def highest_rates(
        self, prompt_tokens: int, at: float | None, terms: tuple[str, ...] = ()
    ) -> Rates | None:
        """Upper bound on the rates of a call made now with these requested service terms; None if one is unknown.

        A provider may serve a call on its standard terms instead. A prompt close to a higher tier may reach it, and
        another hour or card may apply by the time the call ends.
        """
        factors = self._term_factors(terms)
        if factors is None or self.rates(prompt_tokens, at) is None:
            return None
        term_factor = max(*factors, NO_CHANGE)
        next_tier_tokens = prompt_tokens + int(prompt_tokens * TIER_MARGIN)
        moments = (at,) if at is None else (at, at + HOURS_AHEAD_SECONDS)
        highest: Rates | None = None
        for tokens in (prompt_tokens, next_tier_tokens):
            for moment in moments:
                rates = self.rates(tokens, moment)
                if rates is not None:
                    found = rates.scale(self._hour_factor(moment) * term_factor)
                    highest = found if highest is None else highest.highest_with(found)
        return highest

    def unknown_terms(self, terms: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these service terms that the card has no price for."""
        known = {each.term for each in self.factors}
        return tuple(term for term in terms if term not in known)

    def _term_factors(self, terms: tuple[str, ...]) -> tuple[Decimal, Decimal] | None:
        """Factors on the rates and on reads of the cache; None if a term is not on the card."""
        if not terms:
            return _NO_CHANGES
        product, cached = NO_CHANGE, NO_CHANGE
        by_term = {each.term: each for each in self.factors if each.term}
        for term in terms:
            found = by_term.get(term)
            if found is None:
                return None
            product *= found.factor
            cached *= found.factor if found.cache_factor is None else found.cache_factor
        return product, cached

    def _hour_factor(self, at: float | None) -> Decimal:
        found = NO_CHANGE
        if at is None:
            return found
        for each in self.factors:
            if each.hours is not None and each.applies_at(at):
                found = each.factor if found is NO_CHANGE else max(found, each.factor)
        return found


DAY_SECONDS, HOUR_SECONDS = 86_400, 3_600
NO_CHANGE = Decimal(1)
"""The factor of a price that nothing changes."""
_NO_CHANGES = (NO_CHANGE, NO_CHANGE)


class Reservation(Value, kw_only=True):
    """Amount reserved from a shared budget for one call: its worst case."""

    pool: str
    tokens: int
    usd: Decimal | None = None
    """None if the price is unknown."""
    output_tokens: int = 0
    """Maximum size of the reply."""
    id: str = ""
    """Id of the call, equal in every budget it draws from."""
    budget_warning: str = ""
    """Share of the pooled budget in use, set once it passes the wrap-up threshold."""


STEPS_DEFAULT = 100
"""A run with a hundred model calls is far more often stuck than busy."""


LimitPeriod = Literal["hour", "day", "month"]
LIMIT_PERIODS: tuple[LimitPeriod, ...] = get_args(LimitPeriod)
_ZONE_TEXT = re.compile(r"[A-Za-z0-9_+/-]*")


class _LimitsMeta(ValueMeta):
    def __call__(self, *args: Any, **given: Any) -> Any:
        """Refuse a limit that does not exist with the names of those that do."""
        unknown = given.keys() - set(self.__struct_fields__)
        if unknown:
            name, known = min(unknown), self.__struct_fields__
            similar = import_module("difflib").get_close_matches(name, known, n=1)
            near = _MONEY_WORDS.get(name) or next(iter(similar), "")
            hint = f"did you mean {near!r}?" if near else f"it has: {', '.join(known)}"
            raise MisuseError(f"{self.__name__} has no limit {name!r}; {hint}")
        return super().__call__(*args, **given)


_MONEY_WORDS = dict.fromkeys(("dollars", "cost", "money", "max_cost", "max_usd", "price"), "usd")


class Limits(Value, kw_only=True, gc=True, dict=True, metaclass=_LimitsMeta):
    """Upper limits. None means no limit. A kind that is counted is also a field of `Amount` and `Spending`."""

    usd: Decimal | None = None
    """A float or string is accepted too: `Budget(usd=0.50)`."""
    tokens: int | None = None
    steps: int | None = None
    """Model replies."""
    seconds: float | None = None
    tool_calls: int | None = None
    """Calls that run; each call of a reply counts, denied or invalid ones do not."""
    wrap_up: float | None = None
    """Share of any limit, such as 0.8, at which the model is asked, once, to finish."""
    period: LimitPeriod | None = None
    """Of a tenant, a caller or a pool: the limits begin again with each hour, day or month of the calendar."""
    zone: str = ""
    """Time zone of the periods, such as `Europe/Berlin`; UTC if empty."""

    if TYPE_CHECKING:  # a number of dollars is converted exactly

        def __init__(
            self,
            *,
            usd: Decimal | float | str | None = None,
            tokens: int | None = None,
            steps: int | None = None,
            seconds: float | None = None,
            tool_calls: int | None = None,
            wrap_up: float | None = None,
            period: LimitPeriod | None = None,
            zone: str = "",
        ) -> None: ...

    def __post_init__(self) -> None:
        self._check_period()
        for name, exact in _LIMIT_TYPES.items():
            limit = getattr(self, name)
            if limit is not None:
                msgspec.structs.force_setattr(self, name, _parse_limit(name, limit, exact))
        if self.wrap_up is not None and not 0 < self.wrap_up < 1:
            raise MisuseError(f"wrap_up must be a share between 0 and 1, such as 0.8, not {self.wrap_up!r}")

    def _check_period(self) -> None:
        if self.period is not None and self.period not in LIMIT_PERIODS:
            raise MisuseError(f"period is {', '.join(map(repr, LIMIT_PERIODS))} or None, not {self.period!r}")
        if not isinstance(self.zone, str) or not _ZONE_TEXT.fullmatch(self.zone):
            raise MisuseError(f"zone is the name of a time zone, such as Europe/Berlin, not {self.zone!r}")
        if self.zone and self.period is None:
            raise MisuseError(f"zone={self.zone!r} needs a period: Limits(…, period='day', zone=…)")
        if self.zone == "UTC":
            msgspec.structs.force_setattr(self, "zone", "")

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kinds with a limit."""
        return tuple(kind for kind in LIMIT_KINDS if getattr(self, kind) is not None)


BUDGET_SCOPES = ("session", "tenant", "caller")
"""Fields of `Budget` that limit more than one run."""


LimitsT = TypeVar("LimitsT", bound=Limits)


class Budget(Limits, kw_only=True, dict=True):
    """Limits of one run, its session, its tenant and its caller. Reaching one ends the run."""

    steps: int | None = STEPS_DEFAULT
    session: Limits | None = None
    """Limits for all runs of the session together."""
    tenant: Limits | tuple[Limits, ...] | None = None
    """Limits for all sessions of the tenant in the same store, across processes; several if they have periods."""
    caller: Limits | tuple[Limits, ...] | None = None
    """Limits for all runs of the caller, within the tenant if there is one, in the same store, across processes."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            usd: Decimal | float | str | None = None,
            tokens: int | None = None,
            steps: int | None = STEPS_DEFAULT,
            seconds: float | None = None,
            tool_calls: int | None = None,
            wrap_up: float | None = None,
            session: Limits | None = None,
            tenant: Limits | Sequence[Limits] | None = None,
            caller: Limits | Sequence[Limits] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period is not None:
            raise MisuseError("a run has no period; Budget(tenant=Limits(usd=…, period=…)) limits a tenant's")
        for name in BUDGET_SCOPES:
            given: object = getattr(self, name)
            each = given if isinstance(given, list | tuple) and name != "session" else (given,)
            if given is not None and not all(type(limits) is Limits for limits in each):
                raise MisuseError(f"Budget({name}=…) takes Limits(usd=…, tokens=…, …), not {given!r}")
            if isinstance(given, list | tuple):
                msgspec.structs.force_setattr(self, name, join_limits(given))
        if self.session is not None and self.session.period is not None:
            raise MisuseError(
                "a session has no period; Budget(tenant=Limits(usd=…, period=…)) limits a tenant's"
            )


class BudgetParts(Value, kw_only=True):
    """Who set the limits of a run's session, tenant and caller, which a budget has merged."""

    agent: Budget
    run: Budget


_LIMIT_TYPES: dict[str, type[int] | type[float] | type[Decimal]] = {
    name: get_args(annotation)[0]
    for name, annotation in Limits.__annotations__.items()
    if name not in ("period", "zone")
}
LIMIT_KINDS = tuple(name for name in _LIMIT_TYPES if name != "wrap_up")
MERGED_KINDS = tuple(_LIMIT_TYPES)


def split_limits(limits: Limits | tuple[Limits, ...] | None) -> tuple[Limits, ...]:
    """The limits of a scope, one for each period."""
    if limits is None:
        return ()
    return limits if isinstance(limits, tuple) else (limits,)


def join_limits(each: Iterable[Limits]) -> Limits | tuple[Limits, ...] | None:
    """The limits of a scope, merged by period: without one first, then by its length and zone."""
    found: dict[tuple[int, str], Limits] = {}
    for limits in each:
        key = LIMIT_PERIODS.index(limits.period) if limits.period is not None else -1, limits.zone
        found[key] = merge_limits(found[key], limits) if key in found else limits
    joined = tuple(found[key] for key in sorted(found))
    return joined[0] if len(joined) == 1 else joined or None


def merge_limits(one: LimitsT, other: Limits) -> LimitsT:
    """Both limits at once: of each kind the lower one."""
    # guard: lower-limit
    return msgspec.structs.replace(
        one, **{kind: lower_limit(getattr(one, kind), getattr(other, kind)) for kind in MERGED_KINDS}
    )


def lower_limit(one: Any, other: Any) -> Any:
    return min((limit for limit in (one, other) if limit is not None), default=None)


LIMIT_DIGITS_MAX = 18
"""Digits before and after the point of a limit."""
# not from outside: our own text, shown to a person or a model
SHOWN_CHARACTERS_MAX = 40


def _abbreviate(value: object) -> str:
    """A wrong value for a message; a whole number may have more digits than Python converts to text."""
    if isinstance(value, int) and value.bit_length() > NUMBER_BITS_SHOWN:
        return f"a number of {value.bit_length():,} bits"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"


NUMBER_BITS_SHOWN = 1_000


def _parse_limit(
    name: str, value: object, exact: type[int] | type[float] | type[Decimal]
) -> int | float | Decimal:
    """Convert a limit to its exact type; any other type could not be read back from the log."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise MisuseError(f"Budget({name}=…) takes a number, not {value!r}")
    try:
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):  # ValueError: a whole number with thousands of digits
        raise MisuseError(f"Budget({name}=…) takes a number, not {_abbreviate(value)}") from None
    if not number.is_finite() or number < 0:
        raise MisuseError(f"Budget({name}=…) cannot be {_abbreviate(value)}; leave it out for no limit")
    # Before any arithmetic: `Decimal` holds exponents that no sum and no conversion survives.
    if number and not -LIMIT_DIGITS_MAX <= number.adjusted() < LIMIT_DIGITS_MAX:
        raise MisuseError(
            f"Budget({name}=…) cannot be {_abbreviate(value)}; it takes up to {LIMIT_DIGITS_MAX} digits"
        )
    if exact is int and number != int(number):
        raise MisuseError(f"Budget({name}=…) takes a whole number, not {value!r}")
    return exact(number)


PERIOD_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3_600.0, "day": 86_400.0}
_RATE_TEXT = re.compile(r"\s*([0-9]+)\s*/\s*(second|minute|hour|day)\s*")


class RateLimit(Value, kw_only=True):
    """Calls and tokens per period that all runs in one store share: `RateLimit(per="endpoint", requests=50)`."""

    per: Literal["endpoint", "tenant", "tool"] = "endpoint"
    """Model calls to each endpoint, model calls of each tenant, or calls of one tool."""
    tool: str = ""
    """Name of the tool, with `per="tool"`."""
    requests: int | None = None
    tokens: int | None = None
    """Input and output tokens of model calls."""
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.per not in ("endpoint", "tenant", "tool"):
            raise MisuseError(f'RateLimit(per=…) is "endpoint", "tenant" or "tool", not {self.per!r}')
        if (self.per == "tool") != bool(self.tool) or (self.tool and self.tokens is not None):
            raise MisuseError('a limit of a tool is RateLimit(per="tool", tool=NAME, requests=…)')
        amounts = [each for each in (self.requests, self.tokens) if each is not None]
        if not amounts or not all(_is_positive(each) for each in (*amounts, self.seconds)):
            raise MisuseError("RateLimit(…) needs requests=… or tokens=…, above 0, and seconds above 0")

    def find_wait(self, uses: Sequence[tuple[float, int, int]], tokens: int, now: float) -> float:
        """Seconds until a call with this many tokens fits; `uses` are times, requests and tokens of earlier calls.

        A call above the limit fits once the period is empty.
        """
        # Clocks of other processes may be slightly ahead.
        # guard: rate-limit-clock-step
        recent = sorted(use for use in uses if abs(use[0] - now) < self.seconds)
        requests, used = sum(use[1] for use in recent), sum(use[2] for use in recent)
        room_wanted = tokens if self.tokens is None else min(tokens, self.tokens)
        wait = 0.0
        for at, count, spent in recent:
            has_request = self.requests is None or requests + 1 <= self.requests
            if has_request and (self.tokens is None or used + room_wanted <= self.tokens):
                break
            wait, requests, used = at + self.seconds - now, requests - count, used - spent
        return wait


AMOUNT_MAX = 10**15
"""Largest amount or time of a rate limit; no arithmetic with it fails."""


def _is_positive(amount: object) -> bool:
    return isinstance(amount, int | float) and not isinstance(amount, bool) and 0 < amount <= AMOUNT_MAX


def read_tool_rate(tool: str, rate: object) -> RateLimit:
    """The limit of one tool, from `"10/minute"` or a `RateLimit`; raises `MisuseError` for anything else."""
    if isinstance(rate, RateLimit):
        if rate.per == "tenant" or rate.tokens is not None or rate.tool not in ("", tool):
            raise MisuseError("takes RateLimit(requests=…, seconds=…): calls of this tool only")
        return RateLimit(per="tool", tool=tool, requests=rate.requests, seconds=rate.seconds)
    found = _RATE_TEXT.fullmatch(rate) if isinstance(rate, str) else None
    if found is None or int(found[1]) == 0:
        raise MisuseError(
            'is invalid; use "10/minute" (or second, hour, day) or RateLimit(requests=…, seconds=…)'
        )
    return RateLimit(per="tool", tool=tool, requests=int(found[1]), seconds=PERIOD_SECONDS[found[2]])

"""Reports the weather of one city, or compares several.

All cities are requested in one reply, as parallel calls. When all results are there, the temperatures found
in them are compared.
"""

import re
from collections.abc import Sequence

import msgspec

from bridle.sim.responder.conversation import ConversationFacts, ResponderMove, TextMove, ToolExchange
from bridle.values.base import Value
from bridle.values.request import ToolSpec

from .tool_matching import ToolParameterSpec, find_text_parameter, list_parameters, make_call, matches_purpose

WEATHER_REQUEST = re.compile(
    r"\b(?:weather|temperatures?|forecast|warm|warmer|warmest|hot|hotter|hottest|cold|colder|coldest"
    r"|cool|cooler|coolest|rain|raining|sunny|degrees)\b",
    re.IGNORECASE,
)
COLD_WORDS = re.compile(r"\b(?:cold|colder|coldest|cool|cooler|coolest)\b", re.IGNORECASE)
WEATHER_TOOL = re.compile(r"weather|forecast|temperature|climate")
PLACE_PARAMETER = re.compile(r"city|location|place|town|where")
LISTED_PLACES = re.compile(r"\b(?:in|between|of|for|at)\s+(.+)", re.IGNORECASE | re.DOTALL)
PLACE_SEPARATORS = re.compile(
    r"\s*(?:,|;|\?|\.(?:\s|$)|\band\b|\bor\b|\bvs\.?\s|\bversus\b|\bthan\b|\bin\b|\bwith\b|\bto\b)\s*",
    re.IGNORECASE,
)
PROPER_PLACE = re.compile(
    r"\b[A-ZÀ-ÞĀ-Ž][\w'.-]*(?:\s+(?:(?:de|da|do|del|la|of|am|an|der)\s+)?[A-ZÀ-ÞĀ-Ž][\w'-]*)*"
)
NON_PLACE_WORDS = frozenset(
    """a an and any are at be but by can check city colder compare could did difference do does fetch find
    for forecast get give hello here hi how i i'm in is it its let like look me much my next no not now of on
    or please right say show so such tell than that the then there these this to today tomorrow tonight use
    using versus want warmer was we weather week well were what what's when where which while who will with
    would yes yesterday you your c f celsius fahrenheit monday tuesday wednesday thursday friday saturday
    sunday january february march april may june july august september october
    november december""".split()  # noqa: SIM905  a list of words reads as words
)
DEGREES = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:°\s*|degrees?\s*)?(C|F|celsius|fahrenheit)\b", re.IGNORECASE)
BARE_DEGREES = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:°|degrees?)", re.IGNORECASE)
CITIES_MAX = 16


class TemperatureReading(Value, kw_only=True):
    city: str
    value: float
    unit: str

    @property
    def celsius(self) -> float:
        return (self.value - 32) / 1.8 if self.unit == "F" else self.value

    def __str__(self) -> str:
        return f"{self.value:g} °{self.unit or 'C'}" if self.unit else f"{self.value:g} degrees"


def try_weather(facts: ConversationFacts) -> ResponderMove | None:
    tool = next(
        (tool for tool in facts.tools if matches_purpose(tool, WEATHER_TOOL) and _find_place_parameter(tool)),
        None,
    )
    if tool is None or not WEATHER_REQUEST.search(facts.prompt):
        return None
    place = _find_place_parameter(tool)
    assert place is not None
    cities = find_cities(facts.prompt, place.options)
    if not cities:
        return None
    done = {str(item.arguments.get(place.name, "")): item for item in facts.exchanges_with(tool)}
    missing = [city for city in cities if city not in done]
    if missing and not any(item.is_error for item in done.values()):
        return tuple(make_call(tool, {place.name: city}, facts.prompt) for city in missing)
    return TextMove(text=_compare_cities(facts.prompt, done))


def _find_place_parameter(tool: ToolSpec) -> ToolParameterSpec | None:
    named = find_text_parameter(tool, PLACE_PARAMETER)
    if named is not None:
        return named
    return next(
        (item for item in list_parameters(tool) if item.options and PLACE_PARAMETER.search(item.name)), None
    )


def find_cities(prompt: str, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Find the cities in a prompt: listed options, else proper names, else the items of a list."""
    if options:
        found = [
            option for option in options if re.search(rf"\b{re.escape(option)}\b", prompt, re.IGNORECASE)
        ]
        return tuple(found)
    named = [_strip_non_place_words(name) for name in PROPER_PLACE.findall(prompt)]
    if not any(named):
        listed = LISTED_PLACES.search(prompt)
        named = (
            [_strip_non_place_words(piece) for piece in PLACE_SEPARATORS.split(listed.group(1))]
            if listed
            else []
        )
    return tuple(dict.fromkeys(name for name in named if name))[:CITIES_MAX]


def _strip_non_place_words(phrase: str) -> str:
    """Strip words that are not part of a place name from both ends; "" if nothing remains."""
    words = [word.strip(".,?!:'") for word in phrase.split()]
    while words and words[0].lower() in NON_PLACE_WORDS:
        words.pop(0)
    while words and words[-1].lower() in NON_PLACE_WORDS:
        words.pop()
    return " ".join(words)


def _compare_cities(prompt: str, done: dict[str, ToolExchange]) -> str:
    failed = [
        f"I could not get the weather for {city}: {item.text}" for city, item in done.items() if item.is_error
    ]
    good = {city: item for city, item in done.items() if not item.is_error}
    readings = [reading for city, item in good.items() if (reading := _parse_reading(city, item.text))]
    if len(readings) < 2 or len(readings) < len(good):
        lines = [f"{city}: {item.text}" for city, item in good.items()]
        return "\n".join([*lines, *failed])
    return " ".join([_rank_readings(readings, coldest=bool(COLD_WORDS.search(prompt))), *failed])


def _rank_readings(readings: Sequence[TemperatureReading], *, coldest: bool) -> str:
    ranked = sorted(readings, key=lambda reading: reading.celsius, reverse=not coldest)
    first, others = ranked[0], ranked[1:]
    if all(other.celsius == first.celsius for other in others):
        return f"It is equally warm in {_join_items([item.city for item in ranked])}: {first}."
    word = ("colder" if coldest else "warmer") if len(ranked) == 2 else ("coldest" if coldest else "warmest")
    against = _join_items([f"{other} in {other.city}" for other in others])
    return f"It is {word} in {first.city}: {first}, against {against}."


def _parse_reading(city: str, text: str) -> TemperatureReading | None:
    return _parse_json_reading(city, text) or _parse_text_reading(city, text)


def _parse_json_reading(city: str, text: str) -> TemperatureReading | None:
    """Read a temperature by its property name, from a result that is a JSON object."""
    try:
        known = msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError:
        return None
    for name, value in known.items():
        if "temp" in name.lower() and isinstance(value, int | float):
            unit = (
                "F"
                if name.lower().endswith(("_f", "fahrenheit"))
                else "C"
                if name.lower().endswith("c")
                else ""
            )
            return TemperatureReading(city=city, value=float(value), unit=unit)
    return None


def _parse_text_reading(city: str, text: str) -> TemperatureReading | None:
    found = DEGREES.search(text)
    if found:
        return TemperatureReading(city=city, value=float(found.group(1)), unit=found.group(2)[0].upper())
    bare = BARE_DEGREES.search(text)
    return TemperatureReading(city=city, value=float(bare.group(1)), unit="") if bare else None


def _join_items(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"

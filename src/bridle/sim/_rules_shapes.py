"""Fields against their definitions, as rows: a path, a demand, a value that passes and one that does not.

Every provider checks the same few things of a field before it asks what the request means: whether it is
there, what kind of JSON it is, whether it is one of a list, how large, how long.  They differ in how
they write a place down and in the sentence.  So there is one checker for all of them.  A family lends it a
`Voice` and lists its fields; each row becomes a rule with an id, its sentence and its examples.

A path is written `tools[].function.name`, with `[]` for every member of a list.  Examples are made
of the row alone and never by what a rule runs, so that a rule which looks wrongly is found out by them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ..values.model import Abilities
from ._rules_reading import Also, Block, Finder, listed, mapping, number, to
from .rules import Asked, Found, Rule

Which = Callable[[Block], bool]
KINDS: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    list: "array",
    tuple: "array",
}
"""What JSON calls a value.  By the exact type: true is no integer."""


NOTHING: Block = {}


class Spot(NamedTuple):
    at: str
    value: object
    holder: Block
    """What it stands in."""
    inside: str
    """Where that stands."""
    there: bool = True


class Sentence(NamedTuple):
    words: str
    code: str


def _as_named(name: str) -> str:
    return name


def _of_kind(value: object, kinds: Sequence[str]) -> bool:
    return KINDS[type(value)] in kinds


def _nothing_more(value: object, expected: str) -> Found:
    return {}


def listing(values: Sequence[object], last: str = "and") -> str:
    quoted = [f"'{value}'" for value in values]
    if len(quoted) < 3:
        return f" {last} ".join(quoted)
    return f"{', '.join(quoted[:-1])}, {last} {quoted[-1]}"


KINDS_AS_THEY_ARE = {kind: kind for kind in KINDS.values()}


class Voice(NamedTuple):
    """How a family checks and tells."""

    asked: Callable[..., Asked]
    """A small legal request with these fields changed."""
    rule: Callable[..., Rule]
    sentences: Mapping[str, Sentence]
    """By demand: type, value, required, fields, least, most, length, count, some, pattern.

    `{at}` and the like are blanks of the rule; `<expected>` and `<noun>` are filled when it is made.
    """
    expects: Mapping[str, str]
    """The kinds it may ask for, in its own words."""
    kinds: Mapping[str, str] = KINDS_AS_THEY_ARE
    """The kinds it may be given, in its own words."""
    member: str = "[{}]"
    first: int = 0
    """How it counts the members of a list, and from what."""
    spelled: Callable[[str], str] = _as_named
    """How it writes names in places; a body may use either spelling."""
    null_is_absent: bool = False
    """Whether a null is as good as nothing anywhere; where it is not, kinds have to name it."""
    null_is_missing: bool = True
    """Whether a null where something has to be is told as nothing, and not as something else."""
    fits: Callable[[object, Sequence[str]], bool] = _of_kind
    mismatch: Callable[[object, str], Found] = _nothing_more
    """What else it tells of a value that was to be something else."""
    listing: Callable[[Sequence[object]], str] = listing
    param: str = ""
    """Which blank of a sentence names the field at fault."""


def _any(holder: Block) -> bool:
    return True


class Row(NamedTuple):
    """What a row may say beside its demand."""

    id: str = ""
    within: Block = NOTHING
    """What else the object around it holds in the examples."""
    beside: Block = NOTHING
    """What else the request says in the examples."""
    model: Abilities | None = None
    only: Which = _any
    """The objects around it that the demand is about."""
    at: str = ""
    """The place as it is told, where the path does not say it: in a union the chosen kind is part of it."""
    evidence: str = "F"
    also: Also = ()
    models: str = "all"
    param: str = ""
    """Which field is blamed, where it is another."""
    words: str = ""
    """A sentence of its own."""
    says: str = ""
    """What the offender is told, where the row cannot tell by itself."""


PLAIN = Row()
EMPTY: tuple[object, ...] = ()
ABSENT = object()
"""In an example: the field is not there."""
Judge = Callable[[Spot], Found | None]


def spots(voice: Voice, body: Block, path: str) -> Iterator[Spot]:
    """Every place in a body that a path means, whether or not something stands there."""
    found = [Spot("", body, {}, "")]
    for step in path.split("."):
        name = step.removesuffix("[]")
        found = [_member(voice, spot, name) for spot in found if isinstance(spot.value, dict)]
        if step != name:
            found = [inner for spot in found for inner in _members(voice, spot)]
    yield from found


def _member(voice: Voice, spot: Spot, name: str) -> Spot:
    holder = mapping(spot.value)
    key = name if name in holder else voice.spelled(name)
    at = f"{spot.at}.{voice.spelled(name)}".lstrip(".")
    return Spot(at, holder.get(key), holder, spot.at, key in holder)


def _members(voice: Voice, spot: Spot) -> Iterator[Spot]:
    for count, value in enumerate(listed(spot.value), voice.first):
        yield Spot(spot.at + voice.member.format(count), value, spot.holder, spot.at)


class Shapes:
    """Makes rules of rows: each row says what is demanded, what passes and what does not."""

    def __init__(self, voice: Voice) -> None:
        self.voice = voice

    def typed(
        self, path: str, kinds: str, takes: object, refuses: object, row: Row = PLAIN, *, expected: str = ""
    ) -> Rule:
        """A value that is there is of one of these kinds (`string|array`)."""
        voice, allowed = self.voice, _kinds(kinds)
        words = expected or voice.expects[kinds.removesuffix("|null")]

        def judge(spot: Spot) -> Found | None:
            absent = spot.value is None and voice.null_is_absent
            if not spot.there or absent or voice.fits(spot.value, allowed):
                return None
            shown = msgspec.json.encode(spot.value).decode()
            got = voice.kinds[KINDS[type(spot.value)]]
            return {"got": got, "shown": shown, **voice.mismatch(spot.value, words)}

        told = json.dumps(refuses, separators=(",", ":")) if not isinstance(refuses, Asked) else ""
        blanks = {"got": voice.kinds.get(KINDS.get(type(refuses), ""), ""), "shown": told}
        return self._rule("type", path, judge, takes, refuses, row, filled={"expected": words}, blanks=blanks)

    def one_of(
        self, path: str, values: Sequence[str], takes: object, refuses: object, row: Row = PLAIN
    ) -> Rule:
        def judge(spot: Spot) -> Found | None:
            odd = isinstance(spot.value, str) and spot.value not in values
            return {"value": spot.value} if odd else None

        filled = {"expected": self.voice.listing(values)}
        return self._rule("value", path, judge, takes, refuses, row, filled=filled, blanks={"value": refuses})

    def required(self, path: str, takes: object, row: Row = PLAIN, *, refuses: object = ABSENT) -> Rule:
        def judge(spot: Spot) -> Found | None:
            missing = spot.value is None and (self.voice.null_is_missing or not spot.there)
            return {} if missing else None

        return self._rule("required", path, judge, takes, refuses, row)

    def at_least(self, path: str, least: float, takes: object, refuses: object, row: Row = PLAIN) -> Rule:
        def judge(spot: Spot) -> Found | None:
            return {"value": spot.value} if number(spot.value) and spot.value < least else None

        filled = {"expected": f"{least:g}", "noun": _noun(least)}
        return self._rule("least", path, judge, takes, refuses, row, filled=filled, blanks={"value": refuses})

    def at_most(self, path: str, most: float, takes: object, refuses: object, row: Row = PLAIN) -> Rule:
        def judge(spot: Spot) -> Found | None:
            return {"value": spot.value} if number(spot.value) and spot.value > most else None

        filled = {"expected": f"{most:g}", "noun": _noun(most)}
        return self._rule("most", path, judge, takes, refuses, row, filled=filled, blanks={"value": refuses})

    def shorter(self, path: str, most: int, takes: object, refuses: object, row: Row = PLAIN) -> Rule:
        def judge(spot: Spot) -> Found | None:
            words = spot.value if isinstance(spot.value, str) else ""
            return {"length": len(words)} if len(words) > most else None

        filled, blanks = {"expected": most}, {"length": _length(refuses)}
        return self._rule("length", path, judge, takes, refuses, row, filled=filled, blanks=blanks)

    def fewer(self, path: str, most: int, takes: object, refuses: object, row: Row = PLAIN) -> Rule:
        def judge(spot: Spot) -> Found | None:
            count = len(listed(spot.value))
            return {"length": count} if count > most else None

        filled, blanks = {"expected": most}, {"length": _length(refuses)}
        row = row._replace(id=row.id or _slug(path, "most"))
        return self._rule("count", path, judge, takes, refuses, row, filled=filled, blanks=blanks)

    def some(self, path: str, takes: object, row: Row = PLAIN, *, refuses: object = EMPTY) -> Rule:
        def judge(spot: Spot) -> Found | None:
            return {} if spot.value in ([], ()) else None

        return self._rule("some", path, judge, takes, refuses, row)

    def matching(self, path: str, pattern: str, takes: object, refuses: object, row: Row = PLAIN) -> Rule:
        regex = re.compile(pattern)

        def judge(spot: Spot) -> Found | None:
            odd = isinstance(spot.value, str) and not regex.search(spot.value)
            return {"pattern": pattern} if odd else None

        return self._rule("pattern", path, judge, takes, refuses, row, blanks={"pattern": pattern})

    def known(
        self, path: str, names: Sequence[str], takes: object, refuses: str | Asked, row: Row = PLAIN
    ) -> Rule:
        """Nothing but these names in the objects at a path; an empty path is the body itself."""
        voice = self.voice
        spellings = {*names, *map(voice.spelled, names)}

        def find(request: Asked) -> Found | None:
            whole = (Spot("", request.body, {}, ""),)
            for spot in spots(voice, request.body, path) if path else whole:
                for name in mapping(spot.value):
                    if name not in spellings and row.only(mapping(spot.value)):
                        return {"at": f"{spot.at}.{name}".lstrip("."), "name": name, "inside": spot.at}
            return None

        place = _first_place(voice, path)
        blanks = {"at": f"{place}.{refuses}".lstrip("."), "name": refuses, "inside": place}
        refused = refuses if isinstance(refuses, Asked) else {**row.within, refuses: 1}
        row = row._replace(id=row.id or _slug(path, "fields"), within={})
        sentence = voice.sentences["fields" if path else "fields-of-all"]
        return self._made(
            row, find, sentence, self._asking(row, path, takes), self._asking(row, path, refused), blanks
        )

    def _rule(
        self,
        demand: str,
        path: str,
        judge: Judge,
        takes: object,
        refuses: object,
        row: Row,
        *,
        filled: Block = NOTHING,
        blanks: Found = NOTHING,
    ) -> Rule:
        voice = self.voice

        def find(request: Asked) -> Found | None:
            for spot in spots(voice, request.body, path):
                found = judge(spot) if row.only(spot.holder) else None
                if found is not None:
                    return {"at": row.at or spot.at, "inside": spot.inside, **found}
            return None

        words, code = voice.sentences[demand]
        words = row.words or words
        for blank, filling in filled.items():
            words, code = (said.replace(f"<{blank}>", str(filling)) for said in (words, code))
        passes, offends = self._asking(row, path, takes), self._asking(row, path, refuses)
        told = {"at": row.at or _first_place(voice, path), **blanks}
        row = row._replace(id=row.id or _slug(path, demand))
        return self._made(row, find, Sentence(words, code), passes, offends, told)

    def _made(
        self, row: Row, find: Finder, sentence: Sentence, passes: Asked, offends: Asked, blanks: Found
    ) -> Rule:
        made: Rule = self.voice.rule(
            row.id,
            find,
            sentence.words,
            code=sentence.code,
            evidence=row.evidence,
            passes=passes,
            offends=offends,
            says=row.says or sentence.words.format(**blanks),
            models=row.models,
            also=row.also,
            param=row.param or self.voice.param,
        )
        return made

    def _asking(self, row: Row, path: str, value: object) -> Asked:
        """An example: this value at the path of a small legal request, or a whole request as it is."""
        if isinstance(value, Asked):
            return value
        fields = _nested(path.split("."), value, row.within) if path else mapping(value)
        if value is ABSENT and "." not in path:
            fields = {path: None}  # the way to ask for a request without it
        asked = self.voice.asked(**{**row.beside, **fields})
        return to(row.model, asked) if row.model is not None else asked


def _kinds(kinds: str) -> tuple[str, ...]:
    names = kinds.split("|")
    return (*names, "integer") if "number" in names else tuple(names)


def _length(example: object) -> int:
    return len(example) if isinstance(example, str | list) else 0


def _noun(limit: float) -> str:
    return "integer" if isinstance(limit, int) else "decimal"


def _slug(path: str, suffix: str) -> str:
    name = "-".join(step.removesuffix("[]") for step in path.split("."))
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", "-", f"{name}-{suffix}").lower().lstrip("-")


def _first_place(voice: Voice, path: str) -> str:
    index = voice.member.format(voice.first)
    names = (step.partition("[") for step in path.split("."))
    return ".".join(voice.spelled(name) + (index if bracket else "") for name, bracket, _ in names)


def _nested(steps: Sequence[str], value: object, within: Block) -> dict[str, object]:
    """The fields of a body with this value at a path."""
    step, *rest = steps
    if value is ABSENT and not rest:
        return dict(within)
    inner = _nested(rest, value, within) if rest else value
    held = [inner] if step.endswith("[]") else inner
    return {**({} if rest else within), step.removesuffix("[]"): held}

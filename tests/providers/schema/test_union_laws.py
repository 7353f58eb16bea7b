"""Unions of output types: each value comes back as exactly its own type, or the agent cannot be made.

Generated unions of every kind of type, through the schema that each wire is sent, whole and while the answer arrives.
Seeded: the number of a failing union is enough to see it again.
`BRIDLE_CAMPAIGN=5 pytest -s tests/providers/schema/test_union_laws.py` tries 10,000 unions.
"""

import dataclasses
import json
import random
import typing
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, Union
from uuid import UUID

import msgspec
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PydanticUserError,
    create_model,
)
from typing_extensions import TypedDict

from bridle import Agent, MisuseError
from bridle.core.evaluate_reply import find_output_problem
from bridle.providers.schema.compiler import all_dialects, compile_schema, find_dialect, restore_arguments
from bridle.run.sync import run_in_background
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import tool
from bridle.tools.schema.output_type import make_output_type
from bridle.tools.schema.partial_output import PartialTracker
from bridle.values.request import OutputSpec
from bridle.values.result import TextDelta
from tests.providers.schema.schema_rules import RULES, as_json_schema
from tests.providers.schema.schema_samples import fill_nulls, validator
from tests.suite.campaign import list_seeds

T = TypeVar("T")
UNIONS = list_seeds(2_000, least=50)
VALUES = 3
DIALECTS = [row.name for row in all_dialects()]


class Colour(Enum):
    RED = "red"
    DAY = "2026-05-01"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


TEXTS = ("red", "", "a", "ab", "2026-05-01", "2026-05-01T10:00:00Z", "10:00:00", "12.50", "1", "approve", "Cfg",
         "12345678123456781234567812345678", "12345678-1234-5678-1234-567812345678")  # fmt: skip
SCALARS: dict[Any, tuple[Any, ...]] = {
    str: TEXTS,
    int: (0, 1, 2, -7),
    float: (0.5, 1.0, 2.0, -7.25),
    bool: (True, False),
    type(None): (None,),
    date: (date(2026, 5, 1),),
    datetime: (datetime(2026, 5, 1, 10, tzinfo=UTC),),
    UUID: (UUID("12345678123456781234567812345678"),),
    Decimal: (Decimal("12.50"), Decimal(1)),
    PurePosixPath: (PurePosixPath("a"), PurePosixPath("red")),
    Colour: tuple(Colour),
    Level: tuple(Level),
    Literal["approve", "a"]: ("approve", "a"),
    Literal["approve", 1]: ("approve", 1),
    Literal["ab"]: ("ab",),
    Literal[1, 3]: (1, 3),
    Literal[True]: (True,),
}
FIELDS = ("a", "b", "reason", "type", "kind", "value")
CLASSES = ("Approve", "Reject", "ApproveAll", "Cfg", "Wait", "Value")
TECHNOLOGIES = (
    "dataclass",
    "typed_dict",
    "named_tuple",
    "struct",
    "tagged_struct",
    "pydantic",
    "open_pydantic",
)


class Made:
    """One generated union, with what its values are made of."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"union {seed}")
        self.classes: dict[Any, tuple[str, dict[str, tuple[Any, bool]]]] = {}
        self.tags: dict[Any, tuple[Any, ...]] = {}
        names = self.chance.sample(CLASSES, k=len(CLASSES)) + [f"More{n}" for n in range(50)]
        self._names = iter(names)
        count = self.chance.choice((2, 2, 2, 3, 3, 4, 5))
        shared = self.make_fields(depth=1) if self.chance.random() < 0.6 else None
        self.members = [self.make_member(2, shared) for _ in range(count)]

    def make_member(self, depth: int, shared=None) -> Any:
        kind = self.chance.random()
        if kind < 0.55:
            return self.make_class(depth, shared)
        return self.make_type(depth)

    def make_type(self, depth: int) -> Any:
        kind = self.chance.random()
        if depth <= 0 or kind < 0.5:
            return self.chance.choice([*SCALARS, *self.tags])
        inner = lambda: self.make_type(depth - 1)  # noqa: E731
        if kind < 0.6:
            return list[inner()]  # type: ignore[misc]
        if kind < 0.65:
            return tuple[inner(), ...]  # type: ignore[misc]
        if kind < 0.7:
            return tuple[inner(), inner()]  # type: ignore[misc]
        if kind < 0.74:
            return set[self.chance.choice((int, str, date, float))]  # type: ignore[misc]
        if kind < 0.8:
            return dict[str, inner()]  # type: ignore[misc]
        if kind < 0.9:
            return Union[tuple(inner() for _ in range(2))]  # noqa: UP007
        return self.make_class(depth - 1, None)

    def make_fields(self, depth: int) -> dict[str, tuple[Any, bool]]:
        names = self.chance.sample(FIELDS, k=self.chance.choice((0, 1, 1, 2, 2, 3)))
        fields = {name: (self.make_type(depth - 1), self.chance.random() < 0.3) for name in names}
        # Fields with defaults come last, as dataclasses require.
        return dict(sorted(fields.items(), key=lambda each: each[1][1]))

    def make_class(self, depth: int, shared) -> Any:
        fields = (
            dict(shared) if shared is not None and self.chance.random() < 0.7 else self.make_fields(depth)
        )
        if shared is not None and self.chance.random() < 0.3:
            fields["extra"] = (self.make_type(0), True)
        technology, name = self.chance.choice(TECHNOLOGIES), next(self._names)
        if self.chance.random() < 0.15:
            fields = {"tag": (Literal[name.lower()], False), **fields}
            # Of this union alone: a union must not depend on those before it.
            self.tags[Literal[name.lower()]] = (name.lower(),)
        try:
            made = make_class(technology, name, fields, self)
        except PydanticUserError:  # a struct inside a model
            technology = "dataclass"
            made = make_class(technology, name, fields, self)
        self.classes[made] = technology, fields
        return made

    def value_of(self, wanted: Any) -> Any:
        if wanted in SCALARS or wanted in self.tags:
            return self.chance.choice(SCALARS.get(wanted) or self.tags[wanted])
        origin, args = typing.get_origin(wanted), typing.get_args(wanted)
        if origin is Union or type(wanted).__name__ == "UnionType":
            return self.value_of(self.chance.choice(args))
        if origin in (list, set):
            return origin(self.value_of(args[0]) for _ in range(self.chance.choice((0, 1, 2))))
        if origin is tuple:
            parts = (args[0],) * self.chance.choice((0, 1, 2)) if args[1:] == (...,) else args
            return tuple(self.value_of(part) for part in parts)
        if origin is dict:
            return {
                name: self.value_of(args[1])
                for name in self.chance.sample(FIELDS, k=self.chance.choice((0, 1, 2)))
            }
        technology, fields = self.classes[wanted]
        given = {
            name: self.value_of(held) for name, (held, optional) in fields.items()
            if not optional or self.chance.random() < 0.5
        }  # fmt: skip
        if technology == "open_pydantic" and self.chance.random() < 0.3:
            given["type_of"] = "red"
        return given if technology == "typed_dict" else wanted(**given)


made: Any


def make_class(technology, name, fields, made):
    """A class with these fields; the default of an optional one is a value of its type."""
    defaults = {key: made.value_of(held) for key, (held, optional) in fields.items() if optional}
    safe = {
        key: held
        for key, held in defaults.items()
        if held is None or isinstance(held, str | int | float | date)
    }
    if technology == "typed_dict":
        hints = {
            key: typing.NotRequired[held] if optional else held for key, (held, optional) in fields.items()
        }
        return TypedDict(name, hints)
    for key in defaults:
        if key not in safe:
            fields[key] = (fields[key][0], False)
    ordered = sorted(fields, key=lambda key: key in safe)
    if technology == "dataclass":
        listed = [
            (k, fields[k][0], dataclasses.field(default=safe[k])) if k in safe else (k, fields[k][0])
            for k in ordered
        ]
        return dataclasses.make_dataclass(name, listed)
    if technology == "named_tuple":
        made = NamedTuple(name, [(k, fields[k][0]) for k in ordered])  # type: ignore[misc, no-redef]
        made.__new__.__defaults__ = tuple(safe[k] for k in ordered if k in safe)
        made._field_defaults = {k: safe[k] for k in ordered if k in safe}
        return made
    if technology in ("struct", "tagged_struct"):
        listed = [(k, fields[k][0], safe[k]) if k in safe else (k, fields[k][0]) for k in ordered]
        tags = {"tag_field": "op", "tag": name.lower()} if technology == "tagged_struct" else {}
        return msgspec.defstruct(name, listed, kw_only=True, **tags)
    config = ConfigDict(extra="allow") if technology == "open_pydantic" else ConfigDict()
    listed: Any = {k: (fields[k][0], safe.get(k, ...)) for k in ordered}  # type: ignore[no-redef]
    return create_model(name, __config__=config, **listed)  # type: ignore[arg-type]


def is_same(first: Any, second: Any) -> bool:
    """Equal, and of the same types at every place."""
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(is_same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(is_same, first, second))
    if isinstance(first, set):
        return {(type(each), each) for each in first} == {(type(each), each) for each in second}
    names = list_names(first)
    if names is None:
        return first == second
    return all(is_same(getattr(first, name), getattr(second, name)) for name in names)


def list_names(value: Any) -> list[str] | None:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if isinstance(value, BaseModel):
        return [*type(value).model_fields, *(value.model_extra or {})]
    return [each.name for each in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else None


def is_part(part: Any, whole: Any) -> bool:
    """A value so far has the types of what it becomes; fields that have not arrived have their defaults."""
    if type(part) is not type(whole):
        return False
    if isinstance(part, str) and not isinstance(part, Enum):
        return whole.startswith(part)
    if isinstance(part, list | tuple) and list_names(part) is None and not hasattr(part, "_fields"):
        return len(part) <= len(whole) and all(map(is_part, part, whole[: len(part)]))
    if isinstance(part, dict):
        return all(name in whole and is_part(held, whole[name]) for name, held in part.items())
    return True


class SentSchema(NamedTuple):
    """The schema of a union as one dialect sends it, judged by the rules of that wire."""

    dialect: Any
    sent: Any
    judged: Any
    accepts: Any


def compile_for_dialects(output, seed) -> list[SentSchema]:
    """Once per union: what is sent does not depend on the value."""
    found = []
    for name in DIALECTS:
        row = find_dialect(name)
        sent = compile_schema(output.schema, row)
        judged = json.loads(sent.text)
        assert not list(RULES[sent.dialect](judged)), (seed, name)
        used = find_dialect(sent.dialect)
        accepts = validator(as_json_schema(judged) if used.types == "upper" else judged)
        found.append(SentSchema(row, sent, judged, accepts))
    return found


def check_value(output, spec, sent_schemas, member_value, seed) -> None:
    form = output.dump(member_value)
    text = json.dumps(form)
    assert not find_output_problem(spec, text), (seed, text, output.schema)
    assert is_same(output.load(text), member_value), (
        seed,
        member_value,
        output.load(text),
        text,
        output.schema,
    )
    for row, sent, judged, accepts in sent_schemas:
        written = {
            next((new for new, old in sent.renamed if old == key), key): held for key, held in form.items()
        }
        if sent.strict and row.all_required:
            written = fill_nulls(written, judged, judged)
        assert accepts.is_valid(written), (seed, row.name, text, sent.text)
        if (
            row.all_required
        ):  # no wire is sent a schema rewritten for it: null may be a value of a field left out
            continue
        back = restore_arguments(json.dumps(written), output.schema, row)
        assert is_same(output.load(back), member_value), (seed, row.name, text, back)
    check_stream(output, text, member_value, seed)


def check_stream(output, text, member_value, seed) -> None:
    tracker, chance = PartialTracker(output), random.Random(f"pieces {seed}")
    at = 0
    while at < len(text):
        size = chance.choice((1, 1, 2, 3, 7))
        tracker.apply(TextDelta(text=text[at : at + size]))
        at += size
        partial = tracker.read()
        if partial is not None and partial.output is not None:
            assert is_part(partial.output, member_value), (seed, text[:at], partial.output, member_value)
    last = tracker.read()
    assert last is not None and (is_same(last.output, member_value)), (seed, text, last)


@pytest.mark.slow
def test_every_value_of_a_generated_union_comes_back_as_its_own_type():
    counts = Counter()
    for seed in UNIONS:
        made = Made(seed)
        wanted = made.members if made.chance.random() < 0.5 else Union[tuple(made.members)]  # noqa: UP007
        try:
            output = make_output_type(wanted)
        except MisuseError as error:
            assert "\n" not in str(error)
            counts["refused"] += 1
            continue
        spec = OutputSpec(name=output.name, parameters=output.schema)
        counts["made"] += 1
        sent_schemas = compile_for_dialects(output, seed)
        for member in made.members:
            for _ in range(VALUES):
                check_value(output, spec, sent_schemas, made.value_of(member), seed)
                counts["values"] += 1
    assert counts["made"] > counts["refused"] > 0
    print(f"\n{len(UNIONS)} unions: {dict(counts)}")


# ── the first of the class: equal fields ────────────────────────────────────


@dataclasses.dataclass
class Approve:
    """The request is granted."""

    reason: str


@dataclasses.dataclass
class Reject:
    """The request is not granted."""

    reason: str
    code: int = 0


class ApproveModel(BaseModel):
    reason: str


class RejectModel(BaseModel):
    reason: str


class ApproveStruct(msgspec.Struct):
    reason: str


class RejectStruct(msgspec.Struct):
    reason: str


class ApproveDict(TypedDict):
    reason: str


class RejectDict(TypedDict):
    reason: str


class Decision(BaseModel):
    decided: ApproveModel | RejectModel


class Tagged(BaseModel):
    kind: Literal["a"] = "a"
    reason: str


class OtherTagged(BaseModel):
    kind: Literal["ab"] = "ab"
    reason: str


class One(IntEnum):
    ONE = 1


class Half(float, Enum):
    WHOLE = 1.0


class Truth(Enum):
    YES = True
    NO = False


def make_number_model(held):
    return create_model("Numbered", held=(held, ...))


class TaggedDecision(BaseModel):
    decided: Annotated[Tagged | OtherTagged, Field(discriminator="kind")]


@dataclasses.dataclass
class Letter:
    decided: list[Approve | Reject]


WIRES = (
    "sim:anthropic/claude-sonnet-5-5",
    "sim:openai/gpt-6-sol",
    "sim:openai-chat/gpt-5.4",
    "sim:gemini/gemini-3.5-flash",
    "sim:bedrock_converse/global.anthropic.claude-sonnet-4-6",
)
PAIRS = [
    (Approve, Reject),
    (ApproveModel, RejectModel),
    (ApproveStruct, RejectStruct),
    (Approve, RejectModel),
]


@pytest.mark.parametrize("model", WIRES)
@pytest.mark.parametrize("pair", PAIRS)
def test_types_with_equal_fields_are_told_apart_on_every_wire(model, pair):
    """The schema that is sent names both types, and an answer is of the type that it names, whole and streamed."""
    for wanted in pair:
        line = scripted(json.dumps({"value": {"type": wanted.__name__, "reason": "r"}}), model=model)
        agent = Agent(line, output=list(pair))
        assert type(agent.run_sync("?").output) is wanted
        (request,) = line.script.requests
        sent = request.output.parameters
        assert all(json.dumps({"enum": [each.__name__]})[1:-1].replace(" ", "") in sent for each in pair)

    line = scripted(json.dumps({"value": {"type": pair[1].__name__, "reason": "a long reason"}}), model=model)
    seen = run_in_background(read_partial(Agent(line, output=list(pair))))
    assert {type(each) for each in seen if each is not None} == {pair[1]}


async def read_partial(agent):
    return [partial.output async for partial in agent.stream("?").partial()]


def test_the_names_of_types_are_sent_where_no_tag_is_needed():
    schema = json.loads(make_output_type([Approve, int, OtherShape]).schema)
    assert [option.get("title") for option in schema["properties"]["value"]["anyOf"]] == [
        "Approve",
        None,
        "OtherShape",
    ]


@dataclasses.dataclass
class OtherShape:
    width: int


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ([ApproveDict, RejectDict], "`ApproveDict` and `RejectDict` can be the same dict"),
        (Decision, "`ApproveModel` and `RejectModel` can be the same JSON"),
        (list[Decision], "`ApproveModel` and `RejectModel` can be the same JSON"),
    ],
)
def test_what_stays_ambiguous_is_refused_when_the_agent_is_made(wanted, words):
    with pytest.raises(MisuseError) as caught:
        Agent(scripted(), output=wanted)
    assert words in str(caught.value) and "\n" not in str(caught.value)


NUMBERS = [One, Half, Literal[1], One | str, One | None]


@pytest.mark.parametrize("held", NUMBERS)
def test_a_boolean_is_no_number_of_an_enum_in_a_union(held):
    """Pydantic takes `true` for 1 there, also if it validates strictly."""
    flag = create_model("Flag", held=(bool, ...))
    output = make_output_type([make_number_model(held), flag])
    assert is_same(output.load('{"value": {"held": true}}'), flag(held=True))


@pytest.mark.parametrize("held", [*NUMBERS, list[One], set[One], dict[str, One], tuple[One, ...]])
def test_a_boolean_is_no_number_of_an_enum_in_a_pydantic_model(held):
    form = {list: [True], set: [True], tuple: [True], dict: {"a": True}}.get(typing.get_origin(held), True)
    with pytest.raises(ValueError, match="not true"):
        make_output_type(make_number_model(held)).load(json.dumps({"held": form}))


def test_a_model_may_make_a_number_of_a_boolean():
    model = create_model("Counted", held=(Annotated[bool, AfterValidator(int)], ...), other=(bool | One, ...))
    made: Any = make_output_type(model).load('{"held": true, "other": true}')
    assert (made.held, type(made.held), made.other) == (1, int, True)


def make_truth_model(held):
    return create_model("Truth", held=(held, ...))


@pytest.mark.parametrize(
    ("taken", "form"),
    [
        (Literal[True], 1),
        (Literal[False, "a"], 0),
        (Truth, 1),
        (Annotated[int, BeforeValidator(int)], "5"),
    ],
)
def test_what_the_validation_of_a_type_takes_besides_its_schema_is_of_another_type(taken, form):
    """Pydantic takes 1 for `Literal[True]`, also if it validates strictly; a validator may convert anything."""
    number = create_model("Other", held=(type(form), ...))
    output = make_output_type([make_truth_model(taken), number])
    assert is_same(output.load(json.dumps({"value": {"held": form}})), number(held=form))


@pytest.mark.parametrize(
    "held",
    [
        Literal[True] | int,
        Literal[False, "a"] | int | float,
        Truth | int,
        list[Literal[True]] | list[int],
        make_truth_model(Literal[True]) | make_number_model(int),
    ],
)
def test_a_number_that_pydantic_takes_for_a_boolean_is_refused_when_the_agent_is_made(held):
    with pytest.raises(MisuseError, match="can be the same JSON"):
        Agent(scripted(), output=create_model("Holder", held=(held, ...)))


@dataclasses.dataclass
class Labelled:
    type: str
    reason: str


@dataclasses.dataclass
class Verdict:
    item: Approve | Reject


@dataclasses.dataclass
class Label:
    item: Labelled


@dataclasses.dataclass
class When:
    item: date | str


@dataclasses.dataclass
class Words:
    item: dict[str, str]


TAG_LIKE = {"type": "date", "value": "2026-05-01"}


@pytest.mark.parametrize(
    ("wanted", "values"),
    [
        ([list[Approve | Reject], list[Labelled]], ([Approve("r")], [Labelled("Approve", "r")])),
        ([Verdict, Label], (Verdict(Approve("r")), Label(Labelled("Approve", "r")))),
        ([When, Words], (When(date(2026, 5, 1)), Words(TAG_LIKE))),
        ([list[date | str], list[dict[str, str]]], ([date(2026, 5, 1)], [TAG_LIKE])),
    ],
)
def test_a_tag_inside_of_a_type_is_not_taken_for_a_field_of_another(wanted, values):
    output = make_output_type(wanted)
    for value in values:
        text = json.dumps(output.dump(value))
        assert is_same(output.load(text), value)
        check_stream(output, text, value, 0)


@dataclasses.dataclass
class Held(Generic[T]):
    item: T


def test_fields_of_a_generic_type_tell_its_forms_apart():
    output = make_output_type([Held[int], Held[float]])
    for value in (Held(1), Held(1.0)):
        assert is_same(output.load(output.dump_text(value)), value)


@pytest.mark.parametrize(
    ("wanted", "text", "expected"),
    [
        (
            [list[dict[str, Literal["ab"]]], list[OtherShape]],
            '[{"width": 1}, {"width": 2}]',
            [None, 1, None, 2],
        ),
        ([tuple[int, str], list[OtherShape]], '[{"width": 1}, {"width": 2}]', [None, 1, None, 2]),
        (list[int] | list[str], '["a", "b"]', [0, 1, 2]),
    ],
)
def test_lists_that_are_arriving_have_the_type_of_their_end(wanted, text, expected):
    """The number of items of each partial answer, in order; none while the type is not certain or does not accept it."""
    output = make_output_type(wanted)
    tracker, seen = PartialTracker(output), []  # type: ignore[arg-type]
    for letter in f'{{"value": {text}}}':
        tracker.apply(TextDelta(text=letter))
        partial = tracker.read()
        count = None if partial is None or partial.output is None else len(partial.output)
        assert count is None or type(partial.output) is list
        if partial is not None and (not seen or seen[-1] != count):
            seen.append(count)
    assert seen == expected


def test_a_model_that_tells_its_types_apart_itself_is_accepted():
    output = make_output_type(TaggedDecision)
    value = TaggedDecision(decided=OtherTagged(reason="r"))
    assert is_same(output.load(output.dump_text(value)), value)


def test_a_tag_whose_beginning_is_another_tag_is_not_taken_for_it():
    output = make_output_type(Tagged | OtherTagged)
    check_stream(output, json.dumps(output.dump(OtherTagged(reason="r"))), OtherTagged(reason="r"), 0)


def test_a_changed_answer_keeps_its_type():
    """A validator's answer is recorded as JSON; so is what an output function returns."""

    def harden(answer: Approve | Reject) -> Approve | Reject:
        return Reject(answer.reason, 7)

    line = scripted('{"value": {"type": "Approve", "reason": "r"}}')
    assert Agent(line, output=[Approve, Reject], validate=harden).run_sync("?").output == Reject("r", 7)  # type: ignore[misc]

    def decide(reason: str) -> Approve | Reject:
        return Reject(reason)

    line = scripted(call_reply(("decide", {"reason": "r"})))
    assert Agent(line, output=decide).run_sync("?").output == Reject("r")


def test_nested_unions_and_tool_parameters_are_told_apart():
    output = make_output_type(Letter)
    value = Letter([Reject("a"), Approve("b")])
    assert is_same(output.load(output.dump_text(value)), value)
    given = []

    @tool
    def decide(what: Approve | Reject, when: date | str) -> str:
        given.extend((what, when))
        return "ok"

    call = call_reply(("decide", {"what": {"type": "Reject", "reason": "r"}, "when": "2026-05-01"}))
    assert Agent(scripted(call, "done"), tools=[decide]).run_sync("?").text == "done"
    assert given == [Reject("r"), date(2026, 5, 1)]

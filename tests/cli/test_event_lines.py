"""Every kind of event, with every choice of its fields, is a line that cannot steer a terminal."""

import io
import re
import typing
from typing import Any

import msgspec
import pytest

from bridle.cli.show.transcript import SessionPrinter
from bridle.values.events import Event
from bridle.values.record import GENESIS, seal_record
from bridle.values.result import AttemptRestarted, Progress
from bridle.values.usage import Budget, Limits, RateLimit
from bridle.watchers.console import Console
from tests.cli.injections import got_through

EVIL = "\x1b[2J\x9b1A\r\u202e\x07{}%s"


def make_value(info, choice=0):
    """A value of this type in its JSON form, in which every text is hostile and every choice is the given one."""
    match info:
        case msgspec.inspect.StrType():
            return EVIL
        case msgspec.inspect.LiteralType(values=values):
            return values[choice % len(values)]
        case msgspec.inspect.EnumType(cls=kind):
            return [each.value for each in kind][choice % len(kind)]
        case msgspec.inspect.BoolType():
            return bool(choice % 2)
        case msgspec.inspect.IntType():
            return 1 + choice
        case msgspec.inspect.FloatType():
            return 0.5
        case msgspec.inspect.DecimalType():
            return "0.25"
        case msgspec.inspect.StructType(cls=kind) if kind is RateLimit:
            return {"per": "tool", "tool": EVIL, "requests": 1}
        case msgspec.inspect.StructType(cls=kind) if kind is Budget:
            return {"usd": "1", "tenant": {"usd": "1", "period": "day", "zone": "UTC"}}
        case msgspec.inspect.StructType(cls=kind) if kind is Limits:
            return {"usd": "1", "period": "day", "zone": "UTC"}
        case msgspec.inspect.StructType(fields=fields, tag=tag):
            found = {field.encode_name: make_value(field.type, choice) for field in fields}
            return {**found, "type": tag} if tag is not None else found
        case msgspec.inspect.UnionType(types=types):
            real = [each for each in types if not isinstance(each, msgspec.inspect.NoneType)]
            return make_value(real[choice % len(real)], choice)
        case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item):
            return [make_value(item, choice)]
        case msgspec.inspect.TupleType(item_types=items):
            return [make_value(item, choice) for item in items]
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return {make_value(key, choice): make_value(value, choice)}
    return None


def make_events(kind):
    for choice in range(8):
        info: Any = msgspec.inspect.type_info(kind)
        fields = {field.encode_name: make_value(field.type, choice) for field in info.fields}
        yield msgspec.convert({**fields, "type": info.tag}, kind, strict=False)


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("kind", typing.get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_is_printed_and_none_steers_a_terminal(kind, capsys):
    for event in make_events(kind):
        record = seal_record(1, 1.0, event, GENESIS)
        printer, plain = SessionPrinter(colour=False), Screen()
        printer.begin(EVIL, 1.0)
        for label, words in printer.event_lines(record):
            printer._print_entry(1.0, label, words)
        Console(None, io.StringIO()).on_event(EVIL, record)
        console = Console(plain, about := io.StringIO())
        console.on_event(EVIL, record)
        assert not got_through(capsys.readouterr().out + about.getvalue() + plain.getvalue())


@pytest.mark.parametrize("kind", [Progress, AttemptRestarted], ids=lambda kind: kind.__name__)
def test_no_delta_about_a_run_steers_a_terminal(kind):
    for delta in make_events(kind):
        about, screen = io.StringIO(), Screen()
        Console(None, about).on_event(EVIL, delta)
        assert bool(about.getvalue()) != getattr(delta, "is_output", False)
        assert not got_through(about.getvalue())
        Console(None, screen, animated=True).on_event(EVIL, delta)
        assert screen.getvalue()
        assert not got_through(re.sub(r"\x1b\[[0-9]*[mKA]|\r", "", screen.getvalue()))

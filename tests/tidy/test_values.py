"""Every value class has the options of its base, and the collector knows those that can be part of a cycle."""

import gc
import importlib
import pkgutil
import typing
import weakref
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType

import pytest

import bridle
from bridle import Budget
from bridle.hooks import TextPattern
from bridle.values.base import Value

PLAIN = (str, int, float, bytes, NoneType, Decimal, Enum)
CONTAINERS = (tuple, frozenset, list, dict, Mapping, Sequence, typing.Union, UnionType)


def list_values():
    """Every value class of the package."""
    for module in pkgutil.walk_packages(bridle.__path__, f"{bridle.__name__}."):
        importlib.import_module(module.name)
    found, open_classes = set(), [Value]
    while open_classes:
        new = set(open_classes.pop().__subclasses__()) - found
        found |= new
        open_classes += new
    return [each for each in found if each.__module__.startswith("bridle.")]


def can_hold_user_objects(kind, known=None):
    """True if a field of this type, or a value in it, can hold an object that can refer to it."""
    known = {} if known is None else known
    origin = typing.get_origin(kind)
    if origin is typing.Literal or kind is Ellipsis:
        return False
    if origin in CONTAINERS:
        return any(can_hold_user_objects(each, known) for each in typing.get_args(kind))
    if not isinstance(kind, type) or not issubclass(kind, Value):
        return origin is not None or not isinstance(kind, type) or not issubclass(kind, PLAIN)
    if kind not in known:
        known[kind] = False
        known[kind] = any(can_hold_user_objects(each, known) for each in typing.get_type_hints(kind).values())
    return known[kind]


def test_a_value_is_made_with_keywords_only():
    """`kw_only` is the one option that a class does not inherit."""
    assert [each for each in list_values() if each.__match_args__] == []
    with pytest.raises(TypeError, match="positional"):
        Budget(1)  # type: ignore[call-arg]


def test_the_collector_knows_every_value_that_can_be_part_of_a_cycle():
    values = list_values()
    holders = {each for each in values if can_hold_user_objects(each)}
    assert len(values) > 200 and {each.__name__ for each in holders} >= {"ApprovalVerdict", "Change"}
    assert [each for each in holders if not each.__struct_config__.gc] == []
    assert can_hold_user_objects(dict[str, Callable[[], None]]) and not can_hold_user_objects(tuple[str, ...])


def test_a_value_with_a_method_of_its_owner_is_freed():
    class Card:
        def __init__(self):
            self.pattern = TextPattern(
                name="card", pattern="[0-9]{16}", open_end="[0-9]*", check=self.is_card
            )

        def is_card(self, text):
            return True

    card = weakref.ref(Card())
    gc.collect()
    assert card() is None


def test_a_user_can_extend_a_value():
    class TeamBudget(Budget):
        team: str = ""

    assert TeamBudget(usd=1, team="a").team == "a" and TeamBudget.__struct_config__.gc  # type: ignore[arg-type]

"""Options that a model rejects are resolved before the request is sent."""

import pytest
from msgspec.structs import replace

from bridle.core.context.model_constraints import REQUEST_RULES, apply_model_constraints
from bridle.values.model import Abilities
from bridle.values.request import OutputSpec, Sampling, Thinking, ToolChoice
from tests.core.loop_story import SETTINGS

ANY = ToolChoice(mode="any")
ONE = ToolChoice(mode="tool", name="look")
SHAPE = OutputSpec(name="answer", parameters="{}", mode="tool")


def settings(abilities=None, **more):
    model = replace(SETTINGS.model, abilities=abilities or Abilities())
    return replace(SETTINGS, model=model, **more)


@pytest.mark.parametrize(
    ("abilities", "more", "choice", "expected", "noted"),
    [
        ({}, {}, ANY, {"tool_choice": ANY}, ""),
        ({"forced_tools": False}, {}, ANY, {"tool_choice": ToolChoice()}, "cannot be forced"),
        ({"forced_tools": False}, {}, ONE, {"tool_choice": ToolChoice()}, "'look'"),
        ({}, {"tools": ()}, ANY, {"tool_choice": ToolChoice()}, "there are no tools"),
        (
            {"thinking": ("enabled",), "unforced_while": ("enabled",)},
            {"thinking": Thinking(mode="enabled", budget_tokens=2000)},
            ANY,
            {"tool_choice": ToolChoice()},
            "not to be forced while",
        ),
        (
            {"thinking": ("adaptive",)},
            {"thinking": Thinking(mode="enabled", budget_tokens=2000)},
            ToolChoice(),
            {"thinking": None},
            "adaptive",
        ),
        (
            {"efforts": ("low",)},
            {"thinking": Thinking(effort="max")},
            ToolChoice(),
            {"thinking": Thinking(effort="low")},
            "effort 'max' became 'low'",
        ),
        (
            {"efforts": ("low",)},
            {"thinking": Thinking(effort="low")},
            ToolChoice(),
            {"thinking": Thinking(effort="low")},
            "",
        ),
        (
            {"thinking": ("disabled",), "efforts": ("low", "max"), "mode_efforts": (("disabled", ("low",)),)},
            {"thinking": Thinking(mode="disabled", effort="max")},
            ToolChoice(),
            {"thinking": Thinking(mode="disabled", effort="low")},
            "became 'low'",
        ),
        (
            {"thinking": ("adaptive",), "efforts": ("max",), "mode_efforts": (("disabled", ("low",)),)},
            {"thinking": Thinking(mode="adaptive", effort="max")},
            ToolChoice(),
            {"thinking": Thinking(mode="adaptive", effort="max")},
            "",
        ),
        (
            {"thinking": ("between_tools",), "unshown_modes": ("between_tools",)},
            {"thinking": Thinking(mode="between_tools", display="summarized", budget_tokens=2000)},
            ToolChoice(),
            {"thinking": Thinking(mode="between_tools")},
            "display 'summarized' was left out",
        ),
        (
            {"efforts": ("low",), "effort_with_tools": False},
            {"thinking": Thinking(effort="low")},
            ToolChoice(),
            {"thinking": None},
            "beside tools",
        ),
        (
            {"sampling": False},
            {"sampling": Sampling(temperature=0.2, stop_sequences=("END",))},
            ToolChoice(),
            {"sampling": Sampling(stop_sequences=("END",))},
            "temperature",
        ),
        ({}, {"output": SHAPE}, ToolChoice(), {"tool_choice": ANY}, ""),
        (
            {},
            {"output": SHAPE, "tools": ()},
            ToolChoice(),
            {"tool_choice": ToolChoice(mode="tool", name="answer")},
            "",
        ),
        ({"forced_tools": False}, {"output": SHAPE}, ToolChoice(), {"tool_choice": ToolChoice()}, ""),
    ],
)
def test_conflicts(abilities, more, choice, expected, noted):
    wish = apply_model_constraints(settings(Abilities(**abilities), **more), choice)
    for name, value in expected.items():
        assert getattr(wish, name) == value
    assert noted in " ".join(wish.notes)
    assert bool(wish.notes) == bool(noted)


def test_what_is_settled_stays_settled():
    """A second look finds nothing more to change."""
    stubborn = Abilities(forced_tools=False, sampling=False)
    asked = settings(stubborn, thinking=Thinking(mode="x", effort="y"), sampling=Sampling(top_p=0.5))
    first = apply_model_constraints(asked, ANY)
    again = apply_model_constraints(
        replace(asked, thinking=first.thinking, sampling=first.sampling), first.tool_choice
    )
    assert replace(again, notes=(), losses=()) == replace(first, notes=(), losses=())
    assert first.losses == ("tool choice 'any' became 'auto': m cannot be forced",)
    assert again.notes == ()
    assert len(first.notes) == 4
    assert len(REQUEST_RULES) == 17

"""Several types of answers: the model chooses one, on every wire."""

import json
from dataclasses import dataclass
from typing import Literal

import pytest

from bridle import Agent, MisuseError
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from tests.suite.wire_models import SCHEMA_MODELS


@dataclass
class Refund:
    order: int
    cents: int


@dataclass
class Escalation:
    reason: str
    urgency: Literal["low", "high"] = "low"


@pytest.mark.parametrize("output", [Refund | Escalation, [Refund, Escalation]], ids=["union", "list"])
@pytest.mark.parametrize("model", SCHEMA_MODELS)
def test_the_model_chooses_the_type(model, output):
    answers = [Refund(7, 100), Escalation("angry", "high")]
    shape = Agent(model, output=output).settings.output
    for answer in answers:
        value = {"value": vars(answer)}
        reply = json.dumps(value) if shape.mode == "native" else call_reply((shape.name, value))
        result = Agent(scripted(reply, model=model), output=output).run_sync("?")
        assert result.raise_for_stop().output == answer


def test_a_list_is_the_union_of_its_types():
    union, listed = (Agent("sim:", output=output) for output in (Refund | Escalation, [Refund, Escalation]))  # type: ignore[arg-type]
    assert listed.settings.output == union.settings.output
    assert Agent("sim:", output=[Refund]).settings.output == Agent("sim:", output=Refund).settings.output


SCHEMA = {"title": "Refund", "type": "object", "properties": {"order": {"type": "integer"}}}


@pytest.mark.parametrize(
    "output",
    [
        [SCHEMA],
        [SCHEMA, SCHEMA],
        [Refund, SCHEMA],
        (Refund, {}),
        [[Refund]],
        [Refund, {Escalation}],
    ],
)
def test_a_list_with_something_that_is_no_type_is_refused(output):
    with pytest.raises(MisuseError, match="a list names types and functions") as caught:
        Agent("sim:", output=output)
    assert "\n" not in str(caught.value)
    with pytest.raises(MisuseError, match="a list names types and functions"):
        Agent("sim:").run_sync("?", output=output)


def test_an_empty_list_is_refused():
    with pytest.raises(MisuseError, match="`output` is an empty list; name at least one type"):
        Agent("sim:", output=[])

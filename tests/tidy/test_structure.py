"""The program that prints the figures of the structure counts what it says. Its targets are not limits: nothing fails above them."""

import runpy
from pathlib import Path

import pytest

STRUCTURE = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "structure.py"))


@pytest.mark.parametrize(
    ("graph", "knots"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"e", "a"}, "e": {"d"}}, [["a", "b", "c"], ["d", "e"]]),
    ],
)
def test_concepts_that_reach_one_another_are_a_knot(graph, knots):
    assert STRUCTURE["find_knots"](graph) == knots


def test_a_run_is_followed_from_the_call_to_its_first_decision_and_to_its_tool():
    called = STRUCTURE["trace_run"]()
    decision = called.index(STRUCTURE["DECISION"])
    assert called[0] == ("bridle.run.agent", "stream") and decision > 0
    assert any(module == "bridle.run.calls.run_tool" for module, _ in called[decision:])
    assert not any(module.startswith("bridle.sim") for module, _ in called)


def test_imports_of_a_layer_are_found_however_they_are_written():
    graph = STRUCTURE["read_concepts"](STRUCTURE["SOURCE"] / "core")
    assert {"state", "effects"} <= graph["loop"]
    assert "loop" not in graph["loop"]

"""A plan that the model writes down and updates; it is in the conversation and nowhere else."""

from dataclasses import dataclass
from typing import Literal

from bridle.ports.tool import ANY_ERROR, Tool
from bridle.tools.function.function_tool import FunctionTool

MARKS = {"pending": "[ ]", "in_progress": "[~]", "done": "[x]"}
STEPS_MAX = 50


@dataclass
class PlanStep:
    """One step of a plan."""

    text: str
    """Step in a few words."""
    status: Literal["pending", "in_progress", "done"] = "pending"


def update_plan(steps: list[PlanStep]) -> str:
    """Write down the plan for a task with several steps, and again whenever a step begins or is done.

    Args:
        steps: All steps, in order; at most one is in progress.
    """
    if not 1 <= len(steps) <= STEPS_MAX:
        raise ValueError(f"a plan has 1 to {STEPS_MAX} steps")
    if sum(step.status == "in_progress" for step in steps) > 1:
        raise ValueError("at most one step can be in progress")
    done = sum(step.status == "done" for step in steps)
    lines = [f"{MARKS[step.status]} {step.text}" for step in steps]
    return "\n".join([f"{done} of {len(steps)} done", *lines])


def make_plan_tool() -> Tool:
    return FunctionTool(update_plan, effect="read", errors=ANY_ERROR)

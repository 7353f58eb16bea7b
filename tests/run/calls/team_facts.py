"""What runs that were killed leave in the log and outside of it."""

import re

import msgspec

from bridle import Agent, RunContext, tool
from bridle.values import events as e
from bridle.values.budget import SubrunCharged
from tests.suite.bills import BilledModel

REPEATED = (e.Resumed, e.ModelAsked, e.ToolStarted, e.PrefixMoved, SubrunCharged)
"""Of a request or a call that was cut there are two, and one charge may replace two; the money is compared."""


class Side:
    """What user code leaves outside the log."""

    def __init__(self, folder):
        self.folder = folder
        self.model = BilledModel(folder / "bill")

    def write(self, line):
        with (self.folder / "calls").open("a") as file:
            file.write(f"{line}\n")

    @property
    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def make_book(self):
        @tool(effect="write", on_unknown="retry")
        def book(seat: int, run: RunContext) -> str:
            """Book a seat."""
            self.write(f"book {seat}")
            return f"seat {seat}"

        return book

    def make_agent(self, **options):
        return Agent(self.model.connect(), **options)


def list_facts(logs):
    """One text per event that happens once, without ids that depend on the time; sorted, as runs may overlap."""
    facts = []
    for session, events in logs.items():
        for event in events:
            is_again = isinstance(event, e.Configured) and not event.handed_over_to
            if is_again or isinstance(event, REPEATED):
                continue
            fact = event.reply.parts if isinstance(event, e.ModelReplied) else event
            text = f"{session} {type(event).__name__} {msgspec.json.encode(fact).decode()}"
            facts.append(re.sub(r"[0-9a-f]{12,}", "#", text))
    return sorted(facts)

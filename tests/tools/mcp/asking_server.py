"""An agent with a server that asks questions, and a person who answers them."""

from bridle import Agent
from bridle.sessions import ApprovalVerdict
from tests.tools.mcp.mcp_servers import more_hostile as hostile


class Person:
    """An approver that gives prepared verdicts and keeps the questions."""

    def __init__(self, *verdicts):
        self._verdicts, self.questions = list(verdicts), []

    async def ask(self, question):
        self.questions.append(question)
        return self._verdicts.pop(0)


def approve(**values):
    return ApprovalVerdict(answer="approve", arguments=values or None, by="ada")


def make_crash_agent(store, marker, person):
    source = hostile(
        f"die_asked={marker}", "hang_then", trust=True, sampling=True, elicitation=True, timeout=None
    )
    return Agent("sim:", tools=[source], approver=person.ask, store=store)

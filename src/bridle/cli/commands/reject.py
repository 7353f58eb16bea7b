"""Reject a tool call. The call does not run; the model is told, with the reason.

A call that is approved and has not started can be rejected too (`bridle approvals --approved`).
"""

import argparse

from bridle.run.agent import Agent
from bridle.values.calls import PendingApproval

from .approve import add_answer_options, answer_question, answerer_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_answer_options(parser)


def execute(options: argparse.Namespace) -> int:
    async def reject(agent: Agent[object, str], question: PendingApproval) -> PendingApproval:
        return await agent.reject(
            question.session, question.id, reason=options.reason, by=answerer_name(options)
        )

    return answer_question(options, reject, "rejected")

"""Keep a call from running that waits for an answer; the model is told, with the reason."""

import argparse

from ..run.agent import Agent
from ..values.approval import PendingApproval
from .approve import add_answer_options, answer, by_whom


def arguments(parser: argparse.ArgumentParser) -> None:
    add_answer_options(parser)


def execute(options: argparse.Namespace) -> int:
    async def reject(agent: Agent[str], question: PendingApproval) -> PendingApproval:
        return await agent.reject(question.session, question.id, reason=options.reason, by=by_whom(options))

    return answer(options, reject, "rejected")

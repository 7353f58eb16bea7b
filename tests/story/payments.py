"""What must hold of the payments of an agent that was killed."""

import asyncio
from collections import Counter

from tests.story.kill_agent import SESSION, Ledger, paying_agent


def check_payments(folder, policy, amounts):
    agent = paying_agent(folder, policy, amounts)

    async def read():
        result = await agent.resume(SESSION)
        await agent.store.close()
        return result

    result = asyncio.run(read())
    assert result.stop == "done"
    made = Ledger(folder).lines()
    assert len({key for _, key in made}) == len(set(made)), "a payment repeated has the key it had"
    times = Counter(amount for amount, _ in made)
    for amount, told in zip(amounts, result.messages[2].results, strict=True):
        if told.outcome == "ok":
            assert times[amount] >= 1, "a receipt without a payment"
            assert times[amount] == 1 or policy == "retry"
        else:
            assert (policy, told.outcome) == ("report", "unknown")
            assert times[amount] <= 1

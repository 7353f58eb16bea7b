"""The model of the platform without a network: it follows its instructions by fixed rules."""

import re

from bridle import Reply
from bridle.testing import ConversationFacts, call_reply

ORDER = re.compile(r"\b\d{4}\b")


def answer_customer(facts: ConversationFacts) -> str | Reply:
    """Hand over, call the tool that the prompt is about, and repeat the result."""
    calls = [each for each in facts.exchanges if not each.name.startswith("transfer_to_")]
    prompt, found = facts.prompt, ORDER.search(facts.prompt)
    order = int(found.group()) if found else 0
    if calls and (calls[-1].name != "find_order" or calls[-1].is_error):
        return calls[-1].text
    if facts.tool("send_letter"):
        return call_reply(("send_letter", {"order": order}))
    if facts.tool("change_address"):
        return call_reply(("change_address", {"address": prompt.rpartition(":")[2].strip()}))
    if facts.tool("find_order"):
        if not calls:
            return call_reply(("find_order", {"order": order}))
        cents = int(calls[-1].text.split()[-2])
        if facts.tool("pay_back"):
            return call_reply(("pay_back", {"order": order, "cents": cents}))
        return call_reply(("refund", {"order": order, "usd": cents / 100}))
    if "refund" in prompt.lower():
        return call_reply(("transfer_to_refunds", {}))
    if "address" in prompt.lower():
        return call_reply(("transfer_to_account", {}))
    if prompt.startswith("Remember: "):
        return call_reply(("remember", {"note": prompt.removeprefix("Remember: ")}))
    return "I can refund orders and change addresses."

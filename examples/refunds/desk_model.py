"""The offline model of the desk: it follows the handbook by fixed rules."""

import json
import re

from bridle import Reply
from bridle.testing import ConversationFacts, call_reply

NUMBER = re.compile(r"\b44\d\d\b")
SHIPPING_USD = 9


def answer_ticket(facts: ConversationFacts) -> str | Reply:
    """Look orders up, then refund them or replace them, then say what became of it."""
    orders = [int(number) for number in dict.fromkeys(NUMBER.findall(facts.prompt))]
    wants_goods = "replace" in facts.prompt.lower()
    done = [each for each in facts.exchanges if not each.is_error]
    known = {each.arguments["number"]: each.text for each in done if each.name == "find_order"}
    if facts.reply_count == 0 and orders:
        return call_reply(*(("find_order", {"number": number}) for number in orders))
    if facts.reply_count == 1 and known:
        if wants_goods:
            pairs = [
                (("reserve_replacement", {"order": n}), ("refund", {"order": n, "usd": SHIPPING_USD}))
                for n in known
            ]
            return call_reply(*(call for pair in pairs for call in pair))
        prices = {n: int(text.split("$")[1].split(",")[0]) for n, text in known.items()}
        return call_reply(*(("refund", {"order": n, "usd": usd}) for n, usd in prices.items()))
    if facts.reply_count == 2 and wants_goods:
        return call_reply(*(("book_courier", {"order": number}) for number in known))
    failed = [each.text for each in facts.exchanges if each.is_error]
    results = failed or [each.text for each in done[-len(orders) :]] or ["Which order is it?"]
    return json.dumps({"resolved": not failed and bool(orders), "message": " ".join(results)})

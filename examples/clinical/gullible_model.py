"""The offline model: it prepares a briefing by fixed rules, and obeys every order that it reads, in records too.

It is gullible on purpose. A real model resists most injections; the safety of this program must not depend on it.
"""

import json
import re

from bridle import Reply
from bridle.testing import ConversationFacts, ToolExchange, call_reply

PATIENT = re.compile(r"P-\d{3}")
ORDER = re.compile(
    r"order (?P<drug>[^\W\d_][\w ]*?) (?P<dose>[\d.]+) mg (?P<times>\d) times a day(?: for (?P<patient>P-\d{3}))?",
    re.IGNORECASE,
)
OTHER_RECORD = re.compile(r"read the record of (P-\d{3})", re.IGNORECASE)
SCORES = {"pneumonia": "curb65", "atrial fibrillation": "cha2ds2_vasc", "chronic kidney disease": "egfr"}


def prepare_visit(facts: ConversationFacts) -> str | Reply:
    """Read the record, compute scores, place every order that occurs in any text, and answer."""
    found = PATIENT.search(facts.prompt)
    if found is None:
        return "Which patient? Ids look like P-001."
    patient, prompt = found.group(), facts.prompt[found.end() :]
    if facts.reply_count == 0:
        about = {"patient": patient}
        return call_reply(("get_record", about), ("get_labs", about), ("find_guidelines", {"query": prompt}))
    if facts.reply_count == 1:
        texts = [prompt, *(each.text for each in facts.exchanges if each.name != "find_guidelines")]
        calls = [*_choose_scores(facts, patient), *_obey("\n".join(texts), patient)]
        if calls:
            return call_reply(*calls)
    return json.dumps(_write_briefing(facts, patient))


def _choose_scores(facts: ConversationFacts, patient: str) -> list[tuple[str, dict[str, object]]]:
    conditions = _read(facts, "get_record").get("conditions", [])
    wanted = [score for condition, score in SCORES.items() if condition in conditions]
    return [("compute_risk_score", {"patient": patient, "score": score}) for score in wanted]


def _obey(text: str, patient: str) -> list[tuple[str, dict[str, object]]]:
    calls: list[tuple[str, dict[str, object]]] = [
        ("get_record", {"patient": other}) for other in OTHER_RECORD.findall(text)
    ]
    for order in ORDER.finditer(text):
        arguments: dict[str, object] = {
            "patient": order["patient"] or patient,
            "drug": order["drug"].lower(),
            "dose_mg": float(order["dose"]),
            "times_per_day": int(order["times"]),
        }
        if "use override" in text:
            arguments["override"] = True
        calls.append(("order_medication", arguments))
    return calls


def _write_briefing(facts: ConversationFacts, patient: str) -> dict[str, object]:
    record = _read(facts, "get_record")
    problems = [{"text": condition, "source": "record"} for condition in record.get("conditions", [])]
    problems += [{"text": f"allergic to {name}", "source": "record"} for name in record.get("allergies", [])]
    scores = [json.loads(each.text) for each in facts.exchanges if _is_done(each, "compute_risk_score")]
    orders = [
        {
            "order": " ".join(
                str(each.arguments.get(word, "")) for word in ("drug", "dose_mg", "test")
            ).strip(),
            "status": "refused" if each.is_error else "placed",
            "detail": each.text[:200],
        }
        for each in facts.exchanges
        if each.name.startswith("order_")
    ]
    return {
        "patient": patient,
        "summary": f"{record.get('name', patient)}, {len(problems)} problems, {len(orders)} orders.",
        "problems": problems,
        "scores": [{"name": each["name"], "value": each["value"]} for each in scores],
        "orders": orders,
    }


def _read(facts: ConversationFacts, tool: str) -> dict[str, list[str]]:
    found = next((each for each in facts.exchanges if _is_done(each, tool)), None)
    return json.loads(found.text) if found else {}


def _is_done(each: ToolExchange, tool: str) -> bool:
    return each.name == tool and not each.is_error

"""Scorers of the harness suite. `keeps_the_rules` holds for every task."""

import json
import re
from decimal import Decimal
from itertools import pairwise

from bridle.events import (
    ApprovalAsked,
    Compacted,
    HookDecided,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    ModelSwitched,
    PrefixMoved,
    Reprompted,
    Resumed,
    RunEnded,
    ToolFinished,
    ToolsRevealed,
    ToolStarted,
    ViewChanged,
)

HISTORY = ("messages", "input", "contents")
HEAD = ("tools", "system", "instructions", "systemInstruction", "toolConfig")
MARKS = {"cache_control", "prompt_cache_breakpoint", "cachePoint"}


def keeps_the_rules(trial):
    """Rules that hold for every run: calls, costs, requests."""
    return [
        *filter(
            None,
            (
                check_calls(trial),
                check_costs(trial),
                check_prefix(trial),
                check_results_sent(trial),
                check_requests(trial),
            ),
        )
    ] or True


def check_calls(trial):
    """A call starts once per attempt, has one receipt, and does not start again after it."""
    started, finished = [], set()
    for record in trial.records:
        event = record.event
        if isinstance(event, ToolStarted):
            if (event.call_id, event.attempt) in started or event.call_id in finished:
                return f"call {event.call_id} started twice"
            started.append((event.call_id, event.attempt))
        elif isinstance(event, ToolFinished):
            if event.call_id in finished:
                return f"call {event.call_id} has two receipts"
            finished.add(event.call_id)
    return None


def check_costs(trial):
    """Every reply has the price of its tokens, and the result has their sum."""
    total = Decimal(0)
    model = trial.agent.settings.model
    own = not trial.events(ModelSwitched)
    for event in (*trial.events(ModelReplied), *trial.events(ModelFailed)):
        usage = event.reply.usage if isinstance(event, ModelReplied) else event.usage
        if event.usd is None or usage is None:
            continue
        total += event.usd
        rates = find_rates(model.price, trial.records[0].at) if own and model.price else None
        if rates is not None and usage.prompt < 100_000 and isinstance(event, ModelReplied):
            wanted = price_tokens(rates, usage)
            if abs(wanted - event.usd) > Decimal("0.0000001"):
                return f"a reply of {usage} cost {event.usd}, not {wanted}"
    has_guesses = any(each.partial_text or each.usd for each in trial.events(RunEnded)) or trial.events(
        ModelFailed
    )
    if trial.usd is not None and not has_guesses and len({each.session for each in trial.results}) == 1:
        nested = sum(
            (each.usd or Decimal(0) for result in trial.results for each in result.subruns), Decimal(0)
        )
        if abs(trial.usd - nested - total) > Decimal("0.000001"):
            return f"the session cost {trial.usd}, its calls {total}"
    return None


def find_rates(price, now):
    """The rates of short prompts now; None if they vary with the hour."""
    valid = [
        each for each in price.tiers
        if not each.above_prompt_tokens and (each.valid_from or 0) <= now and now < (each.valid_until or now + 1)
    ]  # fmt: skip
    return valid[-1] if valid and all(each.term for each in price.factors) else None


def price_tokens(rates, usage):
    short = usage.cache_write - usage.cache_write_1h
    parts = (
        (usage.input, rates.input),
        (usage.output, rates.output),
        (usage.cache_read, rates.cache_read),
        (short, rates.cache_write),
        (usage.cache_write_1h, rates.cache_write_1h or rates.cache_write),
    )
    return sum((Decimal(count) * rate for count, rate in parts if count), Decimal(0)) / 1_000_000


def strip_marks(value):
    """A request without its cache marks."""
    if isinstance(value, dict):
        return {name: strip_marks(inner) for name, inner in value.items() if name not in MARKS}
    if isinstance(value, list):
        return [strip_marks(each) for each in value if not (isinstance(each, dict) and set(each) <= MARKS)]
    return value


def history_of(body):
    return next((body[name] for name in HISTORY if name in body), [])


def check_prefix(trial):
    """Each request continues the one before it, unless an event says that the prompt changed."""
    changes = (PrefixMoved, Compacted, ViewChanged, ModelSwitched, ToolsRevealed)
    if any(isinstance(record.event, changes) for record in trial.records) or hasattr(trial.world, "pool"):
        return None
    if trial.world.crashes or trial.task.drive.endswith((":nest", ":two_sessions")):
        return None
    bodies = [strip_marks(json.loads(each)) for each in trial.requests]
    if any("previous_response_id" in body for body in bodies):
        return None  # the provider has the earlier messages
    for before, after in pairwise(bodies):
        for name in HEAD:
            if before.get(name) != after.get(name):
                return f"{name} changed between two requests"
        if not continues(history_of(before), history_of(after)):
            return "a request does not continue the one before it"
    return None


def continues(old, new):
    """Text may be added to the last message, which the model had not answered."""
    if len(new) < len(old) or new[: len(old) - 1] != old[:-1]:
        return False
    last, now = old[-1], new[len(old) - 1]
    parts = next((name for name in ("content", "parts") if isinstance(last.get(name), list)), "")
    return last == now or bool(parts and now.get(parts, [])[: len(last[parts])] == last[parts])


def check_results_sent(trial):
    """Every result that the model was to receive is in the next request."""
    changes = (Compacted, ViewChanged, HookDecided)
    if trial.world.crashes or hasattr(trial.world, "pool") or any(trial.events(each) for each in changes):
        return None
    asked = [at for at, record in enumerate(trial.records) if isinstance(record.event, ModelAsked)]
    for at, record in enumerate(trial.records):
        event = record.event
        if not isinstance(event, ToolFinished) or len(event.result.text) > 500 or not asked or at > asked[-1]:
            continue
        for part in event.result.parts:
            if not any(contains_text(json.loads(body), part.text) for body in trial.requests):
                return f"the result {part.text!r} was not sent"
    return None


def contains_text(value, text):
    if isinstance(value, str):
        return text in value
    if isinstance(value, dict):
        return any(contains_text(inner, text) for inner in value.values())
    return isinstance(value, list) and any(contains_text(each, text) for each in value)


def check_requests(trial):
    """Every request was recorded before it was sent, and no other was sent."""
    if (
        trial.world.crashes
        or hasattr(trial.world, "pool")
        or trial.task.drive.endswith((":nest", ":two_sessions"))
    ):
        return None
    asked = trial.events(ModelAsked)
    if len(asked) != len(trial.requests):
        return f"{len(asked)} requests were recorded and {len(trial.requests)} were sent"
    return None


# Dispatch


def ran_nothing(trial):
    return not trial.world.ran or f"{trial.world.ran} ran"


def ran_once(trial):
    return len(trial.world.ran) == 1 or f"{trial.world.ran} ran"


def ran_together(trial):
    return all("met" in call.result for call in trial.calls) or "the calls ran one after the other"


def ran_alone(trial):
    return trial.world.most_running == 1 or "the calls ran at the same time"


def results_in_order(trial):
    """Results reach the model in the order of the calls, each with its own call."""
    wanted = [f"{call.arguments['name']} met" for call in trial.calls]
    body = json.dumps(json.loads(trial.requests[-1]))
    places = [body.find(each) for each in wanted]
    return (-1 not in places and places == sorted(places)) or f"places of the results: {places}"


def keeps_the_order_of_a_box(trial):
    return (trial.world.ran[0][0] == "put" and "a holds 5" in trial.calls[-1].result) or str(trial.world.ran)


def excerpt_is_short(trial):
    (call,) = trial.calls
    return (
        len(call.result) < 1_600 and "line 0" in call.result
    ) or f"{len(call.result)} characters were sent"


def whole_result_is_stored(trial):
    (finished,) = trial.events(ToolFinished)
    return finished.stored_result is not None or "the whole result is lost"


def was_warned(trial):
    return (
        any("repeat" in each.why or "same" in each.message for each in trial.events(Reprompted))
        or len(trial.calls) <= 4
    )


def hook_changed_the_call(trial):
    return trial.world.values == {"clamped": 7} or str(trial.world.values)


def second_answer_is_a_receipt(trial):
    sources = [each.source for each in trial.events(ToolFinished)]
    return (sources == ["run", "receipt"] and len(trial.world.ran) == 1) or f"{sources} {trial.world.ran}"


def cancelled_call_is_answered(trial):
    ends = [each.stop for each in trial.events(RunEnded)]
    return ends == ["cancelled", "done"] or str(ends)


def one_question(trial):
    asked = trial.events(ApprovalAsked)
    return len(asked) == 1 or f"{len(asked)} questions"


# Assembly


def system_text(body):
    return json.dumps(
        [body.get(name) for name in ("system", "instructions", "systemInstruction")]
        + [
            each
            for each in history_of(body)
            if isinstance(each, dict) and each.get("role") in ("system", "developer")
        ]
    )


def instructions_are_the_system_prompt(trial):
    body = json.loads(trial.requests[0])
    if "You are a" not in system_text(body):
        return "the instructions are not in the system prompt"
    users = [each for each in history_of(body) if each.get("role") not in ("system", "developer")]
    return "You are a" not in json.dumps(users) or "the instructions are in the conversation"


def history_is_sent(trial):
    """The last request has all prompts and answers so far, in order."""
    body = json.dumps(history_of(json.loads(trial.requests[-1])))
    places = [
        body.find(text)
        for text in ("first prompt", "first answer", "second prompt", "second answer", "third prompt")
    ]
    return (-1 not in places and places == sorted(places)) or f"places: {places}"


def all_tools_are_offered(trial):
    body = json.dumps(
        json.loads(trial.requests[0]).get("tools") or json.loads(trial.requests[0]).get("toolConfig")
    )
    missing = [name for name in trial.agent.tools if f'"{name}"' not in body]
    return not missing or f"{missing} are not offered"


def tools_are_sorted_alike(trial):
    """All requests offer the same bytes of tools."""
    found = {
        json.dumps(json.loads(each).get("tools") or json.loads(each).get("toolConfig"))
        for each in trial.requests
    }
    return len(found) == 1 or "the tools changed"


def type_of_the_answer_is_sent(trial):
    body = trial.requests[0].decode().replace("\\", "")  # some wires send the schema as text
    found = re.search(r'"n": ?\{[^}]*"integer"', body, re.IGNORECASE)
    return found is not None or "the schema of the answer was not sent"


def chunk_precedes_the_prompt(trial):
    body = json.dumps(history_of(json.loads(trial.requests[0])))
    chunk, prompt = body.find("green"), body.find("Which color")
    return -1 < chunk < prompt or -1 < prompt < chunk or "the chunk was not sent"


def chunk_is_not_in_the_head(trial):
    return "green" not in system_text(json.loads(trial.requests[0])) or "the chunk is in the cached part"


def note_is_sent(trial):
    return contains_text(json.loads(trial.requests[0]), "Ida") or "the note was not sent"


def was_compacted(trial):
    if not trial.events(Compacted) and not trial.events(ViewChanged):
        return "nothing was compacted"
    sizes = [len(each) for each in trial.requests]
    return max(sizes) < 60_000 or f"requests of {max(sizes)} bytes"


def newest_message_survived(trial):
    return contains_text(json.loads(trial.requests[-1]), "place 11") or "the newest prompt was not sent"


def reasoning_is_sent_back(trial):
    reply = trial.events(ModelReplied)[0].reply
    is_carried = trial.agent.settings.model.endpoint.family != "openai_chat"
    if not is_carried or not any(type(part).__name__ == "Reasoning" for part in reply.parts):
        return True  # this wire shows none, or does not take it back
    kinds = ("thinking", "reasoning", "thought", "signature")
    return (
        any(kind in json.dumps(history_of(json.loads(trial.requests[-1]))) for kind in kinds)
        or "reasoning was dropped"
    )


def hidden_tool_was_revealed(trial):
    if not trial.events(ToolsRevealed):
        return "no tool was revealed"
    return defines_tool(json.loads(trial.requests[-1]), "sweep") or "the tool that was found is not offered"


def defines_tool(value, name):
    """True if the definition of a tool is anywhere in a request."""
    if isinstance(value, dict):
        is_definition = value.get("name") == name and "description" in value
        return is_definition or any(defines_tool(inner, name) for inner in value.values())
    return isinstance(value, list) and any(defines_tool(each, name) for each in value)


# Caching


def marks_are_set(trial):
    """Wires that mark what to cache do so, in every request, with at most four marks."""
    family = trial.agent.settings.model.endpoint.family
    counts = [len(re.findall(rb'"cache_control"|"cachePoint"', each)) for each in trial.requests]
    if family not in ("anthropic", "bedrock"):
        return True
    return all(1 <= count <= 4 for count in counts) or f"marks per request: {counts}"


def later_replies_read_the_cache(trial):
    """Every reply after the first reads what the one before it had in its prompt."""
    usages = [each.reply.usage for each in trial.events(ModelReplied)]
    shares = [usage.cache_read / usage.prompt for usage in usages[1:]]
    return all(share > 0.5 for share in shares) or f"shares {[round(share, 2) for share in shares]}"


def nothing_is_read_twice(trial):
    """Every reply reads almost all of the prompt before it from the cache; some providers store in large steps."""
    usages = [each.reply.usage for each in trial.events(ModelReplied)]
    missed = [before.prompt - after.cache_read for before, after in pairwise(usages)]
    return max(missed) < 2_500 or f"tokens that were not read from the cache: {missed}"


def first_reply_reads_the_cache(trial):
    """What all sessions of an agent share is cached for all of them."""
    usage = trial.events(ModelReplied)[0].reply.usage
    return usage.cache_read / usage.prompt > 0.5 or f"{usage.cache_read} of {usage.prompt} tokens were cached"


def hour_is_asked_for(trial):
    family = trial.agent.settings.model.endpoint.family
    return family not in ("anthropic", "bedrock") or b'"1h"' in trial.requests[0] or "no hour was asked for"


def move_is_recorded(trial):
    return bool(trial.events(PrefixMoved)) or "the change of the prompt was not recorded"


def was_not_paid_for(trial):
    return len(trial.requests) == 1 or "the changed prompt was sent"


def hour_is_asked_for_after_a_pause(trial):
    """The first request cannot know of a pause; the last one follows two that were longer than the usual lifetime."""
    if trial.agent.settings.model.endpoint.family not in ("anthropic", "bedrock"):
        return True
    hours = [b'"1h"' in each for each in trial.requests]
    return (not hours[0] and hours[-1]) or f"requests that ask for an hour: {hours}"


# Recovery


def retried(trial):
    asked, failed = trial.events(ModelAsked), trial.events(ModelFailed)
    return ((bool(failed) and asked[-1].after_failure is not None) or len(asked) > 1) or "nothing was retried"


def waited_as_told(trial):
    waits = [(each.wait_seconds, each.wait_source) for each in trial.events(ModelAsked) if each.after_failure]
    return any(wait >= 7 and source == "retry-after" for wait, source in waits) or f"waits: {waits}"


def waited_for_backoff(trial):
    waits = [(each.wait_seconds, each.wait_source) for each in trial.events(ModelAsked) if each.after_failure]
    good = all(0 <= wait <= 60 and source == "backoff" for wait, source in waits)
    return (len(waits) == 3 and good and sum(wait for wait, _ in waits) > 0) or f"waits: {waits}"


def was_not_retried(trial):
    return len(trial.requests) == 1 or f"{len(trial.requests)} requests"


def asked_twice(trial):
    return len(trial.requests) == 2 or f"{len(trial.requests)} requests"


def switched(trial):
    return bool(trial.events(ModelSwitched)) or "the next model was not used"


def partial_text_is_void(trial):
    """A reply that broke off is not joined with the next one."""
    return trial.text.count("all is well") == 1 or trial.text


def survived_every_crash(trial):
    """After a crash at each record, the run ends well, and no write happens twice."""
    wrong = [each for each in trial.world.results if each[1] != "done" or max(each[3]) > 1]
    return (trial.world.crashes > 8 and not wrong) or f"{trial.world.crashes} crashes; {wrong[:2]}"


def truncated_call_did_not_run(trial):
    return all(call.arguments.get("value") == 5 for call in trial.calls) or str(trial.calls)


def was_probed(trial):
    return trial.world.results == ["probed tea"] or str(trial.world.results)


def whole_conversation_was_sent(trial):
    """After the provider has lost its state, the next request has the first prompt and its answer again."""
    if trial.agent.settings.model.endpoint.family != "openai_responses":
        return not trial.events(ModelFailed) or "a request failed"
    kinds = [each.failure.kind for each in trial.events(ModelFailed)]
    if kinds != ["forgotten"]:
        return f"failures: {kinds}"
    return contains_text(json.loads(trial.requests[-1]), "One.") or "only the new message was sent"


# Budgets


def used_two_steps(trial):
    return trial.steps == 2 or f"{trial.steps} steps"


def stayed_below_a_cent(trial):
    if trial.usd is None:
        return True
    return trial.usd <= Decimal("0.01") or f"${trial.usd}"


def stayed_below_the_tokens(trial):
    return trial.usage.total <= 6_000 or f"{trial.usage.total} tokens"


def three_requests(trial):
    return len(trial.requests) == 3 or f"{len(trial.requests)} requests"


def one_request(trial):
    return len(trial.requests) == 1 or f"{len(trial.requests)} requests"


def session_had_three_steps(trial):
    return trial.steps == 3 or f"{trial.steps} steps"


def was_told_to_finish(trial):
    return len(trial.events(Reprompted)) == 1 or f"told {len(trial.events(Reprompted))} times"


def pool_was_not_exceeded(trial):
    pool = trial.world.pool
    if pool.spent.usd > pool.usd or pool.reserved.usd or pool.excess.usd:
        return f"spent {pool.spent.usd} of {pool.usd}, reserved {pool.reserved.usd}, excess {pool.excess.usd}"
    paid = sum(Decimal(str(each.cost)) for each in trial.results)
    return (
        abs(paid - pool.spent.usd) < Decimal("0.000001")
        or f"the runs cost {paid}, the pool says {pool.spent.usd}"
    )


def pool_stopped_a_run(trial):
    return "budget" in trial.world.results or str(trial.world.results)


def inner_run_is_charged(trial):
    (inner,) = trial.result.subruns
    if trial.result.cost is None:
        return inner.steps == 1
    total = Decimal(str(trial.result.own_cost)) + inner.usd
    return (inner.usd > 0 and abs(Decimal(str(trial.result.cost)) - total) < Decimal("0.000001")) or str(
        trial.result
    )


def was_resumed(trial):
    return bool(trial.events(Resumed)) or "there is no Resumed event"


# Approvals


def nothing_ran_before_the_answer(trial):
    return trial.world.results == [[]] or str(trial.world.results)


def paid_only_ann(trial):
    return [each[1]["to"] for each in trial.world.ran] == ["ann"] or str(trial.world.ran)


def paid_as_edited(trial):
    return trial.world.ran == [("pay", {"to": "bob", "amount": 1})] or str(trial.world.ran)


def denied(trial):
    outcomes = [each.result.outcome for each in trial.events(ToolFinished)]
    return outcomes == ["denied"] or str(outcomes)


def answer_came_late(trial):
    outcomes = [each.result.outcome for each in trial.events(ToolFinished)]
    return not trial.world.ran or f"{trial.world.ran} {outcomes}"


def still_waits(trial):
    return [each.stop for each in trial.results] == ["waiting", "waiting"] or str(
        [each.stop for each in trial.results]
    )

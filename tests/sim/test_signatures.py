"""Signatures: accepted unchanged, and refused after a change where the provider refuses it."""

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from bridle.ports.transport import OutgoingRequest
from bridle.sim.families import FAMILIES as ALL_FAMILIES
from bridle.sim.families import list_rules, signature_rules
from bridle.sim.rules.engine import find_violation
from bridle.sim.signatures import digest_value, open_signature, sign_note
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from tests.sim.rules.rule_examples import find_examples
from tests.sim.sealed_talk import BLIND, SCRIPT, Body, Watched, error_message, reply_redacted
from tests.sim.sim_families import answer_statelessly

FAMILIES = tuple(family for family in ALL_FAMILIES if signature_rules(family))
RULES = [(family, rule) for family in FAMILIES for rule in signature_rules(family)]
IDS = [f"{family}-{rule.id}" for family, rule in RULES]

BOUND = "sim:anthropic/claude-sonnet-5-5"
FREE = "sim:anthropic/claude-sonnet-4-6"
CLOUD = "sim:bedrock_converse/global.anthropic.claude-sonnet-5-5"
CLOUD_FREE = "sim:bedrock_converse/global.anthropic.claude-sonnet-4-6"
LEVELED = "sim:gemini/gemini-3.8-flash"
BUDGETED = "sim:gemini/gemini-2.5-flash"
RESPONSES = "sim:openai_responses/gpt-6.1-sol"
SIBLING = "sim:openai_responses/gpt-6-luna"
CHAT = "sim:openai_chat/deepseek-v4-pro"
MODELS = (BOUND, FREE, CLOUD, CLOUD_FREE, LEVELED, BUDGETED, RESPONSES, SIBLING, CHAT)

LATEST = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks"
    " must remain as they were in the original response."
)
ELSEWHERE = "Invalid `signature` in `thinking` block. The block is bound to a different conversation."
CLOUD_SAYS = "The model returned the following errors: "


def talk(name: str, brain=None, prompts: int = 2) -> Watched:
    """A conversation of some prompts, that the last step of the last one can be asked again."""
    watched = Watched(name, brain) if brain else Watched(name)
    store = MemoryStore()
    for number in range(prompts):
        script = BLIND if name == CHAT else SCRIPT
        result = asyncio.run(watched.say(script, store, stream=bool(number % 2)))
        assert (result.stop, result.text, watched.refusals) == ("done", "Seen.", [])
    return watched


@pytest.fixture(scope="module")
def talks() -> dict[str, Watched]:
    return {name: talk(name) for name in MODELS}


# --- the blob -----------------------------------------------------------------------------------


def test_a_seal_opens_to_what_was_sealed_and_to_nothing_once_a_letter_is_another():
    blob = sign_note("thinking", "family", "model", words="abc", place=3)
    note = open_signature(blob)
    assert note is not None
    assert (note.kind, note.family, note.model) == ("thinking", "family", "model")
    assert note.has_claims(words="abc", place=3)
    assert not note.has_claims(words="abd")
    assert not note.has_claims(colour="red")
    for place, letter in enumerate(blob):
        other = "A" if letter != "A" else "B"
        assert open_signature(blob[:place] + other + blob[place + 1 :]) is None
    assert open_signature(blob[:-1]) is None
    assert open_signature(blob + "AAAA") is None


@pytest.mark.parametrize("blob", [None, 3, "", "é", "c2ln", "====", "A" * 400, " "])
def test_whatever_was_not_sealed_opens_to_nothing(blob):
    assert open_signature(blob) is None


def test_a_seal_tells_nothing():
    blob = sign_note("thinking", "some_family", "some_model", words="hush")
    assert "some_family" not in blob
    assert sign_note("thinking", "some_family", "some_model", words="hush") == blob


def test_any_process_opens_it():
    program = "from bridle.sim.signatures import sign_note; print(sign_note('thinking', 'family', 'model', words='abc'))"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == sign_note("thinking", "family", "model", words="abc")


def test_a_trace_looks_at_values_and_not_at_their_spelling():
    assert digest_value({"a": 1, "b": [2]}) == digest_value({"b": [2], "a": 1})
    assert digest_value({"a": 1}) != digest_value({"a": 2})
    assert digest_value("a", after="b") != digest_value("a")


# --- the rules' own examples --------------------------------------------------------------------


@pytest.mark.parametrize(("family", "rule"), RULES, ids=IDS)
def test_every_rule_passes_and_refuses_its_examples(family, rule):
    every = (*list_rules(family), *signature_rules(family))
    examples = find_examples(family, rule)
    assert find_violation(every, examples.accepted) is None
    for request, says in ((examples.refused, examples.message), *examples.more):
        violation = find_violation(every, request)
        assert (violation.message if violation else "") == says
        assert violation is None or violation.rule.id == rule.id
        others = [other for other in every if other.id != rule.id]
        without = find_violation(others, request)
        assert without is None or without.message != says


# --- the harness --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_untouched_conversations_are_taken(talks, name):
    assert len(talks[name].asked) == 6
    assert talks[name].again(lambda body: None) == (200, "")


@pytest.mark.parametrize("name", [BOUND, FREE, CLOUD, CLOUD_FREE])
def test_what_nobody_may_read_goes_back_too(name):
    watched = talk(name, reply_redacted)
    sent = watched.asked[-1].body
    assert sent.count(b'"redacted_thinking"' if "anthropic/" in name else b'"redactedContent"') == 5


@pytest.mark.sampled
@pytest.mark.parametrize(("here", "there"), list(itertools.permutations(MODELS, 2)))
def test_there_and_back_no_request_is_refused(here, there):
    """Two prompts to one model, two to another, one to the first again, in one session."""
    store = MemoryStore()
    first, second = Watched(here), Watched(there)
    for number, watched in enumerate((first, first, second, second, first)):
        script = BLIND if watched.name == CHAT else SCRIPT
        result = asyncio.run(watched.say(script, store, stream=bool(number % 2)))
        assert (result.stop, result.text, watched.refusals) == ("done", "Seen.", [])


# --- touched ------------------------------------------------------------------------------------


def blocks(body: Body, message: int | None = None) -> Iterator[tuple[dict, str]]:
    """Every sealed blob: what holds it and under which name."""
    for index, said in enumerate(body.get("messages") or body.get("contents") or [{"parts": body["input"]}]):
        for block in said.get("content", said.get("parts", ())):
            if message is not None and index != message:
                continue
            held = block.get("reasoningContent", {}) if isinstance(block, dict) else {}
            held = held.get("reasoningText", held) or block
            for name in ("signature", "data", "redactedContent", "thoughtSignature", "encrypted_content"):
                if isinstance(held, dict) and isinstance(held.get(name), str):
                    yield held, name


def other_letter(blob: str, place: int = 20) -> str:
    return blob[:place] + ("A" if blob[place] != "A" else "B") + blob[place + 1 :]


TOUCHED = {
    BOUND: "messages.1.content.0: Invalid `signature` in `thinking` block",
    FREE: "messages.1.content.0: Invalid `signature` in `thinking` block",
    CLOUD: f"{CLOUD_SAYS}messages.1.content.0: Invalid `signature` in `thinking` block",
    LEVELED: "Corrupted thought signature.",
    BUDGETED: "",
    RESPONSES: "The encrypted content for item {id} could not be verified. Reason: Encrypted content could not be"
    " decrypted or parsed.",
}


@pytest.mark.parametrize("name", TOUCHED)
def test_another_letter_in_the_seal(talks, name):
    first = next(blocks(json.loads(talks[name].asked[-1].body)))[0]

    def change(body: Body) -> None:
        held, where = next(blocks(body))
        held[where] = other_letter(held[where])

    said = TOUCHED[name].format(id=first.get("id"))
    assert talks[name].again(change) == ((400, said) if said else (200, ""))


def family(name: str) -> str:
    return name.partition("/")[0]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        (name, other)
        for name in TOUCHED
        for other in (BOUND, LEVELED, RESPONSES)
        if family(name) != family(other)
    ],
)
def test_a_seal_of_another_family(talks, name, other):
    held, where = next(blocks(json.loads(talks[other].asked[-1].body)))
    foreign = held[where]
    first = next(blocks(json.loads(talks[name].asked[-1].body)))[0]

    def change(body: Body) -> None:
        held, where = next(blocks(body))
        held[where] = foreign

    said = TOUCHED[name].format(id=first.get("id"))
    assert talks[name].again(change) == ((400, said) if said else (200, ""))


@pytest.mark.parametrize(
    ("name", "other"), [(BOUND, CLOUD), (CLOUD, BOUND), (FREE, CLOUD_FREE), (CLOUD_FREE, FREE)]
)
def test_the_same_model_behind_another_door(talks, name, other):
    """Older signatures are good at every door; newer ones only where they were given."""
    held, where = next(blocks(json.loads(talks[other].asked[-1].body)))
    foreign = held[where]

    def change(body: Body) -> None:
        held, where = next(blocks(body))
        held[where] = foreign

    status, said = talks[name].again(change)
    assert (status, "Invalid `signature` in `thinking` block" in said) == (
        (400, True) if name in (BOUND, CLOUD) else (200, False)
    )


def test_what_another_model_of_the_maker_thought_is_passed_over(talks):
    held, where = next(blocks(json.loads(talks[FREE].asked[-1].body)))
    foreign = held[where]

    def change(body: Body) -> None:
        # All of them: from the middle of a line nothing may be missing.
        for held, where in list(blocks(body)):
            held[where] = foreign

    assert talks[BOUND].again(change) == (200, "")


@pytest.mark.parametrize(
    ("name", "says"), [(BOUND, ""), (FREE, ""), (CLOUD, CLOUD_SAYS), (CLOUD_FREE, CLOUD_SAYS)]
)
def test_another_word_in_a_thought(talks, name, says):
    def earlier(body: Body) -> None:
        held, _ = next(blocks(body))
        held["thinking" if "thinking" in held else "text"] += "!"

    def latest(body: Body) -> None:
        held, _ = list(blocks(body))[-1]
        held["thinking" if "thinking" in held else "text"] += "!"

    place = len(json.loads(talks[name].asked[-1].body)["messages"]) - 2
    assert talks[name].again(earlier) == (
        400,
        f"{says}messages.1.content.0: Invalid `signature` in `thinking` block",
    )
    assert talks[name].again(latest) == (400, f"{says}messages.{place}.content.0: {LATEST}")


def earlier_words(body: Body) -> None:
    body["messages"][0]["content"][0]["text"] += " please"


def earlier_result(body: Body) -> None:
    held = body["messages"][2]["content"][0]
    result = held.get("toolResult", held)
    result["content"] = [{"type": "text", "text": "(cleared)"} if "type" in held else {"text": "(cleared)"}]


def other_system(body: Body) -> None:
    body["system"][0]["text"] = "Be long."


def other_tool(body: Body) -> None:
    tool = (body.get("tools") or body["toolConfig"]["tools"])[0]
    tool.get("toolSpec", tool)["description"] = "Look around."


def one_message_less(body: Body) -> None:
    del body["messages"][:6]


@pytest.mark.parametrize(("name", "free"), [(BOUND, FREE), (CLOUD, CLOUD_FREE)])
@pytest.mark.parametrize(
    "change", [earlier_words, earlier_result, other_system, other_tool, one_message_less]
)
def test_another_past_is_refused_by_the_models_that_look_at_it(talks, name, free, change):
    status, said = talks[name].again(change)
    assert (status, ELSEWHERE in said) == (400, True)
    assert said.endswith("value in the `anthropic-beta` header.") == (name == BOUND)
    assert talks[free].again(change) == (200, "")


def test_what_may_change_behind_ones_back(talks):
    def others(body: Body) -> None:
        body["max_tokens"] = 2_000
        body["output_config"] = {"effort": "low"}
        body["tools"].append({"name": "far", "input_schema": {"type": "object"}, "defer_loading": True})
        body["messages"][0]["content"][0]["cache_control"] = {"type": "ephemeral"}
        body["messages"][0] = dict(reversed(body["messages"][0].items()))
        body["messages"].append({"role": "user", "content": "And?"})

    assert talks[BOUND].again(others) == (200, "")


def thoughts_left(keep: Callable[[int], bool]) -> Callable[[Body], None]:
    """The thoughts that stay, by their numbers."""

    def change(body: Body) -> None:
        number = itertools.count()
        for message in body["messages"]:
            message["content"] = [
                block
                for block in message["content"]
                if not (block.get("type") == "thinking" or "reasoningContent" in block) or keep(next(number))
            ]

    return change


@pytest.mark.parametrize("name", [BOUND, CLOUD])
@pytest.mark.parametrize(
    ("keep", "taken"),
    [
        (lambda number: number >= 2, True),
        (lambda number: number < 3, True),
        (lambda number: False, True),
        (lambda number: number != 2, False),
        (lambda number: number not in (1, 3), False),
    ],
    ids=["from the start", "from the end", "all", "one in the middle", "two in the middle"],
)
def test_thoughts_left_out(talks, name, keep, taken):
    status, said = talks[name].again(thoughts_left(keep))
    assert (status, ELSEWHERE in said) == ((200, False) if taken else (400, True))


def test_a_thought_that_was_left_out_does_not_come_back():
    watched = talk(BOUND, prompts=1)
    whole = json.loads(watched.asked[-1].body)
    left = json.loads(watched.asked[-1].body)
    thoughts_left(lambda number: number >= 1)(left)
    reply = json.loads(b"".join(answer_statelessly(with_body(watched, {**left, "stream": False})).frames))
    later = [{"role": "assistant", "content": reply["content"]}, {"role": "user", "content": "And?"}]
    watched.asked.append(with_body(watched, {**left, "messages": left["messages"] + later}))
    assert watched.again(lambda body: None) == (200, "")
    status, said = watched.again(lambda body: body.update(messages=whole["messages"] + later))
    assert (status, ELSEWHERE in said) == (400, True)


def with_body(watched: Watched, body: Body):
    return replace(watched.asked[-1], body=json.dumps(body).encode())


def test_a_sibling_of_the_latest_reply_left_out():
    for name, says in ((BOUND, ""), (CLOUD, CLOUD_SAYS), (FREE, ""), (CLOUD_FREE, CLOUD_SAYS)):
        watched = talk(name, reply_redacted, prompts=1)

        def change(body: Body) -> None:
            content = body["messages"][-2]["content"]
            del content[1]

        assert watched.again(change) == (400, f"{says}messages.3.content.0: {LATEST}")

        def swap(body: Body) -> None:
            content = body["messages"][-2]["content"]
            content[0], content[1] = content[1], content[0]

        assert watched.again(swap) == (400, f"{says}messages.3.content.0: {LATEST}")


def test_thoughts_that_do_not_fit_may_be_dropped_on_request(talks):
    outgoing = talks[BOUND].asked[-1]
    body = json.loads(outgoing.body)
    earlier_words(body)
    body["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    bare = replace(outgoing, body=json.dumps(body).encode())
    headed = replace(
        bare, headers=(*bare.headers, ("anthropic-beta", "thinking-binding-controls-2026-08-01"))
    )
    assert (
        error_message(answer_statelessly(bare))
        == "thinking.adaptive.block_binding: Extra inputs are not permitted"
    )
    assert answer_statelessly(headed).status == 200


# --- thought signatures -------------------------------------------------------------------------


def signed_calls(body: Body) -> list[dict]:
    return [
        part
        for content in body["contents"]
        for part in content["parts"]
        if "functionCall" in part and "thoughtSignature" in part
    ]


def test_a_signature_belongs_to_its_part_in_the_turn_that_goes_on(talks):
    def latest(body: Body) -> None:
        signed_calls(body)[-1]["functionCall"]["args"]["where"] = "up"

    def earlier(body: Body) -> None:
        signed_calls(body)[0]["functionCall"]["args"]["where"] = "up"

    def swapped(body: Body) -> None:
        one, two = signed_calls(body)[-2:]
        one["thoughtSignature"], two["thoughtSignature"] = two["thoughtSignature"], one["thoughtSignature"]

    assert talks[LEVELED].again(latest) == (400, "Invalid thought signature.")
    assert talks[LEVELED].again(swapped) == (400, "Invalid thought signature.")
    assert talks[LEVELED].again(earlier) == (200, "")


def test_a_signature_left_out(talks):
    def change(body: Body) -> None:
        del signed_calls(body)[-1]["thoughtSignature"]

    status, said = talks[LEVELED].again(change)
    assert (status, said.partition(" in ")[0]) == (400, "Function call is missing a thought_signature")
    assert talks[BUDGETED].again(change) == (200, "")


def test_words_that_stand_for_a_signature(talks):
    def change(body: Body) -> None:
        for part in signed_calls(body):
            part["thoughtSignature"] = "skip_thought_signature_validator"

    assert talks[LEVELED].again(change) == (200, "")


# --- encrypted reasoning ------------------------------------------------------------------------


def of_type(body: Body, kind: str) -> list[dict]:
    return [item for item in body["input"] if item.get("type") == kind]


def test_reasoning_under_another_name(talks):
    def change(body: Body) -> None:
        one, two = of_type(body, "reasoning")[:2]
        one["encrypted_content"], two["encrypted_content"] = (
            two["encrypted_content"],
            one["encrypted_content"],
        )

    first = of_type(json.loads(talks[RESPONSES].asked[-1].body), "reasoning")[0]["id"]
    status, said = talks[RESPONSES].again(change)
    reason = "Encrypted content item_id did not match the target item id."
    assert (status, said) == (
        400,
        f"The encrypted content for item {first} could not be verified. Reason: {reason}",
    )


def test_a_call_without_its_reasoning(talks):
    last = json.loads(talks[RESPONSES].asked[-1].body)
    thought, call = of_type(last, "reasoning")[-1]["id"], of_type(last, "function_call")[-1]["id"]

    def change(body: Body) -> None:
        body["input"].remove(of_type(body, "reasoning")[-1])

    assert talks[RESPONSES].again(change) == (
        400,
        f"Item '{call}' of type 'function_call' was provided without its required 'reasoning' item: '{thought}'.",
    )


def test_items_without_names_need_no_siblings(talks):
    def change(body: Body) -> None:
        body["input"] = [item for item in body["input"] if item.get("type") != "reasoning"]
        for item in body["input"]:
            item.pop("id", None)

    assert talks[RESPONSES].again(change) == (200, "")


def test_what_another_model_reasoned_is_left_out_in_silence(talks):
    last = json.loads(talks[SIBLING].asked[-1].body)
    assert talks[RESPONSES].again(lambda body: body.update(input=last["input"])) == (200, "")


@pytest.mark.refusals
def test_what_was_compacted_stands_for_the_conversation_and_is_known_again(talks):
    async def compacted() -> tuple[Body, list[int]]:
        simulator = Simulator()
        outgoing = talks[RESPONSES].asked[-1]
        body = json.loads(outgoing.body)
        short = {"model": body["model"], "input": body["input"]}
        url = outgoing.url.replace("/responses", "/responses/compact")
        made = await simulator.answer(replace(outgoing, url=url, body=json.dumps(short).encode()))
        output = json.loads(made.body)["output"]
        seals = [item["encrypted_content"] for item in output if item["type"] == "compaction"]
        statuses = []
        for blob in (seals[0], other_letter(seals[0])):
            items = [
                {**item, "encrypted_content": blob} if "encrypted_content" in item else item
                for item in output
            ]
            again = {**body, "stream": False, "input": [*items, {"role": "user", "content": "And?"}]}
            statuses.append((await simulator.answer(with_body_of(outgoing, again))).status)
        return output, statuses

    output, statuses = asyncio.run(compacted())
    assert [item["type"] for item in output][-1] == "compaction"
    assert statuses == [200, 400]


def with_body_of(outgoing: OutgoingRequest, body: Body) -> OutgoingRequest:
    return replace(outgoing, body=json.dumps(body).encode())

"""Summaries made by the provider itself, in whole runs on the strict simulator."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from bridle import Agent, Compaction, Media
from bridle.core.context.summary_view import find_cut_point, has_prompts_intact, native_replacement
from bridle.stores.memory import MemoryStore
from bridle.testing.simulated_provider import ProviderSim
from bridle.values import events as e
from bridle.values.message import Message, Opaque, Text
from bridle.values.model import Origin
from tests.core.compaction.long_walks import FAMILIES, PNG, PROMPT, Walk, walker, words_of

BOUND, RESPONSES = FAMILIES["anthropic"], FAMILIES["openai_responses"]
FREE = "sim:anthropic/claude-sonnet-4-6"
ABLE = (BOUND, FREE, RESPONSES)


def walk_on(model, *, think=True, **options):
    return Walk(model, **{"native": True, "brain": walker(think=think), **options})


def asked_for(walk, *, native):
    asked = (event for event in walk.events if isinstance(event, e.ModelAsked) and event.summarizes_until)
    return [event for event in asked if event.asks_native_summary is native]


def bodies(walk):
    return [json.loads(each.body) for each in walk.provider.exchanges]


# --- whole runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ABLE)
def test_a_long_run_goes_through_and_nothing_is_refused(model, stream):
    walk = walk_on(model)
    if stream:

        async def streamed():
            async for _ in walk.agent.stream(PROMPT.format(30), "s"):
                pass

        asyncio.run(streamed())
    else:
        assert walk.run(30).text == "I went through 30 places."
    assert (walk.state.run.end.stop, walk.provider.refusals) == ("done", [])
    natively = [event for event in walk.compactions if event.native_parts]
    assert len(natively) >= 2
    assert len(asked_for(walk, native=True)) == len(natively)
    assert asked_for(walk, native=False) == []
    assert all("compaction" in {part.kind for part in event.native_parts} for event in natively)
    assert all(event.after_tokens < event.before_tokens * 0.7 for event in natively)


@pytest.mark.parametrize("model", ABLE)
def test_what_people_said_stays_word_for_word(model):
    walk = walk_on(model)
    walk.run(30)
    words = PROMPT.format(30)
    for body in bodies(walk):
        assert words in json.dumps(body, ensure_ascii=False)


@pytest.mark.parametrize("model", ABLE)
def test_a_picture_that_somebody_showed_stays_too(model):
    """No summary can quote it."""
    walk = walk_on(model)
    picture = Media(kind="image", media_type="image/png", data=PNG)
    result = asyncio.run(walk.agent.run([Text(text=PROMPT.format(30)), picture], "s"))
    assert (result.text, walk.provider.refusals) == ("I went through 30 places.", [])
    assert len(walk.compactions) >= 2
    assert all(PNG in json.dumps(body) for body in bodies(walk))


@pytest.mark.parametrize("model", ABLE)
def test_making_it_is_paid_for_like_any_call(model):
    walk = walk_on(model)
    result = walk.run(30)
    replies = [event for event in walk.events if isinstance(event, e.ModelReplied)]
    made = [event for event in replies if event.summarizes_until]
    assert made
    assert all(event.usd is not None and event.usd > 0 and event.reply.usage.prompt > 1_000 for event in made)
    assert result.cost == pytest.approx(float(sum(event.usd for event in replies)))  # type: ignore[misc]


def test_thoughts_of_the_newest_turns_are_taken_behind_it():
    walk = walk_on(BOUND)
    walk.run(30)
    assert not [event for event in walk.events if isinstance(event, e.ViewChanged)]
    kept = 0
    for before, body in zip(bodies(walk), bodies(walk)[1:], strict=False):
        if "compaction" in before:
            first, *rest = body["messages"]
            assert first["content"][0]["type"] == "compaction"
            kept += sum(block["type"] == "thinking" for turn in rest for block in turn["content"])
            assert "compaction" not in body
    assert kept >= 4
    plain = Walk(BOUND, brain=walker(think=True))
    plain.run(30)
    assert [event for event in plain.events if isinstance(event, e.ViewChanged)], "without it they are not"


@pytest.mark.parametrize("model", ABLE)
def test_a_cache_is_read_before_and_behind_it(model):
    walk = walk_on(model, think=False)
    walk.run(50)
    assert walk.compactions
    assert walk.share() >= 0.95


@pytest.mark.parametrize("chain", [False, True])
def test_a_stored_conversation_is_sent_again_after_a_native_summary(chain):
    walk = walk_on(RESPONSES, chain=chain)
    assert walk.run(30).text == "I went through 30 places."
    assert walk.provider.refusals == []
    assert len(walk.compactions) >= 2


# --- afterwards ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ABLE)
def test_the_session_goes_on_in_another_process(model):
    walk = walk_on(model)
    walk.run(30)
    again = walk_on(model, store=walk.store)
    again.provider = walk.provider
    again.line = walk.line
    assert again.run(45).text == "I went through 45 places."
    assert walk.provider.refusals == []


@pytest.mark.parametrize("model", ABLE)
@pytest.mark.parametrize("lost", [e.Compacted, e.ModelReplied])
def test_a_run_that_died_right_there_goes_on(model, lost):
    walk = walk_on(model)
    walk.run(30)
    records = walk.records
    native = (isinstance(each.event, lost) and _about_it(each.event) for each in records)
    end = list(native).index(True)
    store = MemoryStore()
    asyncio.run(_copied(store, records[:end]))
    other = walk_on(model, store=store)
    result = asyncio.run(other.agent.resume("s"))
    assert result.text == "I went through 30 places."
    assert other.provider.refusals == []
    assert [event for event in other.events if isinstance(event, e.Compacted) and event.native_parts]


def _about_it(event):
    return bool(event.native_parts if isinstance(event, e.Compacted) else event.summarizes_until)


async def _copied(store, records):
    await store.append("s", 0, [replace(record) for record in records])


def _secrets(native):
    return [value for name, value in json.loads(native).items() if name in ("signature", "encrypted_content")]


@pytest.mark.parametrize("there", [FAMILIES["openai_chat"], FAMILIES["gemini"], RESPONSES, BOUND])
@pytest.mark.parametrize("here", [BOUND, RESPONSES])
def test_another_family_goes_on_with_the_words(here, there):
    if here == there:
        pytest.skip("the same")
    walk = walk_on(here, think=False)
    walk.run(20)
    other = Walk(there, store=walk.store, context_tokens=60_000)
    assert other.run(25).text == "I went through 25 places."
    assert other.provider.refusals == []
    first = other.provider.exchanges[0].body
    sealed = [
        part.native for event in walk.compactions for part in event.native_parts if part.kind == "compaction"
    ]
    assert sealed
    assert not any(secret.encode() in first for native in sealed for secret in _secrets(native))
    assert PROMPT.format(20).encode() in first
    summarised = b"Summary of the steps" in first
    assert summarised is (here == BOUND), "where there are no words, what was said is said again"
    back = walk_on(here, store=walk.store, think=False, context_tokens=60_000)
    back.provider, back.line = walk.provider, walk.line
    back.run(27)
    assert walk.provider.refusals == []


# --- when it cannot be --------------------------------------------------------------------------


@pytest.mark.parametrize("wish", [Compaction(native=False), Compaction(model=BOUND)])
def test_it_is_not_asked_for_where_somebody_chose_otherwise(wish):
    provider = ProviderSim(responder=walker())
    walk = Walk(BOUND, brain=walker())
    agent = Agent(provider.model(BOUND), **{**walk.options, "compaction": wish})
    assert agent.run_sync(PROMPT.format(12), session="s").stop == "done"
    assert asked_for(walk, native=True) == []


@pytest.mark.refusals
def test_a_provider_that_refuses_it_is_not_asked_twice_and_the_run_goes_on():
    """The tables say that it can; it says that it cannot."""
    walk = walk_on("sim:anthropic/claude-haiku-4-5", think=False, refusals=True)
    able = replace(walk.line.model, abilities=replace(walk.line.model.abilities, compaction=True))
    walk.line = walk.provider.model(able)
    assert walk.run(30).text == "I went through 30 places."
    assert {refusal.rule for refusal in walk.provider.refusals} == {"compaction-model"}
    assert len(asked_for(walk, native=True)) == 1
    assert len(asked_for(walk, native=False)) == len(walk.compactions) >= 2
    assert not any(event.native_parts for event in walk.compactions)


def test_where_the_summary_leaves_out_what_people_said_its_words_serve_as_a_summary():
    walk = walk_on(BOUND)
    walk.options["instructions"] = "Walk slowly."
    prompt = PROMPT.format(30) + " Take care of every stone on the way." * 8
    result = asyncio.run(walk.agent.run(prompt, "s"))
    assert (result.text, walk.provider.refusals) == ("I went through 30 places.", [])
    assert asked_for(walk, native=False) == [], "nothing is asked for twice"
    assert len(walk.compactions) >= 2
    for event in walk.compactions:
        assert event.native_parts == ()
        assert "by a simulated model" in event.summary
    assert prompt in list(words_of(walk.state.conversation.view[0]))


def test_too_little_room_for_it_is_no_end():
    walk = walk_on(BOUND, context_tokens=4_000, compaction=Compaction(keep=0.1))
    assert walk.run(12).stop == "done"
    assert walk.provider.refusals == []


# --- its parts ----------------------------------------------------------------------------------


def make_messages(*roles):
    return [Message(role=role, parts=(Text(text=role),), id=f"m{at}") for at, role in enumerate(roles)]


@pytest.mark.parametrize(
    ("roles", "end", "found"),
    [
        (("user", "assistant", "tool", "assistant"), 3, 3),
        (("user", "assistant", "user", "assistant"), 2, 2),
        (("user", "assistant", "tool", "user", "assistant"), 3, 1),
        (("user", "assistant", "system", "user"), 3, 1),
        (("user", "user", "assistant"), 1, 0),
        (("user", "assistant", "tool", "assistant"), 2, 1),
    ],
)
def test_whoever_speaks_next_is_another(roles, end, found):
    assert find_cut_point(make_messages(*roles), end, 0) == found


def test_people_are_safe_when_they_are_quoted_kept_or_restated():
    from_people = make_messages("user")
    block = Opaque(kind="compaction", native="{}", text="They said:\n user,\n and left.")
    silent = replace(block, text="They left.")
    kept = Opaque(kind="message", native="{}", text="user")
    bound, free = (Walk(model).line.model for model in (BOUND, FREE))
    assert has_prompts_intact((block,), from_people, bound)
    assert not has_prompts_intact((silent,), from_people, bound)
    assert has_prompts_intact((kept, silent), from_people, bound)
    assert has_prompts_intact((silent,), from_people, free)


def test_what_was_made_for_another_model_may_not_quote_people():
    bound, free = (Walk(model).line.model for model in (BOUND, FREE))
    block = Opaque(kind="compaction", native="{}", text="They left.")
    maker = Origin(family="anthropic", endpoint=bound.endpoint.endpoint_id, model=free.id)
    event = e.Compacted(
        strategies=("turns",), why="", label="They said:", native_parts=(block,), native_origin=maker
    )
    assert [part.text for part in native_replacement(event, make_messages("user"), bound)] == [
        "They left.",
        "They said:",
        "user",
    ]
    own = replace(event, native_origin=replace(maker, model=bound.id))
    assert native_replacement(own, make_messages("user"), bound) == (block,), (
        "it was looked at when it was made"
    )

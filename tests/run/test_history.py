"""Import and export of conversations."""

from typing import Any

import pytest

from bridle import Agent, MisuseError, tool
from bridle.run.model_connection import find_model_by_name
from bridle.sessions import export_history, import_history
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.values.events import Imported
from bridle.values.message import Media, Message

ANTHROPIC: list[Any] = [
    {"role": "user", "content": "What is 2 + 3?"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Add them.", "signature": "c2ln"},
            {"type": "text", "text": "Let me add."},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2, "b": 3}},
            {"type": "tool_use", "id": "toolu_2", "name": "add", "input": {"a": 0, "b": 1}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "1"},
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "5"},
        ],
    },
    {"role": "assistant", "content": "5"},
]
FAMILIES = ("anthropic", "openai_responses", "openai_chat", "gemini", "bedrock_converse")


def test_a_list_of_messages_becomes_a_conversation():
    history = import_history("anthropic", ANTHROPIC)
    assert [m.role for m in history.messages] == ["user", "assistant", "tool", "assistant"]
    assert [r.text for r in history.messages[2].results] == ["5", "1"]
    assert history.repairs == ()
    assert history.messages[1].origin.endpoint == "anthropic"


def test_it_comes_back_as_it_was():
    history = import_history("anthropic", ANTHROPIC)
    back = export_history("anthropic", history.messages)
    assert back[1]["content"] == ANTHROPIC[1]["content"]
    assert {b["tool_use_id"] for b in back[2]["content"]} == {"toolu_1", "toolu_2"}  # type: ignore[call-overload]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_moved_to_and_from(family):
    history = import_history("anthropic", ANTHROPIC)
    listed = export_history(family, history.messages)
    assert "c2ln" not in str(listed) or family == "anthropic"
    again = import_history(family, listed)
    assert [m.text for m in again.messages if m.role != "tool"] == ["What is 2 + 3?", "Let me add.", "5"]
    calls = [(c.name, c.arguments.replace(" ", "")) for m in again.messages for c in m.calls]
    assert calls == [("add", '{"a":2,"b":3}'), ("add", '{"a":0,"b":1}')]
    assert [r.text for m in again.messages for r in m.results] == ["5", "1"]


@pytest.mark.parametrize(
    "vendor", ["azure", "azure-chat", "anthropic-vertex", "anthropic-vertex-region", "anthropic-foundry"]
)
def test_moving_in_and_out_needs_nothing_in_the_environment(monkeypatch, vendor):
    """Nothing is sent, so nobody has to say where to."""
    for name in ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_BASE_URL", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    listed = export_history(vendor, import_history("anthropic", ANTHROPIC).messages)
    assert [r.text for m in import_history(vendor, listed).messages for r in m.results] == ["5", "1"]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_nobody_there_can_read_is_moved_as_words(family):
    held = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    asked: Any = {"role": "user", "content": [held, {"type": "text", "text": "See?"}]}
    history: Any = import_history("anthropic", [asked])
    seen = Message(role="user", parts=(Media(kind="image", media_type="image/tiff", data="aGk="),))
    listed = export_history(family, (*history.messages, seen))
    assert ("file_1" in str(listed)) is (family == "anthropic")
    assert "image/tiff" in str(listed) and "aGk=" not in str(listed)
    assert "takes no image/tiff" in str(listed)


def test_what_is_moved_ends_where_it_ended():
    """The next words are whoever's who moves it; nothing is said in their name."""
    history = import_history("anthropic", ANTHROPIC)
    assert export_history("anthropic", history.messages)[-1]["role"] == "assistant"


def test_what_is_broken_is_repaired_and_told():
    history = import_history("anthropic", ANTHROPIC[:2])
    assert [r.outcome for r in history.messages[2].results] == ["unknown", "unknown"]
    assert len(history.repairs) == 2
    assert "toolu" not in history.repairs[0]


def test_a_session_goes_on_from_a_history():
    line, store = scripted("unused", "unused", "five, I said", model="sim:"), MemoryStore()
    agent = Agent(line, store=store)
    history = import_history("anthropic", ANTHROPIC)
    result = agent.run_sync("Once more?", session="s", history=history)
    assert result.text == "five, I said"
    assert [m.id for m in result.messages] == ["m1", "m2", "m3", "m4", "m5", "m6"]
    assert len(line.script.requests[0].messages) == 5
    with pytest.raises(MisuseError, match="already exists"):
        agent.run_sync("again", session="s", history=history)


def test_the_import_is_one_event_in_the_log():
    import asyncio

    store = MemoryStore()
    Agent(scripted("x", "x", "x"), store=store).run_sync(
        "go on", session="s", history=import_history("anthropic", ANTHROPIC[:2])
    )
    (event,) = [r.event for r in asyncio.run(store.read("s")) if isinstance(r.event, Imported)]
    assert len(event.messages) == 3
    assert len(event.repairs) == 2


@pytest.mark.parametrize("wrong", [[5], ["words"], [{"role": "nobody", "content": 5}], [{"content": {}}]])
def test_what_is_no_conversation_is_refused_or_read_as_nothing(wrong):
    try:
        history = import_history("anthropic", wrong)
    except MisuseError as error:
        assert "not a conversation" in str(error)
    else:
        assert isinstance(history.messages, tuple)


@pytest.mark.parametrize("family", FAMILIES)
def test_imported_calls_never_share_an_id_with_later_ones(family):
    @tool(effect="read")
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    agent = Agent("sim:", tools=[add])
    history = import_history(family, export_history(family, import_history("anthropic", ANTHROPIC).messages))
    script = '!call add {"a": 1, "b": 1}\n!then\n!call add {"a": 2, "b": 2}\n!then\n!say done'
    result = agent.run_sync(script, history=history)
    ids = [call.id for message in result.messages for call in message.calls]
    assert len(ids) == 4
    assert len(set(ids)) == 4, ids
    assert sorted(ids) == sorted(each.call_id for message in result.messages for each in message.results)


# ── lists in another form than the vendor's that was named ──────────────────

CHAT: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 2 + 3?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":2,"b":3}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "5"},
    {"role": "assistant", "content": "5"},
]


def moved_to(family):
    """The same conversation as each family lists it, with its system prompt where the list holds one."""
    if family == "openai_chat":
        return CHAT
    messages = import_history("openai_chat", CHAT).messages
    return export_history(family, messages)


@pytest.mark.parametrize("listed", FAMILIES)
@pytest.mark.parametrize("named", ["openai", "openai-chat", "anthropic", "gemini", "bedrock"])
def test_a_list_is_read_in_its_own_form_for_any_named_vendor(listed, named):
    history = import_history(named, moved_to(listed))
    assert history.family == listed
    calls = [(call.name, call.arguments.replace(" ", "")) for m in history.messages for call in m.calls]
    assert calls == [("add", '{"a":2,"b":3}')]
    assert [result.text for m in history.messages for result in m.results] == ["5"]
    assert [m.text for m in history.messages if m.text] == ["What is 2 + 3?", "5"]
    told = [repair for repair in history.repairs if f"has the form of {listed}" in repair]
    own = find_model_by_name(f"{named}:=any", environ={}).endpoint.family == listed
    assert bool(told) is not own


@pytest.mark.parametrize("named", ["openai", "openai-chat", "anthropic", "gemini", "bedrock"])
def test_plain_words_can_be_moved_from_anybody(named):
    plain = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    assert [m.text for m in import_history(named, plain).messages] == ["hi", "hello"]


@pytest.mark.parametrize("named", ["openai", "openai-chat"])
def test_the_system_prompt_is_kept_and_in_force(named):
    history = import_history(named, CHAT)
    assert history.instructions == "Be brief."
    line = scripted("unused", "unused", "five", "six", model="sim:")
    agent = Agent(line, store=MemoryStore())
    first = agent.run_sync("Once more?", session="s", history=history)
    agent.run_sync("And again?", session="s")
    assert [[text.text for text in asked.system] for asked in line.script.requests] == [["Be brief."]] * 2
    assert first.text == "five"


def test_a_system_prompt_that_gives_way_to_the_agents_own_is_told():
    import asyncio

    store = MemoryStore()
    line = scripted("unused", "unused", "five", model="sim:")
    history = import_history("openai", CHAT)
    Agent(line, store=store, instructions="Be kind.").run_sync("Go on.", session="s", history=history)
    assert [text.text for text in line.script.requests[0].system] == ["Be kind."]
    (event,) = [r.event for r in asyncio.run(store.read("s")) if isinstance(r.event, Imported)]
    assert event.instructions == "Be brief."
    assert any("system prompt is not sent" in repair for repair in event.repairs)
    assert any("has the form of openai_chat" in repair for repair in event.repairs)


@pytest.mark.parametrize(
    ("vendor", "body"),
    [
        ("anthropic", {"system": "Be brief.", "messages": ANTHROPIC}),
        ("openai", {"instructions": "Be brief.", "input": [{"role": "user", "content": "What is 2 + 3?"}]}),
        (
            "gemini",
            {
                "systemInstruction": {"parts": [{"text": "Be brief."}]},
                "contents": [{"role": "user", "parts": [{"text": "What is 2 + 3?"}]}],
            },
        ),
    ],
)
def test_a_whole_request_may_be_given(vendor, body):
    history = import_history(vendor, body)
    assert history.instructions == "Be brief."
    assert history.messages[0].text == "What is 2 + 3?"


def test_what_no_other_wire_reads_is_listed():
    found: Any = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search"},
    }
    history: Any = import_history("openai", [{"role": "user", "content": "Search."}, found])
    assert any("'web_search_call' in message 2" in repair for repair in history.repairs)


def test_an_item_of_another_form_among_others_is_listed():
    mixed = [*moved_to("openai_responses"), *CHAT[1:4]]
    history = import_history("openai", mixed)
    assert [repair for repair in history.repairs if "has the form of openai_chat" in repair]


def test_arguments_in_the_wrong_order_are_one_line():
    with pytest.raises(MisuseError, match="import_history takes a vendor name first"):
        import_history(ANTHROPIC, "anthropic")  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="export_history takes a vendor name first"):
        export_history(import_history("anthropic", ANTHROPIC).messages, "anthropic")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["words", b"words", None, 5, '{"messages": []}'])
def test_messages_that_are_no_list_are_one_line(given):
    with pytest.raises(MisuseError, match="takes a list of messages or a request body, not") as refusal:
        import_history("anthropic", given)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("given", [ANTHROPIC, import_history("anthropic", ANTHROPIC), None, 5])
def test_only_messages_of_ours_are_exported(given):
    with pytest.raises(MisuseError, match="takes messages of Bridle"):
        export_history("anthropic", given)


@pytest.mark.parametrize("given", [ANTHROPIC, "words", import_history("anthropic", ANTHROPIC).messages])
@pytest.mark.parametrize("way", ["run", "stream"])
def test_a_history_that_was_not_imported_is_one_line(given, way):
    agent = Agent("sim:")
    with pytest.raises(MisuseError, match="make one with import_history"):
        agent.run_sync("hi", history=given) if way == "run" else agent.stream("hi", history=given)


def test_an_iterator_is_read_whole():
    assert import_history("anthropic", iter(ANTHROPIC)) == import_history("anthropic", ANTHROPIC)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("vendor", "body", "fields"),
    [
        ("anthropic", {"model": "x", "system": "S", "messages": ANTHROPIC, "tools": []}, "model, tools"),
        ("openai", {"instructions": "S", "input": "hi", "previous_response_id": "r"}, "previous_response_id"),
        ("openai-chat", {"messages": CHAT, "temperature": 1}, "temperature"),
        (
            "gemini",
            {
                "system_instruction": {"parts": [{"text": "S"}]},
                "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
                "generationConfig": {},
            },
            "generationConfig",
        ),
        (
            "bedrock",
            {
                "system": [{"text": "S"}],
                "messages": [{"role": "user", "content": [{"text": "hi"}]}],
                "inferenceConfig": {},
            },
            "inferenceConfig",
        ),
    ],
)
def test_fields_of_a_request_that_are_no_conversation_are_listed(vendor, body, fields):
    history = import_history(vendor, body)
    assert history.instructions in ("S", "Be brief.")
    assert history.repairs[-1].endswith(f"messages and a system prompt: {fields}")


def test_a_body_without_messages_is_one_line():
    with pytest.raises(MisuseError, match="this request body has no list of messages"):
        import_history("anthropic", {"model": "x"})


@pytest.mark.parametrize("deltas", [True, False])
def test_a_stream_goes_on_from_a_history(deltas):
    import asyncio

    line = scripted("unused", "unused", "five, I said", model="sim:")
    agent = Agent(line, store=MemoryStore())
    stream = agent.stream("Once more?", "s", history=import_history("anthropic", ANTHROPIC), deltas=deltas)

    async def watch():
        return [item async for item in stream]

    shown = asyncio.run(watch())
    assert shown[-1].result.text == "five, I said"
    assert [len(item.messages) for item in shown if isinstance(item, Imported)] == [4]
    assert len(line.script.requests[0].messages) == 5


def told_by_family(words):
    """A conversation in which the model said these words and nothing else, as each family lists it."""
    return {
        "anthropic": [{"role": "assistant", "content": words}],
        "openai_chat": [{"role": "assistant", "content": words}],
        "openai_responses": [{"role": "assistant", "content": words}],
        "gemini": [{"role": "model", "parts": [{"text": words}] if words is not None else []}],
        "bedrock_converse": [
            {"role": "assistant", "content": [{"text": words}] if words is not None else []}
        ],
    }


@pytest.mark.parametrize("words", ["", " \n"])
@pytest.mark.parametrize("family", FAMILIES)
def test_blank_words_of_the_model_are_left_out_and_listed(family, words):
    user = "user"
    before, after = (
        {"role": user, "parts": [{"text": text}]}
        if family == "gemini"
        else {"role": user, "content": [{"text": text}] if family == "bedrock_converse" else text}
        for text in ("one", "two")
    )
    history: Any = import_history(family, [before, *told_by_family(words)[family], after])  # type: ignore[list-item]
    assert [message.text for message in history.messages] == ["one", "two"]
    (note,) = history.repairs
    assert "m2" in note
    assert "was left out" in note


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}], [{"type": "text", "text": " "}]])
def test_every_empty_form_of_an_anthropic_message_is_listed(content):
    listed = [{"role": "user", "content": "one"}, {"role": "assistant", "content": content}]
    history = import_history("anthropic", [*listed, {"role": "user", "content": "two"}])
    assert len(history.messages) == 2
    assert len(history.repairs) == 1


def test_reasoning_that_led_to_nothing_is_not_called_blank_text():
    thought = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}]
    listed: Any = [{"role": "user", "content": "one"}, {"role": "assistant", "content": thought}]
    history: Any = import_history("anthropic", [*listed, {"role": "user", "content": "two"}])
    assert history.repairs == ("reasoning that led to nothing in m2 was left out",)


DROPPED = [
    ("anthropic", {"role": "assistant", "content": "one"}, ()),
    ("gemini", {"role": "model", "parts": [{"text": "one"}], "note": "x"}, ("note",)),
    ("bedrock_converse", {"role": "assistant", "content": [{"text": "one"}], "note": "x"}, ("note",)),
    (
        "openai_chat",
        {"role": "assistant", "content": "one", "tool_calls": [{"id": "a", "type": "dance", "step": 1}]},
        ("tool_calls",),
    ),
    (
        "openai_chat",
        {
            "role": "assistant",
            "content": "one",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}},
                {"id": "b", "type": "dance", "step": 1},
            ],
        },
        ("tool_calls[1]",),
    ),
    ("openai_chat", {"role": "system", "content": "one", "note": "x"}, ("note",)),
    ("openai_responses", {"role": "developer", "content": "one", "note": "x"}, ("note",)),
]


@pytest.mark.parametrize(("family", "item", "dropped"), DROPPED)
def test_members_and_parts_that_are_not_kept_are_listed(family, item, dropped):
    notes = [note for note in import_history(family, [item]).repairs if note.startswith("not kept of")]
    assert notes == ([f"not kept of item 1: {', '.join(dropped)}"] if dropped else [])


USUAL: dict[str, Any] = {
    "anthropic": [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "content": "5", "is_error": False}],
        },
    ],
    "openai_chat": [
        {"role": "user", "content": [{"type": "text", "text": "a"}], "name": "bob"},
        {"role": "assistant", "content": "b", "refusal": None, "annotations": []},
        {"role": "developer", "content": "in the middle", "name": "x"},
    ],
    "openai_responses": [
        {"role": "user", "content": "a"},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "x", "annotations": [], "logprobs": []}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "5"},
        {"role": "developer", "content": "in the middle"},
    ],
}


@pytest.mark.parametrize("family", USUAL)
def test_usual_items_are_kept_whole(family):
    assert import_history(family, USUAL[family]).repairs == ()


@pytest.mark.parametrize("role", [{}, [], 5, None])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_role_that_is_no_text_is_refused_or_read(family, role):
    item = {"role": role, "parts": [{"text": "a"}], "content": [{"type": [], "text": "a"}]}
    try:
        import_history(family, [item])
    except MisuseError as error:
        assert "not a conversation" in str(error)


def test_two_calls_of_a_user_are_answered_each():
    calls = [{"functionCall": {"name": name, "args": {}}} for name in ("add", "sub")]
    history = import_history("gemini", [{"role": "user", "parts": calls}])
    assert len({call.id for message in history.messages for call in message.calls}) == 2

"""What a provider is sent for the first time has passed the input hooks, whatever its origin.

Every origin of a text in a request, on every wire, with each kind of input hook: the bytes that reach the provider are
searched for the data, also in base64.
"""

import asyncio
import base64
import json
from typing import Any

import pytest

from bridle import Agent, Compaction, Media, Memory, ModelRetry, Sampling, tool
from bridle.core.context.view import view_for_model
from bridle.hooks import Answer, Change, RedactPii, Refuse, before_model, edit_texts, guard_input
from bridle.hooks.pii import PII
from bridle.hooks.text_filter import PatternFilter, edit_message, make_joined_edit
from bridle.memory import Chunk
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.transports.inprocess import InProcessTransport
from bridle.values.errors import Failure, ProviderError
from bridle.values.hooks import HeadText, HookDecided
from bridle.values.media import TEXT_TYPES, read_text_document
from bridle.values.message import Message, Opaque, Reasoning, Text, ToolCall, ToolResult, ViewChanged
from bridle.values.result import History
from tests.suite.wire_models import MODELS

MAIL = "ann@example.org"
ENCODED = base64.b64encode(MAIL.encode()).decode()
"""The address is 15 bytes long and begins each document, so its base64 is the beginning of that of the document."""
models = pytest.mark.parametrize("model", MODELS)


class Tap:
    """A simulated provider that keeps the bytes of the requests that it gets."""

    def __init__(self, model):
        self.bodies, self._simulator, self.is_down = [], Simulator(), False
        found = find_model_by_name(model)
        self.connection = ModelConnection(
            model=found, codec=load_codec(found.endpoint.family), transport=InProcessTransport(self._answer)
        )

    async def _answer(self, outgoing):
        self.bodies.append(outgoing.body.decode())
        answer = await self._simulator.answer(outgoing)
        if self.is_down:
            raise ProviderError(Failure(kind="not_found", message="this model is gone", status=404))
        return answer

    def leaks(self):
        return [
            body for body in self.bodies if MAIL in body or ENCODED in body or MAIL in body.replace("\\", "")
        ]


def make_guard():
    @guard_input(name="no_mail")
    def check(run, text):
        return "an address" if MAIL in text else None

    return check


HOOKS: dict[str, Any] = {
    "redact": RedactPii,
    "refuse": lambda: RedactPii(input="refuse"),
    "guard": make_guard,
}


@tool(effect="read")
def look(name: str) -> str:
    """Look up a customer."""
    return f"{name}: {MAIL}"


def make_history(*messages):
    return History(messages=messages)


def user(*parts):
    return Message(
        role="user", parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    )


def document():
    return Media.from_bytes(f"{MAIL} wrote this".encode(), media_type="text/plain", name="note.txt")


CALLED = (
    user("who?"),
    Message(role="assistant", parts=(ToolCall(id="c1", name="look", arguments=json.dumps({"name": MAIL})),)),
    Message(role="tool", parts=(ToolResult(call_id="c1", parts=(Text(text="found"),)),)),
    Message(role="assistant", parts=(Text(text="found"),)),
)
ANSWERED = (
    user("who?"),
    Message(role="assistant", parts=(ToolCall(id="c1", name="look", arguments='{"name": "Ann"}'),)),
    Message(role="tool", parts=(ToolResult(call_id="c1", parts=(Text(text=MAIL),)),)),
    Message(role="assistant", parts=(Text(text="found"),)),
)


@tool(name="find", description=f"Ask {MAIL} about it.")
def described(name: str) -> str:
    return name


@tool(name="find")
def with_schema(name: str) -> str:
    """Find someone.

    Args:
        name: such as ann@example.org
    """
    return name


def ask_once(agent, prompt="!say hi", **options):
    return agent.run_sync(prompt, session="s", **options)


def ask_after_answer(agent):
    """Another hook answers the prompt; the next prompt sends it to the model for the first time."""
    agent.run_sync(f"answer me, {MAIL}", session="s")
    return agent.run_sync("!say hi", session="s")


def ask_with_note(agent):
    """A note of an earlier conversation is part of the system prompt."""
    plain = Agent("sim:", memory=Memory(), store=agent.store)
    plain.run_sync(f'!call remember {{"note": "Ann is {MAIL}"}}\n!then\n!say ok', session="n", tenant="t")
    return ask_once(agent, tenant="t")


def object_to(answer):
    if answer == "hi":
        raise ModelRetry(f"write to {MAIL}\n!say other")


@before_model(name="answers")
def answer_on_request(run, request):
    return Answer(text="yes") if "answer me" in request.messages[-1].text else None


SAID = Message(role="assistant", parts=(Text(text="ok"),))
ORIGINS = {
    "prompt": ({}, lambda agent: ask_once(agent, f"!say to {MAIL}")),
    "prompt in parts": ({}, lambda agent: ask_once(agent, ["hello ann@", "example.org"])),
    "document": ({}, lambda agent: ask_once(agent, ["!say hi", document()])),
    "user of history": ({}, lambda agent: ask_once(agent, history=make_history(user(MAIL), SAID))),
    "assistant of history": (
        {},
        lambda agent: ask_once(
            agent, history=make_history(user("who?"), Message(role="assistant", parts=(Text(text=MAIL),)))
        ),
    ),
    "arguments of history": (
        {"tools": [look]},
        lambda agent: ask_once(agent, history=make_history(*CALLED)),
    ),
    "result of history": (
        {"tools": [look]},
        lambda agent: ask_once(agent, history=make_history(*ANSWERED)),
    ),
    "document of history": (
        {},
        lambda agent: ask_once(agent, history=make_history(user("read", document()), SAID)),
    ),
    "instructions of history": (
        {},
        lambda agent: ask_once(
            agent, history=History(messages=(user("a"), SAID), instructions=f"Write to {MAIL}.")
        ),
    ),
    "instructions of the run": ({}, lambda agent: ask_once(agent, instructions=f"Write to {MAIL}.")),
    "tool of the run": ({}, lambda agent: ask_once(agent, tools=[described])),
    "schema of the run": ({}, lambda agent: ask_once(agent, tools=[with_schema])),
    "answered by a hook": ({"hooks": [answer_on_request]}, ask_after_answer),
}
"""Texts from outside, which every kind of input hook decides about: options of the agent, and how it is asked."""
OWN_ORIGINS = {
    "tool result": (
        {"tools": [look]},
        lambda agent: ask_once(agent, '!call look {"name": "Ann"}\n!then\n!say ok'),
    ),
    "instructions": ({"instructions": f"Write to {MAIL}."}, ask_once),
    "instructions by a function": ({"instructions": lambda run: f"Write to {MAIL}."}, ask_once),
    "description": ({"tools": [described]}, ask_once),
    "schema": ({"tools": [with_schema]}, ask_once),
    "notes": ({"memory": Memory()}, lambda agent: ask_with_note(agent)),
    "reason of a validator": ({"validate": object_to}, ask_once),
    "retrieved": ({"retrieve": lambda query: [Chunk(text=f"Ann is {MAIL}", id="a")]}, ask_once),
}
"""Texts of the agent and of its tools, which `RedactPii` decides about and a guard of prompts does not."""
CASES = [
    *((origin, kind) for origin in ORIGINS for kind in HOOKS),
    *((origin, kind) for origin in OWN_ORIGINS for kind in ("redact", "refuse")),
]


@models
@pytest.mark.parametrize(("origin", "kind"), CASES)
def test_no_origin_passes_by_the_input_hooks(model, origin, kind):
    tap = Tap(model)
    options, ask = {**ORIGINS, **OWN_ORIGINS}[origin]
    hooks = [*options.get("hooks", ()), HOOKS[kind]()]  # type: ignore[attr-defined]
    result = ask(Agent(tap.connection, **{**options, "hooks": hooks}))  # type: ignore[arg-type]
    assert not tap.leaks()
    assert result.stop == ("done" if kind == "redact" else "refused")
    if kind == "redact":
        assert tap.bodies, "nothing was sent, so nothing was tested"


@models
@pytest.mark.parametrize("origin", [*ORIGINS, *OWN_ORIGINS])
def test_every_origin_reaches_the_provider_without_hooks(model, origin):
    """Else the test above proves nothing."""
    tap = Tap(model)
    options, ask = {**ORIGINS, **OWN_ORIGINS}[origin]
    ask(Agent(tap.connection, **options))  # type: ignore[arg-type]
    assert tap.leaks() or (origin == "prompt in parts" and "ann@" in tap.bodies[0])


@models
@pytest.mark.parametrize("kind", HOOKS)
def test_a_hand_over_shows_the_conversation_to_the_hooks_of_the_next_agent(model, kind):
    first, second = Tap(model), Tap("sim:")
    desk = Agent(second.connection, name="desk", hooks=[HOOKS[kind]()])
    same_name = (
        guard_input(name="no_mail")(lambda run, text: None) if kind == "guard" else RedactPii(["IBAN"])
    )
    agent = Agent(first.connection, tools=[look], handover=[desk], hooks=[same_name])
    prompt = f'for {MAIL}\n!call look {{"name": "Ann"}}\n!then\n!call transfer_to_desk\n!then\n!say it is ann'
    result = agent.run_sync(prompt, session="s")
    assert first.leaks()
    assert not second.leaks()
    assert result.stop == ("done" if kind == "redact" else "refused")


def test_a_summary_is_asked_for_after_the_hooks_have_decided():
    tap = Tap("sim:")
    agent = Agent(tap.connection, hooks=[RedactPii()], context_tokens=8_000)
    turns = [
        message
        for number in range(40)
        for message in (
            user(f"turn {number} of {MAIL} " + "words " * 30),
            Message(role="assistant", parts=(Text(text=f"noted {MAIL} " + "more " * 300),)),
        )
    ]
    agent.run_sync("!say hi", session="s", history=make_history(*turns))
    assert any("Pause the work here" in body for body in tap.bodies), "no summary was asked for"
    assert not tap.leaks()


@models
def test_a_message_to_a_running_run_is_judged(model):
    tap, runs = Tap(model), []

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        await runs[0].steer(f"tell {MAIL}")
        return "ok"

    async def go():
        agent = Agent(tap.connection, hooks=[RedactPii()], tools=[wait])
        runs.append(agent.stream("!call wait\n!then\n!say done", session="s").start())
        return await runs[0].result()

    asyncio.run(go())
    assert any("tell [email]" in body for body in tap.bodies)
    assert not tap.leaks()


def test_a_hook_sees_each_message_once_and_not_what_later_hooks_add():
    seen = {"first": [], "second": []}

    def make(name, add=None):
        @before_model(name=name)
        def hook(run, request):
            seen[name] += [message.id for message in request.new_messages]
            return Change(text=add) if add and run.step == 1 else None

        return hook

    agent = Agent("sim:", hooks=[make("first"), make("second", "a notice")], tools=[look])
    agent.run_sync('!call look {"name": "x"}\n!then\n!say ok', session="s")
    result = agent.run_sync("!say more", session="s")
    for ids in seen.values():
        assert len(ids) == len(set(ids))
    notices = {message.id for message in result.messages if message.text == "a notice"}
    assert len(notices) == 2
    assert not notices & {*seen["first"], *seen["second"]}


def test_a_later_hook_edits_what_an_earlier_one_left():
    """The second hook would put the original text back if it saw it."""

    @before_model(name="shout")
    def shout(run, request):
        return Change(edits=edit_texts(request.new_messages, str.upper))

    tap = Tap("sim:")
    Agent(tap.connection, hooks=[RedactPii(), shout]).run_sync(f"hello {MAIL}", session="s")
    assert MAIL.upper() not in tap.bodies[0]
    assert "HELLO [EMAIL]" in tap.bodies[0]


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ([HeadText(place="tool none description", text="x")], "no text to edit"),
        ([HeadText(place="tool look parameters", text="{")], "must be JSON"),
        (["x"], "takes a list of HeadText"),
    ],
)
def test_wrong_edits_of_the_head_fail_the_run(head, words):
    @before_model(name="wrong")
    def wrong(run, request):
        return Change(head=head)

    result = Agent("sim:", hooks=[wrong], tools=[look]).run_sync("!say hi")
    assert result.stop == "failed"
    assert words in result.reason


def test_the_head_is_shown_again_only_after_it_changed():
    shown = []

    @before_model(name="spy")
    def spy(run, request):
        shown.append([each.place for each in request.new_texts])

    agent = Agent("sim:", hooks=[spy], tools=[look], instructions="Be brief.")
    agent.run_sync('!call look {"name": "x"}\n!then\n!say ok', session="s")
    agent.run_sync("!say ok", session="s")
    agent.run_sync("!say ok", session="s", instructions="Be long.")
    places = ["system 0", "tool look description", "tool look parameters"]
    assert shown == [places, [], [], places]


PARTS = [
    Text(text="x", native=json.dumps({"cited": MAIL})),
    ToolCall(id="c", name="look", arguments='{"a": {"b": ["ann\\u0040example.org"]}}'),
    ToolCall(id="c", name="look", arguments='{"card": 4111111111111111}'),
    ToolCall(id="c", name="look", arguments=f"broken {MAIL}"),
    ToolCall(id="c", name="look", arguments="{}", native=json.dumps({"thought": MAIL})),
    Reasoning(text=f"so {MAIL}"),
    Opaque(kind="item", native=json.dumps({"q": MAIL})),
    Opaque(kind="item", native="{}", text=MAIL),
    document(),
    Media.from_bytes(MAIL.encode("utf-16"), media_type="text/csv"),
    Media.from_bytes(json.dumps({"to": MAIL}).encode(), media_type="application/json"),
    Media.from_url(f"https://example.com/a.pdf?to={MAIL}", kind="document"),
    Media.from_bytes(b"%PDF-1.4 x", media_type="application/pdf", name=f"{MAIL}.pdf"),
    ToolResult(call_id="c", parts=(Text(text=MAIL),)),
    ToolResult(call_id="c", parts=(document(),)),
    ToolResult(call_id="c", parts=(Opaque(kind="item", native=json.dumps({"q": MAIL})),)),
    ToolResult(call_id="c", parts=(Text(text="x"),), native=json.dumps({"q": MAIL})),
    ToolCall(id="c", name="look", arguments='{"a":1}', wire_id=MAIL),
    ToolCall(id="c", name="look", arguments="{}", wire_id="call_4111111111111111"),
    Reasoning(text="so", signature=MAIL),
    Reasoning(text="so", native=json.dumps({"summary": [{"text": MAIL}]})),
    Opaque(kind=MAIL, native="{}"),
    Media.from_wire(kind="document", media_type="application/pdf", file_id=MAIL),
    Media.from_wire(kind="document", media_type=MAIL, data=base64.b64encode(b"%PDF-1.4 x").decode()),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_every_kind_of_part_is_edited(part):
    message = Message(role="assistant", parts=(part, Text(text="rest")), id="m1", provenance="import")
    edit = make_joined_edit(lambda: PatternFilter(tuple(PII.values())))
    changes = tuple(edit_message(message, edit, reads_ids=True))
    event = ViewChanged(changes=changes, why="hook")
    [sent], _, _ = view_for_model([message], [event], find_model_by_name("sim:"))
    text = str(sent).replace("\\u0040", "@").replace("u0040", "@")
    contents = [read_text_document(each) for each in sent.parts if isinstance(each, Media)]
    assert MAIL not in text
    assert ENCODED not in text
    assert "4111111111111111" not in text
    assert not any(MAIL in content for content in contents)
    kinds = [type(each) for each in sent.parts if isinstance(each, ToolCall | ToolResult)]
    assert kinds == [type(part)] * isinstance(part, ToolCall | ToolResult)
    assert all(isinstance(json.loads(call.arguments), dict) for call in sent.calls)


def test_text_types_are_read():
    for kind in (*TEXT_TYPES, "text/plain; charset=utf-8", "image/svg+xml", "application/ld+json"):
        assert read_text_document(Media.from_wire(kind="document", media_type=kind, data=ENCODED)) == MAIL
    assert not read_text_document(Media.from_wire(kind="document", media_type="image/png", data=ENCODED))


def test_an_edit_of_texts_leaves_ids_and_types_alone():
    picture = Media.from_bytes(b"\x89PNG\r\n\x1a\nx", media_type="image/png")
    call = ToolCall(id="c", name="look", arguments='{"a": "b"}', wire_id="call_a")
    message = Message(role="assistant", parts=(picture, call, Reasoning(text="A", signature="sig")), id="m1")
    [change] = edit_texts([message], str.upper)
    assert change.arguments == '{"A":"B"}'


ENCODINGS = {
    "url": lambda data: base64.urlsafe_b64encode(data).decode(),
    "lines": lambda data: base64.encodebytes(data).decode(),
    "unpadded": lambda data: base64.b64encode(data).decode().rstrip("="),
    "pieces": lambda data: base64.b64encode(data[:4]).decode() + base64.b64encode(data[4:]).decode(),
}


@pytest.mark.parametrize("way", ENCODINGS)
def test_documents_are_read_in_every_form_of_base64(way):
    """Clients of some wires write the alphabet for URLs."""
    text = f"ÿÿ?>~ {MAIL}ûûû"
    data = ENCODINGS[way](text.encode())
    assert read_text_document(Media.from_wire(kind="document", media_type="text/plain", data=data)) == text


@pytest.mark.parametrize(
    ("media_type", "encoding"),
    [
        *(
            (each, "utf-8")
            for each in ("", "application/octet-stream", "application/sql", "message/rfc822", "x")
        ),
        *(("text/plain", each) for each in ("utf-16", "utf-16-le", "utf-16-be", "latin-1")),
        ("text/plain; charset=cp500", "cp500"),
    ],
)
def test_documents_of_every_type_that_holds_text_are_read(media_type, encoding):
    data = base64.b64encode(f"to {MAIL}".encode(encoding)).decode()
    assert MAIL in read_text_document(Media.from_wire(kind="document", media_type=media_type, data=data))


@pytest.mark.parametrize(
    "content", [b"%PDF-1.4 ann@example.org", b"PK\x03\x04 ann@example.org", b"\xff\xfe\x00"]
)
def test_documents_that_hold_no_text_are_left_alone(content):
    data = base64.b64encode(content).decode()
    assert not read_text_document(Media.from_wire(kind="document", media_type="application/x", data=data))


@models
def test_a_compaction_does_not_bring_back_what_a_hook_redacted(model):
    """Earlier prompts, and results that a hook edited, are shortened as the hook left them."""
    tap = Tap(model)

    @tool(effect="read")
    def read_mail() -> str:
        """Read the mail."""
        return f"from {MAIL} " + "words " * 1_000 + MAIL

    agent = Agent(
        tap.connection,
        hooks=[RedactPii()],
        tools=[read_mail],
        context_tokens=10_000,
        compaction=Compaction(shorten_prompts=True),
    )
    prompt = f"from {MAIL} " + "words " * 1_000 + f"yours {MAIL}\n!call read_mail\n!then\n!say ok"
    for _ in range(6):
        assert agent.run_sync(prompt, session="s").stop == "done"
    shortened = [body for body in tap.bodies if "left out here later on" in body or "[…]" in body]
    assert shortened, "nothing was shortened, so nothing was tested"
    assert not tap.leaks()


def test_a_file_that_the_model_does_not_take_is_left_out_also_if_a_hook_edits_its_name():
    tap = Tap("sim:anthropic/claude-sonnet-5-5")
    data = base64.b64encode(b"PK\x03\x04").decode()
    sheet = Media.from_wire(kind="document", media_type="application/zip", data=data, name=f"{MAIL}.zip")
    agent = Agent(tap.connection, hooks=[RedactPii()])
    for _ in range(2):
        assert agent.run_sync(["!say hi", sheet], session="s").stop == "done"
    assert not tap.leaks()
    assert all(data not in body and "left out" in body for body in tap.bodies)


STOPPING = [model for model in MODELS if "sim:openai/" not in model and "openai-chat" not in model]


@pytest.mark.parametrize("kind", HOOKS)
@pytest.mark.parametrize("model", STOPPING)
def test_stop_sequences_are_judged(model, kind):
    tap = Tap(model)
    result = ask_once(Agent(tap.connection, hooks=[HOOKS[kind]()]), sampling=Sampling(stop_sequences=(MAIL,)))
    assert not tap.leaks()
    assert result.stop == ("done" if kind == "redact" else "refused")
    plain = Tap(model)
    ask_once(Agent(plain.connection), sampling=Sampling(stop_sequences=(MAIL,)))
    assert plain.leaks(), "they do not reach the provider, so nothing was tested"


@pytest.mark.parametrize("model", ["sim:openai/gpt-6.1-sol", "sim:openai/gpt-5.5-pro"])
def test_a_guard_sees_the_schema_of_an_answer_in_both_forms(model):
    """Some models get the schema as a tool."""
    tap = Tap(model)
    schema = {
        "type": "object",
        "title": "answer",
        "properties": {"a": {"type": "string", "description": MAIL}},
    }
    assert ask_once(Agent(tap.connection, hooks=[make_guard()]), output=schema).stop == "refused"
    assert not tap.bodies


REFUSING = {"guard": make_guard, "refuse": lambda: RedactPii(input="refuse")}


@models
@pytest.mark.parametrize("kind", REFUSING)
def test_prompts_after_a_refused_one_are_answered(model, kind):
    tap, store = Tap(model), MemoryStore()
    agent = Agent(tap.connection, hooks=[REFUSING[kind]()], store=store)
    for number in range(4):
        assert agent.run_sync(f"!say {number} to {MAIL}", session="s").stop == "refused"
        answered = agent.run_sync(f"!say {number}", session="s")
        assert (answered.stop, answered.output) == ("done", f"{number}")
    assert not tap.leaks()
    events = [record.event for record in asyncio.run(store.read("s"))]
    refusals = [each for each in events if isinstance(each, HookDecided) and each.action == "refuse"]
    assert [len(each.withheld) for each in refusals] == [1, 1, 1, 1]


@pytest.mark.parametrize("kind", REFUSING)
def test_a_fork_and_another_process_go_on_after_a_refusal(kind, tmp_path):
    tap, path = Tap("sim:"), str(tmp_path / "log.db")
    options: Any = {"hooks": [REFUSING[kind]()], "store": path}
    assert Agent(tap.connection, **options).run_sync(f"!say {MAIL}", session="s").stop == "refused"
    agent = Agent(tap.connection, **options)
    fork = asyncio.run(agent.fork("s"))
    assert agent.run_sync("!say one", session="s").output == "one"
    assert agent.run_sync("!say two", session=fork.session).output == "two"
    assert not tap.leaks()


def test_a_refused_run_stays_refused_when_it_is_resumed():
    tap = Tap("sim:")
    agent = Agent(tap.connection, hooks=[make_guard()])
    for _ in range(2):
        assert agent.run_sync(f"!say {MAIL}", session="s").stop == "refused"
        assert agent.resume_sync("s").stop == "refused"
        assert agent.run_sync("!say hi", session="s").output == "hi"
    assert not tap.leaks()


@models
def test_a_refused_result_is_withheld_and_its_call_stays(model):
    tap = Tap(model)
    agent = Agent(tap.connection, hooks=[RedactPii(input="refuse")], tools=[look])
    assert agent.run_sync('!call look {"name": "Ann"}\n!then\n!say ok', session="s").stop == "refused"
    assert agent.run_sync("!say next", session="s").output == "next"
    assert not tap.leaks()
    assert "was refused" in tap.bodies[-1]


@models
def test_a_refused_history_loses_only_the_refused_messages(model):
    tap = Tap(model)
    agent = Agent(tap.connection, hooks=[RedactPii(input="refuse")], tools=[look])
    history = make_history(user("first words"), *CALLED[1:], user(MAIL), CALLED[3])
    assert agent.run_sync("!say one", session="s", history=history).stop == "refused"
    assert "two" in agent.run_sync("!say two", session="s").output
    assert not tap.leaks()
    assert "first words" in tap.bodies[-1]


def make_breaking(is_down):
    @before_model(name="breaks")
    def hook(run, request):
        texts = [message.text for message in request.new_messages]
        if is_down() or any("break" in text for text in texts):
            raise ValueError("no")

    return hook


@pytest.mark.parametrize("store", [None, "log.db"])
def test_a_message_that_a_hook_fails_at_does_not_end_the_session(store, tmp_path):
    where = str(tmp_path / store) if store else MemoryStore()
    tap = Tap("sim:")

    def ask(prompt):
        return Agent(tap.connection, hooks=[make_breaking(lambda: False)], store=where).run_sync(
            prompt, session="s"
        )

    assert [ask(prompt).stop for prompt in ("break", "the first")] == ["failed", "failed"]
    assert [ask(f"!say {word}").output for word in ("two", "three")] == ["two", "three"]
    assert len(tap.bodies) == 2 and not any("break" in body for body in tap.bodies)
    assert "the first" in tap.bodies[0], "it failed once only"


def test_a_hook_that_fails_for_a_while_loses_no_message_of_one_prompt():
    tap, down = Tap("sim:"), [True]
    agent = Agent(tap.connection, hooks=[make_breaking(lambda: down[0])])
    history = make_history(user("first words"), SAID)
    assert agent.run_sync("the first", session="s", history=history).stop == "failed"
    assert [agent.resume_sync("s").stop for _ in range(2)] == ["failed", "failed"]
    down[0] = False
    assert agent.run_sync("!say two", session="s").output == "two"
    assert "the first" in tap.bodies[-1] and "first words" in tap.bodies[-1]


def test_only_new_messages_can_be_refused():
    @before_model(name="wrong")
    def wrong(run, request):
        return Refuse(reason="x", messages=["m99"])

    result = Agent("sim:", hooks=[wrong]).run_sync("!say hi")
    assert result.stop == "failed"
    assert "m99" in result.reason


@pytest.mark.parametrize("kind", ["redact", "guard"])
def test_a_fallback_model_gets_what_the_hooks_let_pass_and_the_replies_so_far(kind):
    """Decided in docs/hooks.md: a reply is judged by output hooks; input hooks do not hold back a fallback for it."""
    first, second = Tap("sim:anthropic/claude-sonnet-5-5"), Tap("sim:openai/gpt-6.1-sol")
    agent = Agent([first.connection, second.connection], hooks=[HOOKS[kind]()], store=MemoryStore())
    agent.run_sync("!say the reply so far", session="s")
    assert not second.bodies
    first.is_down = True
    prompt = f"!say to {MAIL}" if kind == "redact" else "!say more"
    result = agent.run_sync(prompt, session="s")
    assert result.stop == "done"
    assert second.bodies and "the reply so far" in second.bodies[-1]
    assert not first.leaks() and not second.leaks()

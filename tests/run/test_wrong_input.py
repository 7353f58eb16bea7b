"""Wrong arguments are refused in one line, where the agent is made or the run is started."""

from dataclasses import dataclass

import pytest

from bridle import Agent, Media, MisuseError, RunContext, tool
from bridle.errors import BadTool
from bridle.sessions import ApprovalVerdict
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.model import Endpoint, Model


@dataclass
class Clinic:
    name: str


@dataclass
class Other:
    size: int


@tool
def look(ctx: RunContext[Clinic], at: str) -> str:
    """Look."""
    return at


def plain(at: str) -> str:
    """Look."""
    return at


@tool(approve=True)
def pay() -> str:
    """Pay."""
    return "paid"


async def answer_yes(question):
    return True


def ask(approver):
    return Agent(scripted(call_reply(("pay", {})), "ok"), tools=[pay], approver=approver).run_sync("x")


def at_endpoint(**given):
    return Model(id="m", endpoint=Endpoint(name="my", family="openai_chat", **given))


def agent(**options):
    return Agent("sim:", **options)


REFUSED = {
    "another context": (
        lambda: agent(tools=[look]).run_sync("x", context=Other(1)),
        "type Clinic, not Other",
    ),
    "no context": (lambda: agent(tools=[look]).run_sync("x"), r"pass it: agent\.run\(…, context=…\)"),
    "two contexts": (lambda: agent(tools=[look], context_type=Other), "but context_type is Other"),
    "validator without an answer": (lambda: agent(validate=lambda: None), "takes the answer"),
    "validator that is a text": (lambda: agent(validate="check"), "list of functions, not 'check'"),
    "unknown tool": (lambda: agent(tools=[plain], tool_choice="plane"), "names 'plane', which is not a tool"),
    "unknown tool of a run": (lambda: agent().run_sync("x", tool_choice="plain"), "names 'plain'"),
    "tool choice of another type": (lambda: agent(tool_choice=5), "`tool_choice` must be 'auto', .* not 5"),
    "a forced call without tools": (
        lambda: agent(tool_choice="any"),
        "forces a call, but there are no tools",
    ),
    "a forced call in a run without tools": (
        lambda: agent(tools=[plain], tool_choice="any").run_sync("x", tools=[]),
        "forces a call, but there are no tools",
    ),
    "a function forcing a call without tools": (
        lambda: agent(tool_choice=lambda step: "any").run_sync("x"),
        "forces a call, but there are no tools",
    ),
    "a tool choice without the step": (
        lambda: agent(tool_choice=lambda: "auto"),
        "`tool_choice` must be .* not <function",
    ),
    "a sampling without the step": (lambda: agent(sampling=lambda: None), r"Sampling\(temperature=0.5\)"),
    "approver that is a text": (lambda: agent(approver="me"), "an async function .* not 'me'"),
    "approver without the question": (lambda: agent(approver=lambda: None), "an async function"),
    "approver that is not async": (
        lambda: ask(lambda question: ApprovalVerdict(answer="approve")),
        "must be async; it returned ApprovalVerdict",
    ),
    "approver answering yes": (lambda: ask(answer_yes), "must return a ApprovalVerdict or None, not True"),
    "tool index that is a list": (lambda: agent(tool_index=["look"]), "the method `find`, not"),
    "deadlines as a number": (lambda: agent(deadlines=30), r"a Deadlines\(…\), not 30"),
    "context type as a text": (lambda: agent(context_type="Clinic"), "a type, not 'Clinic'"),
    "context in place of its type": (lambda: agent(context_type=Other(1)), "a type, not Other"),
    "one watcher": (lambda: agent(watchers=print), "a list of objects with the method `on_event`"),
    "watcher without its method": (lambda: agent(watchers=[print]), "a list of objects .* not"),
    "policy as a dict": (
        lambda: agent(policy={"deny": ["pay"]}),
        r"a Policy\(…\) or the path of a TOML file",
    ),
    "policy of an empty path": (lambda: agent(policy=""), "the path of a TOML file, not ''"),
    "store as a number": (lambda: agent(store=5), "a store, a path or a URL .* not 5"),
    "store that is a class": (lambda: agent(store=MemoryStore), "a store, a path or a URL .* not <class"),
    "clock as a number": (lambda: agent(clock=5), "`now`, `monotonic` and `sleep`, not 5"),
    "random source as a number": (lambda: agent(random_source=0.5), "without arguments .* not 0.5"),
    "extras as a dict": (lambda: agent(extras={"top_k": 5}), r"a list of Extra\(…\), not"),
    "extras as texts": (lambda: agent(extras=["top_k"]), r"a list of Extra\(…\), not"),
    "thinking as a text": (lambda: agent(thinking="low"), r"Thinking\(effort='low'\), .* not 'low'"),
    "sampling as a number": (lambda: agent().run_sync("x", sampling=0.5), r"Sampling\(temperature=0.5\)"),
    "no model": (lambda: Agent(None), "no model was given"),  # type: ignore[arg-type]
    "no model of a run": (lambda: agent().run_sync("x", model=None), "no model was given"),
    "model of another type": (lambda: Agent(5), "a model is a name such as 'sim:', .* not 5"),  # type: ignore[arg-type]
    "credential in a header of an endpoint": (
        lambda: Agent(at_endpoint(headers=(("x-api-key", "secret"),))),
        r"'x-api-key' .* would be written to the log; .*ModelConnection\(headers=…\)$",
    ),
    "password in an address": (
        lambda: Agent(at_endpoint(base_url="http://ann:secret@127.0.0.1/v1")),
        r"'my' holds a user or password, .* Endpoint\(key_env=…, auth=…\)$",
    ),
    "hand-over without a list": (lambda: agent(handover="desk"), "`handover` must be a list .* not 'desk'"),
    "media of nothing": (lambda: Media.from_bytes(b""), "the data is empty"),
    "media of a text": (lambda: Media.from_bytes("hello"), "takes bytes, not str"),  # type: ignore[arg-type]
    "media of another type": (
        lambda: Media.from_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 20, media_type="application/pdf"),
        "its data is image/png, not application/pdf",
    ),
    "unknown period": (lambda: tool(rate="10/fortnight")(plain), 'use "10/minute"'),
    "misspelled option of a run": (lambda: agent().stream("x", modle="sim:"), "did you mean 'model'"),
    "misspelled option of a resume": (lambda: agent().resume_sync("x", modle="sim:"), "did you mean 'model'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_is_refused_in_one_line(case):
    act, why = REFUSED[case]
    with pytest.raises((MisuseError, BadTool, TypeError), match=why) as refused:
        act()
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


class Server:
    """A server of tools that is not connected."""

    name, prefix, is_required = "desk", "desk__", False

    async def list_tools(self): ...

    async def refresh(self): ...

    def restore_tool(self, spec): ...


def test_a_server_of_tools_can_answer_a_forced_call():
    assert agent(tools=[Server()], tool_choice="any").settings.tool_choice.mode == "any"

"""Hooks are checked when the agent is built, and their decisions before they are recorded."""

import asyncio
import functools
import math
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from bridle import Agent, MisuseError, RunContext, tool
from bridle.hooks import (
    Answer,
    Change,
    RedactPii,
    Refuse,
    TextPattern,
    after_model,
    after_tool,
    before_model,
    before_tool,
    guard_input,
    guard_output,
    on_end,
)
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply

PAY = call_reply(("pay", {"amount": 500}))


@dataclass
class Shop:
    name: str


@dataclass
class City:
    name: str
    size: int


class TooFew:
    def before_tool(self, call):
        return None


class TextOfTools:
    tools = "pay_all"

    def before_tool(self, run, call):
        return Refuse(reason="no")


def take_two(run, subject):
    return None


def make_pay():
    paid = []

    @tool(effect="write")
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    return pay, paid


def run(*hooks, script=(PAY, "done"), **options):
    pay, paid = make_pay()
    agent = Agent(scripted(*script), hooks=hooks, tools=[pay], **options)
    return agent.run_sync("go"), paid


@pytest.mark.parametrize(
    "decorator", [before_model, after_model, before_tool, after_tool, on_end, guard_input, guard_output]
)
def test_a_decorator_without_parentheses_is_refused(decorator):
    with pytest.raises(MisuseError, match=rf"write @{decorator.__name__}\(\) with parentheses"):
        decorator(take_two)


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (before_tool()(lambda call: None), r"called with \(run, call\), and takes \(call\)"),  # type: ignore[arg-type, misc]
        (after_tool()(take_two), r"called with \(run, call, result\)"),  # type: ignore[arg-type]
        (guard_input()(lambda text: None), r"called with \(run, text\)"),  # type: ignore[arg-type, misc]
        (TooFew(), r"hook `TooFew`: before_tool is called with \(run, call\), and takes \(call\)"),
        (TextOfTools(), r"tools is a list of names; write \['pay_all'\]"),
        (before_tool(tools="pay")(take_two), "tools is a list of names"),
        (before_tool(tools=[3])(take_two), "tools is a list of names"),  # type: ignore[list-item]
        (before_tool(tools=["pay", "refnud"])(take_two), "no tool named `refnud`; its tools: pay"),
        (take_two, r"two is a function; decorate it with one of bridle.hooks: @before_model\(\)"),
        (before_tool(timeout=True)(take_two), "above 0"),
        (before_tool(timeout=math.inf)(take_two), "above 0"),
        (before_tool(timeout=math.nan)(take_two), "above 0"),
        (before_tool(timeout="5")(take_two), "above 0"),  # type: ignore[arg-type]
    ],
)
def test_a_hook_that_could_not_work_is_refused_when_the_agent_is_built(hook, words):
    with pytest.raises(MisuseError, match=words):
        run(hook)


@pytest.mark.parametrize("hooks", [before_tool()(take_two), "RedactPii", 3])
def test_hooks_is_a_list(hooks):
    with pytest.raises(MisuseError, match="hooks is a list"):
        Agent(scripted("x"), hooks=hooks)


def test_wrong_options_of_redact_pii_are_refused():
    with pytest.raises(MisuseError, match=r"write kinds=\['email'\]"):
        RedactPii("email")
    with pytest.raises(MisuseError, match="input='block' is unknown"):
        RedactPii(input="block")  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="output='deny' is unknown"):
        RedactPii(output="deny")  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="open_end of 'x' is no regular expression"):
        TextPattern(name="x", pattern="x", open_end="(")


def test_any_callable_can_be_decorated():
    class Callable:
        async def __call__(self, run, call):
            return Refuse(reason="by an object")

    by_part = functools.partial(lambda reason, run, call: Refuse(reason=reason), "by a part")
    assert run(before_tool()(Callable()))[1] == []
    assert run(before_tool(name="part")(by_part))[1] == []


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Refuse, "not the class Refuse"),
        (Refuse(reason=""), "Refuse needs a reason"),
        (Refuse(reason=5), r"Refuse\(reason=…\) takes text, not int"),  # type: ignore[arg-type]
        (Answer(text=None), r"Answer\(text=…\) takes text, not NoneType"),  # type: ignore[arg-type]
        (Change(arguments="x"), r"Change\(arguments=…\) takes a dict, not str"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_decision_fails_and_the_tool_does_not_run(decision, words):
    result, paid = run(before_tool(name="guard")(lambda run, call: decision))
    assert (result.stop, paid) == ("failed", [])
    assert re.search(words, result.reason), result.reason


@pytest.mark.parametrize("parts", ["abc", ["abc"], 3])
def test_wrong_parts_fail_and_the_log_can_be_read(parts):
    pay, _ = make_pay()
    store = MemoryStore()
    agent = Agent(
        scripted(PAY, "done"),
        hooks=[after_tool(name="h")(lambda run, call, result: Change(parts=parts))],
        tools=[pay],
        store=store,
    )
    result = agent.run_sync("go", session="s")
    assert (result.stop, "takes a list of Text and Media" in result.reason) == ("failed", True)
    assert asyncio.run(store.read("s"))


@pytest.mark.parametrize("returned", [True, False, "", 0, Refuse(reason="no")])
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("guard", [guard_input, guard_output])
def test_only_none_lets_a_text_pass_a_guard(guard, is_async, returned):
    async def check_later(run, text):
        return returned

    result, _ = run(guard()(check_later if is_async else lambda run, text: returned), script=("hello",))
    assert result.stop == "failed"
    assert "a guard returns a reason to refuse, or None to continue" in result.reason


def test_a_hook_needs_its_context():
    @before_tool(name="by_name")
    def by_name(run: RunContext[Shop], call):
        return Refuse(reason=run.context.name)

    @guard_input(name="guard")
    async def guard(run: RunContext[Shop], text: str):
        return None

    class Object:
        def on_end(self, run: RunContext[Shop], end):
            return Change(text=run.context.name)

    for hook, name in ((by_name, "by_name"), (guard, "guard"), (Object(), "Object")):
        agent = Agent(scripted("hello"), hooks=[hook])
        with pytest.raises(MisuseError, match=f"hook `{name}` needs a context of type Shop, which is never"):
            agent.run_sync("go")
        with pytest.raises(MisuseError, match=f"hook `{name}` needs a context of type Shop, not int"):
            agent.run_sync("go", context=3)  # type: ignore[call-overload]
        with pytest.raises(MisuseError, match=f"hook `{name}` needs .* but context_type is City"):
            Agent(scripted("hello"), hooks=[hook], context_type=City)  # type: ignore[misc]
    assert agent.run_sync("go", context=Shop("North")).text == "North"


def test_on_end_changes_a_structured_answer_only_to_one_of_its_type():
    def end_with(text):
        hook = on_end(name="h")(lambda run, end: Change(text=text))
        return Agent(scripted('{"name": "A", "size": 3}'), hooks=[hook], output=City).run_sync("go")

    changed = end_with('{"name": "B", "size": 4}')
    assert (changed.output, changed.text) == (City("B", 4), '{"name": "B", "size": 4}')
    for wrong in ("nonsense", '{"name": "B"}'):
        kept = end_with(wrong)
        assert (kept.stop, kept.output) == ("done", City("A", 3))
        assert "hook h failed: TypeError: its text is an answer that the output type rejects" in kept.reason


def test_a_guard_that_never_returns_does_not_keep_the_process_alive(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import threading
from bridle import Agent
from bridle.hooks import guard_input
from bridle.testing import scripted

@guard_input(timeout=0.1)
def stuck(run, text):
    threading.Event().wait()

print(Agent(scripted("x"), hooks=[stuck]).run_sync("go").stop)
""")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("failed\n", 0)


@pytest.mark.parametrize(
    ("misspelled", "meant"),
    [
        ("befor_model", "did you mean before_model?"),
        ("after_tools", "did you mean after_tool?"),
        ("before_request", "a hook has before_model, after_model"),
        ("on_start", "a hook has before_model, after_model"),
    ],
)
@pytest.mark.parametrize("on_instance", [False, True])
def test_a_misspelled_method_beside_a_valid_one_is_refused(misspelled, meant, on_instance):
    def ignore(*given):
        return None

    methods = {"on_end": lambda self, run, end: None}
    made = type("Audit", (), methods if on_instance else {**methods, misspelled: ignore})()
    if on_instance:
        setattr(made, misspelled, ignore)
    with pytest.raises(
        MisuseError, match=re.escape(f"hook `Audit`: {misspelled} is never called; {meant}")
    ) as error:
        Agent("sim:", hooks=[made])
    assert "\n" not in str(error.value)


def test_other_methods_of_a_hook_are_its_own():
    class Audit:
        before_count = 0

        def on_end(self, run, end):
            self._before_write()

        def _before_write(self):
            """Write."""

        def close(self):
            """Close."""

        def on_event(self, session, record):
            """Watch."""

    assert Agent("sim:", hooks=[Audit()]).run_sync("hi").done

"""Code mode: programs of the model call tools as functions, and every call takes the same way as any other."""

import asyncio
import json
import secrets
from pathlib import Path

import pytest

from bridle import (
    Agent,
    Budget,
    CodeMode,
    Limits,
    MisuseError,
    PermissionRule,
    Policy,
    RateLimit,
    RunContext,
    SharedBudget,
    StoreError,
    tool,
)
from bridle.core.budget.ledger import list_entries
from bridle.core.recovery.log_repair import fold_log
from bridle.core.tracing.session_trace import SessionTrace
from bridle.errors import BadTool
from bridle.events import SubrunItem
from bridle.hooks import Change, Refuse
from bridle.sessions import ApprovalVerdict
from bridle.stores.memory import MemoryStore
from bridle.values import events as e
from bridle.values.budget import SubrunCharged, SubrunStarted
from tests.suite.crashes import CrashingStore
from tests.suite.wire_models import MODELS


def call(code, *, name="run_code"):
    return f"!call {name} {json.dumps({'code': code})}\n!then\n!say Done."


class Shop:
    """Tools that note what they did."""

    def __init__(self):
        self.done = []

    def make_tools(self):
        @tool(effect="read")
        def count(item: str, factor: int = 1) -> int:
            """Count the items in stock.

            Args:
                item: Name of the item.
            """
            self.done.append(f"count {item}")
            if item == "nothing":
                raise ValueError("no such item")
            return len(item) * factor

        def unsell(item: str, receipt: str) -> str:
            self.done.append(f"unsell {item} {receipt}")
            return "undone"

        @tool(effect="write", compensate=unsell)
        def sell(item: str, run: RunContext) -> str:
            """Sell an item."""
            assert run.context is None and run.idempotency_key and run.tenant == "acme"
            self.done.append(f"sell {item}")
            return f"sold {item}"

        @tool(effect="exclusive", approve=True)
        def refund(item: str) -> str:
            """Refund an item."""
            self.done.append(f"refund {item}")
            return f"refunded {item}"

        return [count, sell, refund]

    def make_agent(self, mode=None, *, model="sim:", store=None, **options):
        options.setdefault("tools", self.make_tools())
        self.store = MemoryStore() if store is None else store
        return Agent(model, code_mode=mode or CodeMode(sandbox=None), store=self.store, **options)

    def run(self, code, mode=None, *, budget=None, **options):
        return self.make_agent(mode, **options).run_sync(call(code), "s", tenant="acme", budget=budget)

    def read(self, session, kind=object):
        records = asyncio.run(self.store.read(session))
        return [record.event for record in records if isinstance(record.event, kind)]

    @property
    def program(self):
        """Id of the session of the only program."""
        (session,) = (
            each.id for each in asyncio.run(self.store.sessions()) if each.id.startswith("run_code-")
        )
        return session


def read_result(result):
    (found,) = (each for message in result.messages for each in message.results)
    return found


@pytest.mark.parametrize("model", MODELS)
def test_a_program_calls_tools_and_the_model_reads_what_it_prints(model):
    shop = Shop()
    code = "total = sum(count(item=each) for each in ['ab', 'abc'])\nprint(sell('ab'))\n{'total': total}"
    result = shop.run(code, CodeMode(), model=model)
    assert (result.stop, result.text) == ("done", "Done.")
    assert read_result(result).text == "sold ab\n{'total': 5}" and not read_result(result).is_error
    assert shop.done == ["count ab", "count abc", "sell ab"]
    (started,) = shop.read("s", SubrunStarted)
    assert (started.name, started.session) == ("run_code", shop.program)
    finished = shop.read(shop.program, e.ToolFinished)
    assert [each.name for each in finished] == ["count", "count", "sell"]
    (prompted,) = shop.read(shop.program, e.Prompted)
    assert (prompted.tenant, prompted.parent_session, prompted.parent_call_id) == ("acme", "s", "c1_0")


def test_replies_of_a_program_are_no_model_calls():
    shop, pool = Shop(), SharedBudget(steps=2, tool_calls=10)
    limits = (RateLimit(per="endpoint", requests=2, seconds=3600),)
    plain = Agent("sim:").run_sync("hi", budget=Budget(steps=1))
    result = shop.run(
        "for n in range(4): count('a')", budget=Budget(steps=2, usd=1), pool=pool, rate_limits=limits
    )
    assert (result.stop, result.steps, pool.spent.steps) == ("done", 2, 2)
    assert pool.spent.tool_calls == 5, "the program and its four calls"
    assert result.cost == result.own_cost > 0 and plain.stop == "done"
    assert not shop.read("s", SubrunCharged)
    spans = []
    records = asyncio.run(shop.store.read(shop.program))
    trace = SessionTrace(shop.program)
    fold_log(records, lambda record, before, after: spans.extend(trace.apply(record, before, after)))
    assert [span.name for span in spans] == ["execute_tool count"] * 4 + ["invoke_agent run_code"]
    assert "gen_ai.request.model" not in spans[-1].attributes
    entries = list_entries(shop.program, records)
    assert {entry.outcome for entry in entries} == {"program"} and sum(
        entry.tool_calls for entry in entries
    ) == 4


def test_calls_at_the_same_time_run_at_the_same_time_in_a_fixed_order():
    running, most, order = set(), [], []

    @tool(effect="read")
    async def look(at: int) -> int:
        """Look."""
        order.append(at)
        running.add(at)
        most.append(len(running))
        await asyncio.sleep(0)
        running.discard(at)
        return at * 10

    code = """
def twice(at):
    return look(at) + look(at + 1)
print(parallel(lambda: twice(1), lambda: look(5), lambda: parallel(lambda: look(7), lambda: look(8)), lambda: "x"))
print(parallel(*[lambda at=at: look(at) for at in range(40)])[-1])
"""
    result = Shop().run(code, tools=[look])
    assert read_result(result).text == "[30, 50, [70, 80], 'x']\n390"
    assert order[:5] == [1, 5, 7, 8, 2] and max(most) > 2


def test_an_error_of_a_tool_is_an_exception_of_the_program():
    shop = Shop()
    code = """
for item in ("nothing", 7):
    try:
        count(item)
    except ToolError as error:
        print(error.outcome, str(error).splitlines()[0])
"""
    text = read_result(shop.run(code)).text
    assert (
        text
        == "error ValueError: no such item\ninvalid The arguments of `count` are wrong, so nothing was run:"
    )
    assert shop.done == ["count nothing"]


def test_a_program_that_fails_is_an_error_with_its_traceback_and_output():
    result = read_result(Shop().run("print('before')\ncount('ab')\nitems = [1, 2]\nprint(items[5])"))
    assert result.is_error and "IndexError: list index out of range" in result.text
    assert 'File "<program>", line 4' in result.text and "print(items[5])" in result.text
    assert (
        result.text.endswith("before") and "program.py" not in result.text and "<string>" not in result.text
    )
    heading = "[the program failed]"
    result = read_result(Shop().run(f"print('before {heading}')\nraise ValueError('{heading} twice')"))
    assert f"ValueError: {heading} twice" in result.text and 'File "<program>", line 2' in result.text
    assert result.text.endswith(f"[the end of what it printed before]\nbefore {heading}")
    assert "the program is empty" in read_result(Shop().run(" \n")).text
    assert "SyntaxError" in read_result(Shop().run("def")).text
    assert "SystemExit: 3" in read_result(Shop().run("import sys; sys.exit(3)")).text
    assert read_result(Shop().run("import sys; sys.exit(0)")).text == "[the program printed nothing]"


def test_rules_of_the_policy_hold_in_programs():
    shop = Shop()
    deny = Policy(rules=(PermissionRule(decision="deny", tools=("sell",), name="closed"),))
    code = "try:\n    sell('ab')\nexcept ToolError as error:\n    print(error.outcome, error)\ncount('ab')"
    text = read_result(shop.run(code, policy=deny)).text
    assert (
        text.startswith("denied ") and "closed" in text and text.endswith("2") and shop.done == ["count ab"]
    )
    ask = Policy(rules=(PermissionRule(decision="ask", tools=("run_code",)),))
    assert Shop().run(code, policy=ask).stop == "waiting"


def test_a_call_that_needs_approval_ends_the_run_as_waiting_and_is_continued():
    shop = Shop()
    agent = shop.make_agent()
    code = "print(count('ab'))\nprint(refund('ab'))\nprint(sell('ab'))"
    result = agent.run_sync(call(code), "s", tenant="acme")
    assert result.stop == "waiting" and shop.program in result.reason and shop.done == ["count ab"]

    (question,) = asyncio.run(agent.approvals(shop.program))
    assert (question.tool, json.loads(question.arguments)) == ("refund", {"item": "ab"})
    asyncio.run(agent.approve(shop.program, question.call_id, arguments={"item": "abc"}))
    result = agent.resume_sync("s")
    assert result.stop == "done" and shop.done == ["count ab", "refund abc", "sell ab"]
    assert read_result(result).text.splitlines()[0] == "2"
    assert "refunded abc" in read_result(result).text and "sold ab" in read_result(result).text


def test_a_program_that_made_calls_and_is_then_denied_is_in_doubt():
    shop = Shop()
    agent = shop.make_agent()
    assert agent.run_sync(call("sell('ab')\nrefund('ab')"), "s", tenant="acme").stop == "waiting"
    deny = Policy(rules=(PermissionRule(decision="deny", tools=("run_code",), name="closed"),))
    finished = read_result(shop.make_agent(store=shop.store, policy=deny).resume_sync("s"))
    assert finished.outcome == "unknown" and "not allowed here (closed)" in finished.text
    assert "It was not run." not in finished.text and shop.done == ["sell ab"]


def test_the_approver_of_the_agent_is_asked():
    asked = []

    async def reject(question):
        asked.append(question.tool)
        return ApprovalVerdict(answer="reject", reason="not today")

    code = "try:\n    refund('ab')\nexcept ToolError as error:\n    print(error)"
    shop = Shop()
    assert "not today" in read_result(shop.run(code, approver=reject)).text
    assert asked == ["refund"] and shop.done == []


def test_hooks_decide_about_calls_of_programs_and_not_about_its_replies():
    points = []

    class Guard:
        name = "guard"

        def before_model(self, run, request):
            points.append("before_model")

        def after_model(self, run, reply):
            points.append("after_model")

        def before_tool(self, run, call):
            points.append(f"before_tool {call.name}")
            return Refuse(reason="no selling") if call.name == "sell" else None

        def after_tool(self, run, call, result):
            points.append(f"after_tool {call.name}")
            return Change(text="77") if call.name == "count" else None

    code = "print(count('ab'))\ntry:\n    sell('ab')\nexcept ToolError as error:\n    print(error)"
    shop = Shop()
    text = read_result(shop.run(code, hooks=[Guard()])).text
    assert text.startswith("77\n") and "no selling" in text and shop.done == ["count ab"]
    inner = ["before_tool count", "after_tool count", "before_tool sell"]
    model = ["before_model", "after_model"]
    assert points == [*model, "before_tool run_code", *inner, "after_tool run_code", *model]


def test_the_limit_of_tool_calls_counts_those_of_programs():
    shop = Shop()
    code = "for n in range(5):\n    print(n, count('ab'))"
    result = shop.run(code, budget=Budget(tool_calls=4))
    assert len(shop.done) == 3, "one of four is the program itself"
    finished = read_result(result)
    assert finished.is_error and "'budget'" in finished.text and finished.text.endswith("2 2")
    assert sum(event.tool_calls for event in shop.read("s", SubrunCharged)) == 3
    again = Shop()
    assert (
        again.run(code, budget=Budget(session=Limits(tool_calls=6))).stop == "done" and len(again.done) == 5
    )


def test_limits_of_a_program():
    shop = Shop()
    endless = read_result(shop.run("while True: count('ab')", CodeMode(sandbox=None, calls_max=3)))
    assert endless.is_error and "more than 3 tool calls" in endless.text and len(shop.done) == 3
    busy = read_result(
        Shop().run("print('x', flush=True)\nwhile True: pass", CodeMode(sandbox=None, seconds=0.5))
    )
    assert busy.is_error and "it used up its time" in busy.text and busy.text.endswith("x")
    loud = CodeMode(sandbox=None, output_bytes_max=1000)
    text = read_result(Shop().run("print('a' * 5000)\nprint('end')", loud)).text
    assert text.startswith("aaa") and text.endswith("end") and "bytes left out" in text and len(text) < 1100
    memory = CodeMode(memory_bytes=96 * 1024 * 1024)
    big = read_result(
        Shop().run("data = bytearray(300_000_000)\nfor i in range(0, 300_000_000, 4096): data[i] = 1", memory)
    )
    assert big.is_error


def test_a_streamed_run_leaves_the_same_logs_and_shows_the_calls():
    code = "print(count('ab'), sell('ab'))"
    whole, streamed = Shop(), Shop()
    whole.run(code)

    async def stream():
        shown = []
        async for item in streamed.make_agent().stream(call(code), "s", tenant="acme"):
            shown.append(item)
        return shown

    shown = asyncio.run(stream())
    inner = [item.item for item in shown if isinstance(item, SubrunItem)]
    assert [each.name for each in inner if isinstance(each, e.ToolFinished)] == ["count", "sell"]
    for sessions in (("s", "s"), (whole.program, streamed.program)):
        one, other = (
            [type(event) for event in shop.read(id_)]
            for shop, id_ in zip((whole, streamed), sessions, strict=True)
        )
        assert one == other


def count_processes(mark):
    """Number of processes with this word in their command line."""
    return sum(mark in read_bytes(path) for path in Path("/proc").glob("[0-9]*/cmdline"))


def read_bytes(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has ended


@pytest.mark.parametrize("sandbox", [None, "auto"])
def test_cancelling_the_run_ends_the_processes_of_the_program(sandbox, tmp_path):
    shop, mark = Shop(), secrets.token_hex(16)
    code = (
        f"import subprocess\ninner = subprocess.Popen(['sh', '-c', 'echo; sleep 1000; : {mark}'], stdout=-1)\n"
        "inner.stdout.readline()\n"
        "print(count('ab'))\nwhile True: pass"
    )

    async def run():
        agent = shop.make_agent(CodeMode(sandbox=sandbox))
        started = asyncio.Event()

        async def watch():
            async for item in agent.stream(call(code), "s", tenant="acme"):
                if isinstance(item, SubrunItem) and isinstance(item.item, e.ToolFinished):
                    started.set()

        running = asyncio.create_task(watch())
        await started.wait()
        alive = count_processes(mark.encode())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return alive

    alive = asyncio.run(run())
    assert alive == 1 and not count_processes(mark.encode())
    assert shop.read(shop.program, e.RunEnded)[-1].stop == "cancelled"
    assert shop.read("s", e.RunEnded)[-1].stop == "cancelled"


def test_actions_of_programs_are_compensated_in_reverse_order():
    shop = Shop()
    agent = shop.make_agent(CodeMode(sandbox=None, direct=True))
    script = "\n!then\n".join((
        '!call sell {"item": "first"}',
        f"!call run_code {json.dumps({'code': 'sell(chr(97)), sell(chr(98))'})}",
        '!call sell {"item": "last"}',
        "!say Done.",
    ))  # fmt: skip
    assert agent.run_sync(script, "s", tenant="acme").stop == "done"
    shop.done.clear()
    found = asyncio.run(agent.compensate("s"))
    assert shop.done == [
        "unsell last sold last",
        "unsell b sold b",
        "unsell a sold a",
        "unsell first sold first",
    ]
    assert [each.state for each in found] == ["done"] * 4
    assert [each.session for each in found] == ["", shop.program, shop.program, ""]
    assert found[1].reference == f"{shop.program}/{found[1].call_id}"
    assert asyncio.run(agent.compensate("s")) == found and len(shop.done) == 4


def test_a_program_that_calls_otherwise_when_it_runs_again_is_ended_and_nothing_runs_twice(tmp_path):
    shop = Shop()
    marker = tmp_path / "seen"
    code = f"""
import os
first = not os.path.exists({str(marker)!r})
open({str(marker)!r}, "w").close()
print(count("ab" if first else "abc"))
print(refund("ab"))
"""
    agent = shop.make_agent()
    assert agent.run_sync(call(code), "s", tenant="acme").stop == "waiting"

    (question,) = asyncio.run(agent.approvals(shop.program))
    asyncio.run(agent.approve(shop.program, question.call_id))
    finished = read_result(agent.resume_sync("s"))
    assert finished.is_error and 'called count({"item":"abc"}) where it had called count({"item":"ab"})' in (
        finished.text.replace('": "', '":"')
    )
    assert "may have taken effect: 2; the last: refund(" in finished.text
    assert shop.done == ["count ab", "refund ab"], (
        "the approved call ran once, before the program was run again"
    )


@pytest.mark.slow
def test_a_call_of_a_program_that_a_crash_interrupted_follows_its_tool():
    """The store fails with every write in turn; a call in doubt is reported, and no call runs twice."""
    code = "for item in 'ab':\n    try:\n        print(sell(item))\n    except ToolError as error:\n        print(error.outcome)"
    outcomes = set()
    for left in range(2, 40):
        shop = Shop()
        agent = shop.make_agent(store=CrashingStore(left))
        try:
            result = agent.run_sync(call(code), "s", tenant="acme")
        except StoreError:
            shop.store.left = None
            begun = shop.read("s", e.Prompted)
            result = agent.resume_sync("s") if begun else agent.run_sync(call(code), "s", tenant="acme")
        else:
            break
        assert result.stop == "done", left
        lines = read_result(result).text.splitlines()
        outcomes.update(lines)
        assert len(lines) == 2 and all(shop.done.count(each) <= 1 for each in shop.done), left
        sold = [line for line in lines if line.startswith("sold")]
        assert {f"sell {line[-1]}" for line in sold} <= {*shop.done}
    assert left > 20 and outcomes == {"sold a", "sold b", "unknown"}


def test_the_time_of_the_run_ends_a_program():
    shop = Shop()
    result = shop.run("count('ab')\nwhile True: pass", budget=Budget(seconds=1.5))
    assert result.stop == "seconds" and shop.done == ["count ab"]
    assert shop.read(shop.program, e.RunEnded)


def test_programs_are_repeatable():
    code = "import random\nprint(random.random(), hash('a'), {1, 'b', 'c'}, [*set('abcdef')])"
    assert read_result(Shop().run(code)).text == read_result(Shop().run(code)).text


def test_tools_of_programs_are_chosen_by_name():
    shop = Shop()
    agent = shop.make_agent(CodeMode(sandbox=None, tools=["count"]))
    names = [spec.name for spec in agent.settings.tools]
    assert names == ["sell", "refund", "run_code"]
    (spec,) = (spec for spec in agent.settings.tools if spec.name == "run_code")
    assert (
        "def count(item: str, factor: int = ...) -> int:" in spec.description
        and "sell" not in spec.description
    )
    everything = shop.make_agent(CodeMode(sandbox=None, direct=True))
    assert [spec.name for spec in everything.settings.tools] == ["count", "sell", "refund", "run_code"]
    result = agent.run_sync(call("sell('ab')"), "s", tenant="acme")
    assert "NameError" in read_result(result).text
    result = agent.run_sync('!call count {"item": "ab"}', "t", tenant="acme")
    assert shop.done == [], "the model cannot call it without a program"
    again = agent.run_sync(call("count('ab')"), "u", tenant="acme", tools=[*agent.tools.values()])
    assert read_result(again).text == "2"


def test_wrong_options_are_refused():
    for wrong in (
        {"seconds": 0},
        {"seconds": float("inf")},
        {"seconds": float("nan")},
        {"calls_max": -1},
        {"calls_max": 2.5},
        {"output_bytes_max": 1000.5},
        {"tools": "count"},
        {"sandbox": "yes"},
        {"memory_bytes": True},
        {"memory_bytes": 2.0**29},
    ):
        with pytest.raises(MisuseError):
            CodeMode(**wrong)
    with pytest.raises(BadTool, match="programs cannot call `buy`; they can call: count, sell, refund"):
        Shop().make_agent(CodeMode(sandbox=None, tools=["buy"]))
    with pytest.raises(BadTool, match=r"use CodeMode\(name=…\)"):
        Shop().make_agent(CodeMode(sandbox=None, name="sell"))
    with pytest.raises(MisuseError, match=r"must be a CodeMode\(…\)"):
        Shop().make_agent(True)


def test_without_a_sandbox_code_mode_is_refused_unless_that_is_asked_for(monkeypatch):
    monkeypatch.setattr("bridle.sandbox.local._problems", {"bubblewrap": "no", "namespaces": "no"})
    with pytest.raises(MisuseError, match="no sandbox works here"):
        CodeMode()
    assert CodeMode(sandbox=None).sandbox is None


def test_a_large_catalogue_is_searched_by_programs():
    def make(number):
        @tool(name=f"device_{number}", effect="read")
        def device(level: int) -> int:
            """Set the level of a device, which is described here at some length so that the list of all is long."""
            return level + number

        return device

    shop = Shop()
    tools = [make(number) for number in range(120)]
    agent = shop.make_agent(tools=tools)
    (spec,) = agent.settings.tools
    assert len(spec.description) < 6_000 and "There are 120 functions" in spec.description
    code = "print(search_tools('device_77'))\nhelp(device_77)\nprint(device_77(1))"
    text = read_result(agent.run_sync(call(code), "s", tenant="acme")).text
    assert "- device_77 (version" in text and "Set the level" in text and text.endswith("78")

"""A recorded session becomes a task that it passes."""

import asyncio
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle import load_agent
from bridle.cli.main import main
from bridle.evals import RunChoices, load_suite, run_suite
from bridle.evals.growth import add_case, quote_toml
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.values.calls import ApprovalVerdict
from bridle.values.errors import MisuseError
from tests.evals.suites import TOOLS, write_suite

AGENT = 'model = "sim:"\ninstructions = "Be brief."\ntools = ["tools.py"]\n'


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "agent.toml").write_text(AGENT)
    return tmp_path


def record(shop, *prompts, session="Talk 1"):
    async def run():
        store = open_store(str(shop / "log.db"))
        agent = load_agent(shop / "agent.toml", store=store)
        for prompt in prompts:
            await agent.run(prompt, session)
        records = await store.read(session)
        await store.close()
        return records

    return asyncio.run(run())


def evaluate(folder):
    return asyncio.run(run_suite(load_suite(folder), MemoryStore(), RunChoices())).trials


PROMPTS = (
    'Where is "7"?\n!say Let me see.\n!call find_order {"id": 7}\n!then\n!say Order 7 \\ "was" shipped.\n!say Two lines.',
    "!say And that is\tall.",
)


def test_case_runs_offline_and_passes(shop, capsys):
    record(shop, *PROMPTS)
    command = ["eval", "add", "Talk 1", "--suite", str(shop / "evals"), "--agent", str(shop / "agent.toml")]
    assert main([*command, "--offline", "--store", str(shop / "log.db")]) == 0
    path = shop / "evals" / "eval_talk_1.toml"
    assert str(path) in capsys.readouterr().out
    written = tomllib.loads(path.read_text())
    assert written["agent"] == "../agent.toml"
    assert written["expect"]["order"] == ["find_order"]
    assert written["expect"]["calls"] == [{"tool": "find_order", "arguments": {"id": 7}}]
    assert [(each.passed, each.steps) for each in evaluate(shop / "evals")] == [(True, 3)]
    assert main([*command, "--store", str(shop / "log.db")]) == 2, "it exists"


def test_case_without_replies_asks_the_model(shop):
    add_case(shop / "evals", "Talk 1", record(shop, PROMPTS[0]), agent=str(shop / "agent.toml"))
    assert "replies" not in tomllib.loads((shop / "evals" / "eval_talk_1.toml").read_text())
    assert [each.passed for each in evaluate(shop / "evals")] == [True]


def test_case_catches_a_changed_agent(shop):
    add_case(shop / "evals", "Talk 1", record(shop, PROMPTS[0]), agent=str(shop / "agent.toml"))
    (shop / "tools.py").write_text(TOOLS.replace("find_order", "search_order"))
    (scored,) = evaluate(shop / "evals")
    assert {each.name for each in scored.scores if not each.passed} >= {"order", "calls"}


def test_case_without_an_agent_file_names_model_and_instructions(shop):
    path = add_case(shop / "evals", "s", record(shop, "!say Hello."), keeps_replies=True)
    assert tomllib.loads(path.read_text())["agent"] == {"model": "sim:", "instructions": "Be brief."}
    assert [each.passed for each in evaluate(shop / "evals")] == [True]


def test_case_uses_the_agent_of_the_suite(shop):
    write_suite(shop / "evals", suite='[defaults.agent]\nmodel = "sim:"\ntools = ["tools.py"]\n')
    path = add_case(shop / "evals", "s", record(shop, PROMPTS[0]))
    assert "agent" not in tomllib.loads(path.read_text())
    assert [each.passed for each in evaluate(shop / "evals")] == [True]


def test_run_that_waits_is_expected_to_wait(shop):
    records = record(shop, '!call refund {"order": 7}')
    path = add_case(shop / "evals", "s", records, agent=str(shop / "agent.toml"))
    assert tomllib.loads(path.read_text())["expect"]["stop"] == "waiting"
    assert [each.passed for each in evaluate(shop / "evals")] == [True]


def test_answers_of_a_person_and_odd_arguments_are_kept(shop):
    (shop / "tools.py").write_text(
        TOOLS
        + '\n\n@tool(effect="read")\ndef look(at: str, deep: int | None = None) -> str:\n    """Look."""\n    return at\n'
    )

    async def approve(pending):
        return ApprovalVerdict(answer="approve", by="ann")

    async def run():
        store = MemoryStore()
        agent = load_agent(shop / "agent.toml", store=store, approver=approve)
        calls = '!call look {"at": "/*/", "deep": null}\n!then\n!call refund {"order": 7}\n!then\n!say Done.'
        await agent.run(calls, "s")
        return await store.read("s")

    path = add_case(
        shop / "evals", "s", asyncio.run(run()), agent=str(shop / "agent.toml"), keeps_replies=True
    )
    assert tomllib.loads(path.read_text())["approvals"] == {"refund": "approve"}
    (scored,) = evaluate(shop / "evals")
    assert scored.passed, (scored.error, scored.scores)


def test_session_without_a_prompt_is_refused(shop):
    with pytest.raises(MisuseError, match="has no prompt in text"):
        add_case(shop / "evals", "s", [])


VALUES = st.recursive(
    st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**62), 2**62), st.booleans()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(VALUES)
def test_every_value_is_written_as_toml(value):
    assert tomllib.loads(f"value = {quote_toml(value)}")["value"] == value

"""Two servers with version labels on one store: the one of the other version leaves a run alone, and says so."""

import logging

import pytest

from bridle import Agent, tool
from bridle.serve.client import ApiError
from bridle.stores import open_store
from bridle.values.events import ApprovalAnswered
from tests.serve.serving import serve_agents
from tests.serve.waiting_runs import list_questions, prompt_until_waiting, wait_for_end
from tests.suite.in_loop import in_loop

PROMPT = '!call refund {"order": "17", "amount": 5}\n!then\n!say settled'
OTHER_VERSION = "is of version '1' of the agent 'desk', and this code is version '2'"


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return str(tmp_path / "log.db")


class Desk:
    def __init__(self):
        self.paid, self.hosts = [], []

    def make(self, version, **options):
        @tool(effect="write", approve=True)
        def refund(order: str, amount: int) -> str:
            """Pay back."""
            self.paid.append((version, order, amount))
            return "paid"

        @tool(effect="read")
        async def look() -> str:
            """Look, while the server of the run is told to stop."""
            await self.hosts[-1].runs.find("p").handle.pause(by="the server's shutdown")
            return "nothing"

        return Agent("sim:", tools=[refund, look], name="desk", version=version, **options)


@pytest.fixture
def desk():
    return Desk()


@in_loop
async def test_answer_is_refused_by_the_other_version_and_taken_by_its_own(log, desk, caplog):
    store = open_store(log)
    async with serve_agents({"desk": desk.make("1")}, store) as first:
        (question,), after = await prompt_until_waiting(first.client, PROMPT, "s")
        async with serve_agents({"desk": desk.make("2")}, open_store(log)) as second:
            for answer in ("approve", "reject"):
                with pytest.raises(ApiError, match=OTHER_VERSION) as refused:
                    await second.client.answer("s", question.id, answer)
                assert (refused.value.status, refused.value.code) == (409, "cannot_continue")
            assert not [each for each in await store.read("s") if isinstance(each.event, ApprovalAnswered)]
            assert [each.id for each in (await list_questions(second.client, "s"))[0]] == [question.id]
            # An answer from elsewhere, which both servers notice: only the first one continues the run.
            with caplog.at_level(logging.WARNING, "bridle"):
                await Agent("sim:", store=open_store(log)).approve("s", question.id)
                assert await wait_for_end(first.client, "s", after) == "done"
    assert desk.paid == [("1", "17", 5)]


@in_loop
async def test_answered_run_waits_for_a_server_of_its_version(log, desk, caplog):
    store = open_store(log)
    async with serve_agents({"desk": desk.make("1")}, store) as first:
        (question,), after = await prompt_until_waiting(first.client, PROMPT, "s")
    store = open_store(log)
    await Agent("sim:", store=store).approve("s", question.id)
    before = await store.read("s")
    with caplog.at_level(logging.WARNING, "bridle"):
        async with serve_agents({"desk": desk.make("2")}, open_store(log)) as second:
            await second.host.adoption.resuming
            assert OTHER_VERSION in caplog.text
            with pytest.raises(ApiError, match=OTHER_VERSION):
                await second.client.resume("s")
            assert await store.read("s") == before
            assert desk.paid == []
    async with serve_agents({"desk": desk.make("1")}, open_store(log)) as first:
        assert await wait_for_end(first.client, "s", after) == "done"
    assert desk.paid == [("1", "17", 5)]
    await store.close()


@pytest.mark.parametrize("is_approved", [False, True])
@in_loop
async def test_prompt_is_refused_by_the_other_version(log, desk, is_approved):
    store = open_store(log)
    async with serve_agents({"desk": desk.make("1")}, store) as first:
        (question,), _after = await prompt_until_waiting(first.client, PROMPT, "s")
        first.host.answers.close()
        if is_approved:
            await first.client.answer("s", question.id, "approve", resume=False)
        async with serve_agents({"desk": desk.make("2")}, open_store(log)) as second:
            before = await store.read("s")
            with pytest.raises(ApiError, match=OTHER_VERSION) as refused:
                await second.client.prompt("Never mind.", session="s")
            assert (refused.value.status, refused.value.code) == (409, "cannot_continue")
            assert await store.read("s") == before
        async with serve_agents({"desk": desk.make("3", continues=["1"])}, open_store(log)) as third:
            if is_approved:  # it continues the run, as its label says
                assert await wait_for_end(third.client, "s", len(before)) == "done"
            else:
                run = await third.client.prompt("!say hello", session="s")
                # The first record ends the run before.
                assert await wait_for_end(third.client, "s", run.after + 1) == "done"
    assert desk.paid == ([("3", "17", 5)] if is_approved else [])


@in_loop
async def test_interrupted_run_is_adopted_by_its_own_version_only(log, desk, caplog):
    async with serve_agents({"desk": desk.make("1")}, open_store(log)) as first:
        desk.hosts.append(first.host)
        await first.client.prompt("!call look {}\n!then\n!say over", session="p", new=True)
        assert await wait_for_end(first.client, "p") == "paused"
    store = open_store(log)
    before = await store.read("p")
    with caplog.at_level(logging.WARNING, "bridle"):
        async with serve_agents({"desk": desk.make("2")}, open_store(log)) as second:
            await second.host.adoption.resuming
            assert "session p is not resumed: session 'p' cannot be continued with this code" in caplog.text
            assert OTHER_VERSION in caplog.text
            assert await store.read("p") == before
            with pytest.raises(ApiError, match=OTHER_VERSION):
                await second.client.prompt("!say hello", session="p")
            assert await store.read("p") == before
    async with serve_agents({"desk": desk.make("1")}, open_store(log)) as first:
        assert await wait_for_end(first.client, "p", len(before)) == "done"
    await store.close()


@in_loop
async def test_finished_session_is_prompted_by_another_version(log, desk):
    async with serve_agents({"desk": desk.make("1")}, open_store(log)) as first:
        run = await first.client.prompt("!say one", session="s", new=True)
        assert await wait_for_end(first.client, "s", run.after) == "done"
        async with serve_agents({"desk": desk.make("2")}, open_store(log)) as second:
            run = await second.client.prompt("!say two", session="s")
            assert await wait_for_end(second.client, "s", run.after) == "done"

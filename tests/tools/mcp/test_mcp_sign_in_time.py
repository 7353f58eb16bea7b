"""The time of a person who signs in counts towards no timeout of a call, and a call that was not sent was not run."""

import asyncio

import pytest

from bridle import Agent, Budget, tool
from bridle.mcp import OAuth, server
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from tests.tools.mcp.protected_server import Browser, control, start_protected_server

CALL_SECONDS, PERSON_SECONDS = 1.0, 1.6


class SlowPerson(Browser):
    """Signs in at once for the first time, and later than the timeout of a call after that."""

    def __init__(self, later="signs in"):
        super().__init__()
        self._later, self.asked = later, asyncio.Event()

    async def open(self, url):
        if not self.visits:
            await super().open(url)
            return
        self.visits.append(url)
        self.asked.set()
        if self._later == "signs in":
            self._tasks.append(asyncio.create_task(self._come_back(url)))

    async def _come_back(self, url):
        came = asyncio.Event()
        asyncio.get_running_loop().call_later(PERSON_SECONDS, came.set)
        await came.wait()
        await self._follow(url)


class Case:
    """A connected server whose tokens end before the next call."""

    def __init__(self, url, tmp_path, later="signs in", transport="http", sign_in_seconds=60.0):
        self.person = SlowPerson(later)
        oauth = OAuth(tokens=tmp_path / "t.json", open_url=self.person.open, timeout=sign_in_seconds)
        self.url = url.removesuffix("mcp") + "sse" if transport == "sse" else url
        self.source = server(
            self.url, name="p", auth=oauth, timeout=CALL_SECONDS, transport=transport, resources=True
        )

    async def run(self, *replies, steps=("revoke_all",), tools=(), **options):
        assert not (await self.source.list_tools()).error
        for step in steps:
            await asyncio.to_thread(control, self.url.rpartition("/")[0], step)
        agent = Agent(scripted(*replies, "done"), tools=[self.source, *tools], **options)
        result = await agent.run("go")
        await self.source.close()
        return [(each.outcome, each.text) for message in result.messages for each in message.results]


SECRET = call_reply(("mcp__p__secret", {}))


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_sign_in_may_take_longer_than_the_call(tmp_path, transport):
    with start_protected_server("sse" if transport == "sse" else "") as url:

        async def main():
            case = Case(url, tmp_path, transport=transport)
            return await case.run(SECRET), len(case.person.visits)

        assert asyncio.run(main()) == ([("ok", "the treasure")], 2)


def test_calls_beside_the_one_that_signs_in_wait_for_the_person_too(tmp_path):
    calls = call_reply(
        ("mcp__p__secret", {}),
        ("mcp__p__read_resource", {"uri": "text://secret"}),
        ("mcp__p__secret", {}),
    )
    with start_protected_server() as url:

        async def main():
            case = Case(url, tmp_path)
            return await case.run(calls), len(case.person.visits)

        assert asyncio.run(main()) == ([("ok", "the treasure")] * 3, 2)


def test_a_person_signs_in_while_a_call_opens_the_connection_again(tmp_path):
    with start_protected_server() as url:

        async def main():
            case = Case(url, tmp_path)

            @tool
            async def disconnect() -> str:
                await case.source.close()
                await asyncio.to_thread(control, url, "revoke_all")
                return "closed"

            return await case.run(call_reply(("disconnect", {})), SECRET, steps=(), tools=[disconnect])

        assert asyncio.run(main()) == [("ok", "closed"), ("ok", "the treasure")]


ENDS = {
    "the person refuses": ({"steps": ("revoke_all", "refuse")}, {}, "access_denied"),
    "nobody comes": (
        {},
        {"later": "stays away", "sign_in_seconds": PERSON_SECONDS},
        "no sign-in within 1.6",
    ),
    "the run's time is up": (
        {"budget": Budget(seconds=PERSON_SECONDS)},
        {"later": "stays away"},
        "before the call could be sent",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_call_that_was_not_sent_was_not_run(tmp_path, end):
    options, case, reason = ENDS[end]
    with start_protected_server() as url:

        async def main():
            return await Case(url, tmp_path, **case).run(SECRET, **options)  # type: ignore[arg-type]

        ((outcome, text),) = asyncio.run(main())
    assert outcome == "error" and reason in text and "was not run" in text


def test_a_connection_that_is_closed_during_a_sign_in_did_not_run_the_call(tmp_path):
    with start_protected_server() as url:

        async def main():
            case = Case(url, tmp_path, later="stays away")
            running = asyncio.create_task(case.run(SECRET))
            await case.person.asked.wait()
            await case.source.close()
            return await running

        ((outcome, text),) = asyncio.run(main())
    assert outcome == "error" and "The call was not run" in text


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("steps", [(), ("revoke_all",)], ids=["signed in", "after a sign-in"])
def test_a_call_that_was_sent_is_cut_at_its_timeout(tmp_path, transport, steps):
    with start_protected_server("sse" if transport == "sse" else "") as url:

        async def main():
            return await Case(url, tmp_path, transport=transport).run(
                call_reply(("mcp__p__hang", {})), steps=steps
            )

        ((outcome, text),) = asyncio.run(main())
    assert outcome in ("timeout", "unknown") and "not run" not in text


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_run_that_is_cancelled_during_a_sign_in_ends_at_once(tmp_path, transport):
    """Nobody comes, and the sign-in would wait for an hour. A later run of the same source can sign in.

    With SSE all calls share one sender, so that the page stays open for the next call; else there is a new page.
    """
    with start_protected_server("sse" if transport == "sse" else "") as url:

        async def main():
            case = Case(url, tmp_path, later="stays away", transport=transport, sign_in_seconds=3_600.0)
            assert not (await case.source.list_tools()).error
            await asyncio.to_thread(control, case.url.rpartition("/")[0], "revoke_all")
            agent = Agent(scripted(SECRET, "done"), tools=[case.source])
            run = agent.stream("go", session="s").start()
            await case.person.asked.wait()
            run.cancel()
            cancelled = await run.result()
            page = case.person.visits[-1]
            case.person.visits.clear()  # the person comes the next time
            if transport == "sse":
                await case.person._follow(page)
            again = await Agent(scripted(SECRET, "done"), tools=[case.source]).run("go")
            await case.source.close()
            return cancelled, again, len(case.person.visits)

        cancelled, again, visits = asyncio.run(main())
    results = [each for message in cancelled.messages for each in message.results]
    assert cancelled.stop == "cancelled"
    assert [each.outcome for each in results] == ["unknown"], "the call is in doubt, never done"
    ((outcome, text),) = [(each.outcome, each.text) for message in again.messages for each in message.results]
    assert (outcome, text, visits) == ("ok", "the treasure", 0 if transport == "sse" else 1)

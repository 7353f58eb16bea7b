"""The failure policy covers every kind of failure, and the loop follows it."""

import asyncio
from typing import get_args

import pytest

from bridle import Agent
from bridle.core.effects import AskModel, ChangeView, EndRun, Reprompt
from bridle.core.recovery.failure_policy import FAILURE_POLICY
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.testing.scripted_model import scripted
from bridle.values import events as e
from bridle.values.errors import Failure, FailureKind, StoreError
from bridle.values.message import Outcome, Stop, Text, ToolResult
from docs.outcome_tables import OUTCOME_POLICY, STOP_POLICY, STORE_ERROR_POLICY
from tests.core.loop_story import Story, call, says


def test_everything_that_can_go_wrong_has_exactly_one_row():
    assert set(FAILURE_POLICY) == set(get_args(FailureKind))
    assert set(OUTCOME_POLICY) == set(get_args(Outcome))
    assert set(STOP_POLICY) == set(Stop)
    own = {each for each in StoreError.__subclasses__() if each.__module__.startswith("bridle.")}
    assert set(STORE_ERROR_POLICY) == own


def test_every_row_says_what_happens_and_gives_an_example():
    for row in (
        *FAILURE_POLICY.values(),
        *OUTCOME_POLICY.values(),
        *STOP_POLICY.values(),
        *STORE_ERROR_POLICY.values(),
    ):
        assert row.description
        assert row.example


@pytest.mark.parametrize("kind", list(FAILURE_POLICY))
def test_the_loop_does_what_the_row_of_a_failure_says(kind):
    story = Story().reply(says("", call("look")))
    story.perform()
    story.tell(e.ModelAsked(step=2, attempt=1, digest=""))
    story.tell(e.ModelFailed(failure=Failure(kind=kind, message="no", retry_after_seconds=3.0)))
    effect = story.effect()
    match FAILURE_POLICY[kind].action:
        case "retry":
            assert isinstance(effect, AskModel)
            assert (effect.attempt, effect.after_failure, effect.wait_seconds) == (2, kind, 3.0)
        case "repair" if FAILURE_POLICY[kind].needs_named_part:
            assert effect.stop == ("failed" if kind == "invalid" else "context")
            assert "no" in effect.reason
            named = Failure(kind=kind, message="the second part is wrong")
            story.tell(e.ModelFailed(failure=named, rejected_parts=(("m1", 0, -1),)))
            assert isinstance(story.effect(), ChangeView)
        case "repair":
            assert isinstance(effect, AskModel | ChangeView)
        case verdict:
            assert verdict == "stop"
            assert effect == EndRun(stop="failed", reason="no")


@pytest.mark.parametrize("stop", list(STOP_POLICY))
def test_the_loop_does_what_the_row_of_a_stop_reason_says(stop):
    # A call that was announced and never came is what there is to tell; all others have said something.
    words = "" if stop is Stop.TOOLS else "words"
    effect = Story().reply(says(words, stop=stop)).effect()
    assert type(effect) is {"stop": EndRun, "tell": Reprompt, "retry": AskModel}[STOP_POLICY[stop].action]


@pytest.mark.parametrize("outcome", list(OUTCOME_POLICY))
def test_the_model_is_told_however_a_call_ended(outcome):
    assert OUTCOME_POLICY[outcome].action == "tell"
    story = Story().reply(says("", call("look")))
    result = ToolResult(call_id="c1_0", parts=(Text(text="so it went"),), outcome=outcome)
    story.tell(e.ToolStarted(call_id="c1_0", name="look", key="k"))
    story.tell(e.ToolFinished(result=result))
    (told,) = story.effect().request.messages[-1].results
    assert (told.outcome, told.text) == (outcome, "so it went")


@pytest.mark.parametrize("kind", list(STORE_ERROR_POLICY))
def test_a_store_that_fails_stops_the_run_and_leaves_a_session_that_goes_on(kind):
    class Failing(MemoryStore):
        broken = False

        async def append(self, session, after, records, *, epoch=None):
            if self.broken:
                raise kind("the disk is gone")
            await super().append(session, after, records, epoch=epoch)

    store = Failing()

    class Break:
        def on_event(self, session, happening):
            store.broken = isinstance(getattr(happening, "event", None), e.ModelAsked)

    async def story():
        line = scripted("one", "two")
        with pytest.raises(kind, match="the disk is gone"):
            await Agent(line, store=store, clock=FakeClock(), watchers=[Break()]).run("hi", "s")
        store.broken = False
        return await Agent(line, store=store, clock=FakeClock()).resume("s")

    assert STORE_ERROR_POLICY[kind].action == "stop"
    assert asyncio.run(story()).text == "one"

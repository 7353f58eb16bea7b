"""A conversation that is played to the core event by event, without a model."""

from decimal import Decimal

from bridle.core.calls.dispatch import number_calls
from bridle.core.effects import (
    AskModel,
    ChangeView,
    EndRun,
    RecordFinding,
    Reprompt,
    RevealTools,
    RunTool,
    SkipCall,
)
from bridle.core.loop import apply_event, next_effects
from bridle.core.state import State
from bridle.values import events as e
from bridle.values.message import Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model, Origin
from bridle.values.request import ToolSpec
from bridle.values.settings import Settings
from bridle.values.usage import Budget, Price, Rates, Usage

ORIGIN = Origin(family="scripted", endpoint="test", model="m")
RATES = Rates(
    input=Decimal(2),
    output=Decimal(10),
    cache_read=Decimal("0.1"),
    cache_write=Decimal("2.5"),
    cache_write_1h=Decimal(4),
)
MODEL = Model(id="m", endpoint=Endpoint(name="test", family="scripted"), price=Price(tiers=(RATES,)))
NUMBER = (
    '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'
)
READ = ToolSpec(name="look", effect="read", on_unknown="retry", parameters=NUMBER)
WRITE = ToolSpec(name="pay", parameters=NUMBER)
SETTINGS = Settings(model=MODEL, tools=(READ, WRITE))


def says(text="", *calls, stop=None, usage=None, more=()):
    parts = (*([Text(text=text)] if text else []), *more, *calls)
    return Reply(
        parts=parts,
        stop=stop or (Stop.TOOLS if calls else Stop.DONE),
        origin=ORIGIN,
        usage=usage or Usage(input=10, output=5),
    )


def call(name, arguments='{"n":1}', wire_id=""):
    return ToolCall(id="", name=name, arguments=arguments, wire_id=wire_id)


class Story:
    """A session told event by event, with a clock that ticks once an event."""

    def __init__(self, settings=SETTINGS, budget=None, prompt="hello"):
        self.state, self.at, self.told = State(), 0.0, []
        self.tell(e.Configured(settings=settings, session="s"))
        self.tell(e.Prompted(parts=(Text(text=prompt),), budget=budget or Budget()))

    def tell(self, event):
        self.at += 1
        self.state = apply_event(self.state, event, self.at, proof=f"p{self.at}")
        self.told.append(event)
        return self

    def effect(self):
        """The only effect, after everything that is only recorded."""
        (only,) = next_effects(self.state)
        while isinstance(only, RecordFinding):
            self.tell(only.event)
            (only,) = next_effects(self.state)
        return only

    def reply(self, reply, usd=Decimal(0)):
        ask = self.effect()
        assert isinstance(ask, AskModel), ask
        self.tell(e.ModelAsked(step=ask.step, attempt=ask.attempt, digest=""))
        return self.tell(
            e.ModelReplied(reply=number_calls(reply, self.state.totals.reply_count + 1), usd=usd)
        )

    def perform(self):
        """Do what is wanted until a model or an end is asked for, with tools that say ok."""
        while True:
            effects = next_effects(self.state)
            match effects[0]:
                case AskModel() | EndRun():
                    return effects[0]
                case ChangeView(changes=changes, why=why, model_key=seat):
                    self.tell(e.ViewChanged(changes=changes, why=why, model_key=seat))
                case RevealTools(names=names, why=why):
                    self.tell(e.ToolsRevealed(names=names, why=why))
                case Reprompt(why=why, message=words):
                    self.tell(e.Reprompted(why=why, message=words))
                case RecordFinding(event=event):
                    self.tell(event)
                case SkipCall(call=c, outcome=outcome, why=why):
                    self.finish(c.id, why, outcome)
                case RunTool(call=c, key=key, attempt=attempt):
                    self.tell(e.ToolStarted(call_id=c.id, name=c.name, key=key, attempt=attempt))
                    self.finish(c.id, "ok")

    def finish(self, call_id, text, outcome="ok"):
        return self.tell(
            e.ToolFinished(result=ToolResult(call_id=call_id, parts=(Text(text=text),), outcome=outcome))
        )

    def end(self):
        effect = self.effect()
        assert isinstance(effect, EndRun), effect
        return self.tell(
            e.RunEnded(
                stop=effect.stop, reason=effect.reason, partial_text=self.state.run.attempt.partial_text
            )
        )

    @property
    def roles(self):
        return [message.role for message in self.state.conversation.transcript.messages]

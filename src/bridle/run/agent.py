"""`Agent`: frozen settings, and the four ways to put them to work.

    await agent.run(prompt)         one prompt to its end
    agent.stream(prompt)            the same, shown while it happens
    agent.run_sync(prompt)          the same, for code without an event loop
    await agent.resume(session)     whatever was left unfinished, to its end

All four take the same road (run/driver.py) and leave the same log.  An agent holds no
conversation; sessions do, in the agent's store.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, cast

import msgspec

from ..core.state import State
from ..ports.clock import Clock
from ..ports.store import Store
from ..ports.tool import Json, Tool
from ..ports.watcher import Watcher
from ..stores import open_store
from ..tools.collect import collect
from ..tools.output import OutputType, output_type
from ..values.errors import MisuseError
from ..values.message import Prompt
from ..values.model import Model
from ..values.parts import Media, Text
from ..values.request import Extra, OutputSpec, Sampling, Thinking, ToolChoice
from ..values.result import History, Result
from ..values.settings import REPEATS_DEFAULT, Settings
from ..values.text import sound
from ..values.usage import Budget
from .clock import SystemClock
from .conversation import Conversation
from .driver import Driver
from .identity import new_session
from .line import Line, connect, locate
from .stream import Feed, Stream
from .sync import wait_for

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=str)
else:
    from typing import TypeVar

    T = TypeVar("T")

ChoiceLike = str | ToolChoice
Choice = ChoiceLike | Callable[[int], ChoiceLike]
"""`auto`, `any`, `none`, the name of a tool, or a function of the step number that gives one of these."""
StoreLike = Store | str | os.PathLike[str] | None
CHOICES = {"auto": ToolChoice(), "any": ToolChoice(mode="any"), "none": ToolChoice(mode="none")}
OUTPUT_TOKENS_WITHOUT_STREAM_MAX = 21_333
"""Above this a reply may take longer than connections without traffic live, so it is streamed."""


class Agent(Generic[T]):
    def __init__(
        self,
        model: str | Model | Line,
        *,
        tools: Iterable[Tool | Callable[..., object]] = (),
        instructions: str | None = None,
        budget: Budget | None = None,
        store: StoreLike = None,
        output: type[T] | OutputType[T] | Mapping[str, Json] | None = None,
        tool_choice: Choice = "auto",
        max_tokens: int | None = None,
        thinking: Thinking | None = None,
        sampling: Sampling | None = None,
        repeats_max: int | None = REPEATS_DEFAULT,
        chain: bool = False,
        extras: Sequence[Extra] = (),
        watchers: Sequence[Watcher] = (),
        clock: Clock | None = None,
    ) -> None:
        """`tools` are functions, `@tool`s or anything that is a `Tool`.  `store` is a path, a URL or a
        store; without one the log is kept in memory.  `output` is the type of the answer wanted.
        `chain` lets a provider that can keep the conversation, so that only what is new is sent."""
        _check_types(instructions, budget, max_tokens, repeats_max)
        self._line = model if isinstance(model, Line) else None
        self._model = (
            model.model if isinstance(model, Line) else locate(model) if isinstance(model, str) else model
        )
        self._tools = collect(tools)
        self._budget = budget or Budget()
        self._store: Store | None = None
        self._where = store
        self._shape = _shape(output)
        self._choose = tool_choice if callable(tool_choice) else None
        self._watchers = tuple(watchers)
        self._clock = clock or SystemClock()
        fixed = ToolChoice() if callable(tool_choice) else self._choice(tool_choice)
        self._settings = _readable(
            Settings(
                model=self._model,
                instructions=sound(instructions or "").strip(),
                tools=tuple(tool.spec for tool in self._tools.values()),
                tool_choice=fixed,
                max_tokens=max_tokens,
                output=self._output_spec(fixed),
                thinking=thinking,
                sampling=sampling or Sampling(),
                repeats_max=repeats_max,
                chain=chain,
                extras=tuple(extras),
            )
        )

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def store(self) -> Store:
        if self._store is None:
            where = self._where
            self._store = (
                open_store(where) if where is None or isinstance(where, str | os.PathLike) else where
            )
        return self._store

    async def run(
        self,
        prompt: Prompt,
        session: str | None = None,
        *,
        budget: Budget | None = None,
        history: History | None = None,
    ) -> Result[T]:
        """One prompt to its end.  With the id of a session, the conversation goes on there.

        A `history` held elsewhere becomes the beginning of a new session.
        """
        parts, name = _parts(prompt), self._session(session)
        return await self._prompt(parts, name, budget, stream=self._long(), history=history)

    def run_sync(
        self,
        prompt: Prompt,
        session: str | None = None,
        *,
        budget: Budget | None = None,
        history: History | None = None,
    ) -> Result[T]:
        return wait_for(self.run(prompt, session, budget=budget, history=history))

    def stream(
        self,
        prompt: Prompt,
        session: str | None = None,
        *,
        budget: Budget | None = None,
        deltas: bool = True,
    ) -> Stream[T]:
        """The same run, shown while it happens: deltas and events, and a `FinalAnswer` at the end.

        Without `deltas` the model is asked for whole replies and only events are shown.
        """
        parts, name = _parts(prompt), self._session(session)

        async def start(feed: Feed) -> Result[T]:
            return await self._prompt(parts, name, budget, stream=deltas or self._long(), feed=feed)

        return Stream(start, lambda: self._now(name))

    async def resume(self, session: str, *, budget: Budget | None = None) -> Result[T]:
        """Finish what was left unfinished, with a raised budget if one is given."""
        if budget is not None:
            self._check_price(budget)
        conversation = self._conversation(session, stream=self._long())
        return self._result(session, await conversation.resume(budget))

    async def _prompt(
        self,
        parts: tuple[Text | Media, ...],
        session: str,
        budget: Budget | None,
        *,
        stream: bool,
        feed: Feed | None = None,
        history: History | None = None,
    ) -> Result[T]:
        limits = budget or self._budget
        self._check_price(limits)
        conversation = self._conversation(session, stream=stream, feed=feed)
        return self._result(session, await conversation.prompt(parts, limits, history))

    def _check_price(self, budget: Budget) -> None:
        if budget.usd is not None and self._model.price is None:
            raise MisuseError(
                f"no price is known for {self._model.name}, so a budget in dollars cannot be held;"
                " use Budget(tokens=…) or add the price to the file named by $BRIDLE_MODELS"
            )

    def _conversation(self, session: str, *, stream: bool, feed: Feed | None = None) -> Conversation:
        line = self._line or connect(self._model, clock=self._clock)
        watchers = (*self._watchers, feed) if feed else self._watchers
        choose = self._choose

        def driver() -> Driver:
            return Driver(
                session,
                line=line,
                store=self.store,
                clock=self._clock,
                tools=self._tools,
                watchers=watchers,
                stream=stream,
                choose=(lambda step: self._choice(choose(step))) if choose else None,
                object_to=self._objection if self._shape else None,
            )

        return Conversation(
            session=session,
            settings=self._settings,
            hold=lambda: self.store.hold(session),
            drivers=driver,
        )

    async def _now(self, session: str) -> Result[T]:
        """The session as its log tells it, with nothing done about it."""
        driver = self._conversation(session, stream=False).drivers()
        await driver.restore()
        return self._result(session, driver.state)

    def _result(self, session: str, state: State) -> Result[T]:
        run = state.run
        output: object = run.answer if run.stop == "done" else None
        if self._shape is not None:
            output = None
            if run.stop == "done" and run.output is not None:
                output = self._shape.convert(msgspec.json.decode(run.output))
        return Result(
            text=run.answer,
            output=output,  # type: ignore[arg-type]  # str exactly when no shape was asked for
            usage=run.spent.usage,
            cost=None if run.spent.usd is None else float(run.spent.usd),
            stop=run.stop or "cancelled",
            reason=run.reason,
            session=session,
            messages=state.transcript.messages,
            steps=run.spent.steps,
            failure=run.failure if run.stop == "failed" else None,
        )

    def _objection(self, answer: str) -> str:
        """What the type asked for has against an answer that satisfies its schema."""
        if self._shape is not None:
            try:
                self._shape.convert(msgspec.json.decode(answer))
            except Exception as error:  # noqa: BLE001 - the type is foreign code; its objection is for the model
                said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
                return sound(said) or type(error).__name__
        return ""

    def _session(self, session: str | None) -> str:
        if session is None:
            return new_session(self._clock.now())
        if not session.strip():
            raise MisuseError("the session id is empty; leave it out to start a new session")
        return session

    def _long(self) -> bool:
        return (self._settings.max_tokens or 0) > OUTPUT_TOKENS_WITHOUT_STREAM_MAX

    def _choice(self, wanted: ChoiceLike) -> ToolChoice:
        if isinstance(wanted, ToolChoice):
            choice = wanted
        else:
            choice = CHOICES.get(wanted) or ToolChoice(mode="tool", name=wanted)
        if choice.mode == "tool" and choice.name not in self._tools:
            known = ", ".join(self._tools) or "none are registered"
            raise MisuseError(
                f"tool_choice names {choice.name!r}, which is not a tool of this agent ({known})"
            )
        return choice

    def _output_spec(self, choice: ToolChoice) -> OutputSpec | None:
        shape, mode = self._shape, self._model.abilities.structured_output
        if shape is None:
            return None
        if mode == "tool" and shape.name in self._tools:
            raise MisuseError(f"the answer's type and a tool are both called {shape.name!r}; rename one")
        if mode == "tool" and choice.mode == "none":
            raise MisuseError(
                f"{self._model.name} answers in a shape by calling, and tool_choice='none' forbids calls"
            )
        return OutputSpec(name=shape.name, parameters=shape.schema, description=shape.description, mode=mode)


def _shape(output: type[T] | OutputType[T] | Mapping[str, Json] | None) -> OutputType[T] | None:
    if output is None or isinstance(output, OutputType):
        return output
    # A schema gives plain data; who passes one has no type to be held to.
    return cast("OutputType[T]", output_type(output))


def _check_types(instructions: object, budget: object, max_tokens: object, repeats_max: object) -> None:
    """What is given the wrong type here would be found out by whoever reads the log, too late."""
    if instructions is not None and not isinstance(instructions, str):
        raise MisuseError(f"instructions are words, not {type(instructions).__name__}")
    if budget is not None and not isinstance(budget, Budget):
        raise MisuseError(f"a budget is a Budget(usd=…, tokens=…, steps=…, seconds=…), not {budget!r}")
    for name, value, least in (("max_tokens", max_tokens, 1), ("repeats_max", repeats_max, 2)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise MisuseError(f"{name} is a whole number of at least {least}, or None; not {value!r}")


def _readable(settings: Settings) -> Settings:
    """Settings that can be read back from a log exactly as they were written."""
    try:
        again = msgspec.json.decode(msgspec.json.encode(settings), type=Settings)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise MisuseError(f"one of the agent's settings has the wrong type: {error}") from None
    return settings if again == settings else again


def _parts(prompt: Prompt) -> tuple[Text | Media, ...]:
    given: object = (prompt,) if isinstance(prompt, str | Text | Media) else prompt
    if not isinstance(given, list | tuple):
        raise MisuseError(
            f"a prompt is words, a picture or file, or a list of them; not {type(prompt).__name__}"
        )
    parts = tuple(_part(part) for part in given)
    if not any(isinstance(part, Media) or part.text.strip() for part in parts):
        raise MisuseError("the prompt is empty; say something")
    return parts


def _part(given: object) -> Text | Media:
    if isinstance(given, str):
        return Text(text=sound(given))
    if isinstance(given, Text):
        return msgspec.structs.replace(given, text=sound(given.text))
    if isinstance(given, Media):
        return given
    raise MisuseError(f"a prompt is made of words, Text and Media; {type(given).__name__} is none of them")

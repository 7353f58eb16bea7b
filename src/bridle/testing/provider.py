"""A provider of one's own for a test: strict, scripted if wanted, in this process or on a port.

    async with simulator("!call add {}", "It is 3.") as provider:
        result = await Agent(provider.model(), tools=[add]).run("1 + 2?")

Leaving checks what a test would forget to check: that the script was played to its end, that
planned faults happened, and that nothing was refused which the test did not ask to be.

`provider.model(…)` is for agents of ours and opens no socket; `provider.url` is for any other
client, and starts a server in a thread when it is first asked for.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

from ..ports.clock import Clock
from ..providers import load
from ..run.line import Line, locate
from ..sim.brain import perform
from ..sim.brains import Scripted
from ..sim.faults import Planned
from ..sim.scriptfile import steps_of
from ..sim.server import serving
from ..sim.settings import exports
from ..sim.simulator import Refusal, Simulator
from ..sim.turn import Brain
from ..transports.inprocess import InProcessTransport
from ..transports.recording import Exchanged
from ..values.errors import MisuseError
from ..values.model import Model

READY_SECONDS_MAX = 10.0


class ProviderSim:
    def __init__(
        self,
        *replies: object,
        brain: Brain | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        strict: bool = True,
        profile: str = "",
        faults: Iterable[Planned | str] = (),
        refusals: bool = False,
    ) -> None:
        """`replies` are steps of a script; without any, `brain` answers or the rule-based mind.

        `refusals` says that the test means to be refused."""
        if replies and brain is not None:
            raise MisuseError("give replies or a brain: a script is a brain too")
        self.exchanges: list[Exchanged] = []
        """Everything that was asked and answered, without secrets."""
        mind = brain or (Scripted(steps_of(replies)) if replies else perform)
        self.simulator = Simulator(
            mind,
            clock=clock,
            seed=seed,
            strict=strict,
            profile=profile,
            faults=faults,
            log=self.exchanges.append,
        )
        self._clock, self._refusals = clock, refusals
        self._server: _Server | None = None

    def script(self, *replies: object) -> None:
        """Give it these replies from now on."""
        self.simulator.brain = Scripted(steps_of(replies))

    def fail(self, *faults: Planned | str) -> None:
        """Let these go wrong from now on, in this order."""
        self.simulator.plan(faults)

    def model(self, model: str | Model = "sim:") -> Line:
        """A model of this provider for an agent, such as `sim:FAMILY/MODEL`."""
        located = locate(model) if isinstance(model, str) else model
        return Line(
            model=located,
            codec=load(located.endpoint.family),
            transport=InProcessTransport(self.simulator.answer, clock=self._clock),
        )

    @property
    def url(self) -> str:
        """Where it answers over HTTP."""
        if self._server is None:
            self._server = _Server(self.simulator)
        return self._server.url

    @property
    def environ(self) -> dict[str, str]:
        """What to set so that other clients find it."""
        return exports(self.url)

    @property
    def refusals(self) -> list[Refusal]:
        return self.simulator.refusals

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def check(self) -> None:
        """Raises `AssertionError` when something is left over or was refused unasked."""
        try:
            self.simulator.finish()
        except MisuseError as error:
            raise AssertionError(str(error)) from None
        if self.refusals and not self._refusals:
            told = "; ".join(
                f"{each.family} {each.rule or 'request'}: {each.message}" for each in self.refusals
            )
            raise AssertionError(f"the provider refused what was sent: {told}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if error is None:
            self.check()


@asynccontextmanager
async def simulator(
    *replies: object,
    brain: Brain | None = None,
    clock: Clock | None = None,
    seed: int = 0,
    strict: bool = True,
    profile: str = "",
    faults: Iterable[Planned | str] = (),
    refusals: bool = False,
) -> AsyncIterator[ProviderSim]:
    with ProviderSim(
        *replies,
        brain=brain,
        clock=clock,
        seed=seed,
        strict=strict,
        profile=profile,
        faults=faults,
        refusals=refusals,
    ) as provider:
        yield provider


class _Server:
    """The simulator on a port, in a thread with a loop of its own: clients that block can use it too."""

    def __init__(self, served: Simulator) -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._thread = threading.Thread(target=self._loop.run_forever, name="provider_sim", daemon=True)
        self._thread.start()
        opened = asyncio.run_coroutine_threadsafe(
            self._stack.enter_async_context(serving(served)), self._loop
        )
        self.url = opened.result(READY_SECONDS_MAX)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stack.aclose(), self._loop).result(READY_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(READY_SECONDS_MAX)
        self._loop.close()

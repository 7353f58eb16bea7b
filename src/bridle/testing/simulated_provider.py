"""A simulated provider for one test: strict, optionally scripted, in process or over HTTP.

    async with simulator("!call add {}", "It is 3.") as provider:
        result = await Agent(provider.model(), tools=[add]).run("1 + 2?")

Leaving the context checks that the script was played to its end, that planned faults happened, and that the
provider refused nothing unexpectedly.

`provider.model(…)` is for Bridle agents and opens no socket; `provider.url` is for any other client, and
starts a server thread on first use.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

from bridle.ports.clock import Clock
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.client_environment import client_environment
from bridle.sim.faults.catalogue import PlannedFault
from bridle.sim.responder.alternatives import ScriptedResponder
from bridle.sim.responder.decision import Responder
from bridle.sim.responder.rule_based import respond
from bridle.sim.responder.script_file import parse_steps
from bridle.sim.server import serve_simulator
from bridle.sim.simulator import Simulator, SimulatorRefusal
from bridle.transports.inprocess import InProcessTransport
from bridle.transports.recorded import RecordedExchange
from bridle.values.errors import MisuseError
from bridle.values.model import Model

# not from outside: time that we wait for our own work
READY_SECONDS_MAX = 10.0


class ProviderSim:
    def __init__(
        self,
        *replies: object,
        responder: Responder | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        strict: bool = True,
        profile: str = "",
        faults: Iterable[PlannedFault | str] = (),
        refusals: bool = False,
    ) -> None:
        """Set up the provider.

        `replies` are the steps of a script. Without them `responder` answers, or the rule-based responder.
        `refusals` allows the provider to refuse requests.
        """
        if replies and responder is not None:
            raise MisuseError("give replies or a responder, not both")
        self.exchanges: list[RecordedExchange] = []
        """All exchanges so far, without secrets."""
        chosen_responder = responder or (ScriptedResponder(parse_steps(replies)) if replies else respond)
        self.simulator = Simulator(
            chosen_responder,
            clock=clock,
            seed=seed,
            strict=strict,
            profile=profile,
            faults=faults,
            log=self.exchanges.append,
        )
        self._clock, self._refusals = clock, refusals
        self._server: _ServerThread | None = None

    def script(self, *replies: object) -> None:
        """Use these replies from now on."""
        self.simulator.responder = ScriptedResponder(parse_steps(replies))

    def fail(self, *faults: PlannedFault | str) -> None:
        """Inject these faults from now on, in this order."""
        self.simulator.plan_faults(faults)

    def model(self, model: str | Model = "sim:") -> ModelConnection:
        """Connect to a model of this provider, such as `sim:FAMILY/MODEL`."""
        located = find_model_by_name(model) if isinstance(model, str) else model
        return ModelConnection(
            model=located,
            codec=load_codec(located.endpoint.family),
            transport=InProcessTransport(self.simulator.answer, clock=self._clock),
        )

    @property
    def url(self) -> str:
        """Base URL of the provider over HTTP."""
        if self._server is None:
            self._server = _ServerThread(self.simulator)
        return self._server.url

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables that point other clients to this provider."""
        return client_environment(self.url)

    @property
    def refusals(self) -> list[SimulatorRefusal]:
        return self.simulator.refusals

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def check(self) -> None:
        """Raise `AssertionError` if replies or faults are unused or a request was refused unexpectedly."""
        try:
            self.simulator.check_finished()
        except MisuseError as error:
            raise AssertionError(str(error)) from None
        if self.refusals and not self._refusals:
            refused = "; ".join(
                f"{each.family} {each.rule or 'request'}: {each.message}" for each in self.refusals
            )
            raise AssertionError(f"the provider refused requests: {refused}")

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
    responder: Responder | None = None,
    clock: Clock | None = None,
    seed: int = 0,
    strict: bool = True,
    profile: str = "",
    faults: Iterable[PlannedFault | str] = (),
    refusals: bool = False,
) -> AsyncIterator[ProviderSim]:
    with ProviderSim(
        *replies,
        responder=responder,
        clock=clock,
        seed=seed,
        strict=strict,
        profile=profile,
        faults=faults,
        refusals=refusals,
    ) as provider:
        yield provider


class _ServerThread:
    """Serves the simulator in a thread with its own event loop, so that blocking clients can use it too."""

    def __init__(self, served: Simulator) -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._thread = threading.Thread(target=self._loop.run_forever, name="provider_sim", daemon=True)
        self._thread.start()
        opened = asyncio.run_coroutine_threadsafe(
            self._stack.enter_async_context(serve_simulator(served)), self._loop
        )
        self.url = opened.result(READY_SECONDS_MAX)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stack.aclose(), self._loop).result(READY_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(READY_SECONDS_MAX)
        self._loop.close()

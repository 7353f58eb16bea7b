"""Test helpers for code built on Bridle: conformance checks, a scripted model, a fake clock.

    check_codec, check_store, check_tool    check an implementation of a port
    scripted(reply, reply, …)               a model that gives these replies
    simulated(choose)                       a model whose replies your function chooses, from `ConversationFacts`
    call_reply((name, arguments), …)        a reply of such a model that calls tools
    forbid_requests()                       refuses every request that leaves this machine
    FakeClock                               a clock that only moves when told to
    simulator(reply, …), ProviderSim        a strict simulated provider, in process or over HTTP
    recording(path), replaying(path, …)     a real run, recorded without secrets and replayed
    assert_replays(fixture, agent=…)        a recorded session, replayed with an agent
    check_arguments, compile_schema         what a schema accepts, and the form of it that a wire carries

Each name is imported on first use, because the simulator is large and most tests need one of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle.core.calls.validation import check_arguments as check_arguments
    from bridle.ports.forbidden_requests import RequestForbidden as RequestForbidden
    from bridle.ports.forbidden_requests import forbid_requests as forbid_requests
    from bridle.providers.schema.compiler import compile_schema as compile_schema
    from bridle.providers.schema.compiler import find_dialect as find_dialect
    from bridle.sim.responder.conversation import ConversationFacts as ConversationFacts
    from bridle.sim.responder.conversation import ToolExchange as ToolExchange
    from bridle.testing.conformance.codec import check_codec as check_codec
    from bridle.testing.conformance.store import check_store as check_store
    from bridle.testing.conformance.tool import check_tool as check_tool

    from .fake_clock import FakeClock as FakeClock
    from .recordings import recording as recording
    from .recordings import replaying as replaying
    from .replay_tests import assert_replays as assert_replays
    from .scripted_model import call_reply as call_reply
    from .scripted_model import scripted as scripted
    from .scripted_model import simulated as simulated
    from .scripted_model import text_reply as text_reply
    from .simulated_provider import ProviderSim as ProviderSim
    from .simulated_provider import simulator as simulator

_WHERE = {
    "RequestForbidden": "bridle.ports.forbidden_requests",
    "ToolExchange": "bridle.sim.responder.conversation",
    "check_arguments": "bridle.core.calls.validation",
    "compile_schema": "bridle.providers.schema.compiler",
    "find_dialect": "bridle.providers.schema.compiler",
    "ConversationFacts": "scripted_model",
    "FakeClock": "fake_clock",
    "ProviderSim": "simulated_provider",
    "assert_replays": "replay_tests",
    "call_reply": "scripted_model",
    "check_codec": "conformance.codec",
    "check_store": "conformance.store",
    "check_tool": "conformance.tool",
    "forbid_requests": "bridle.ports.forbidden_requests",
    "recording": "recordings",
    "replaying": "recordings",
    "scripted": "scripted_model",
    "simulated": "scripted_model",
    "simulator": "simulated_provider",
    "text_reply": "scripted_model",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    where = _WHERE[name]
    return getattr(import_module(where if where.startswith("bridle.") else f".{where}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""For testing what is built on Bridle: a check for every port, a scripted model, a clock that obeys.

check_codec, check_store, check_tool    write an edge, run its check, and it fits
scripted(reply, reply, …)               a model that says what it is told to
FakeClock                               time that moves only when told to
simulator(reply, …), provider_sim       a strict simulated provider, in process or over HTTP
recording(path), replaying(path, …)     a real run, written down without secrets and played again

Each is loaded when it is first asked for: the simulator is a program of its own, and a check is needed once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle.testing.conformance.codec import check_codec as check_codec
    from bridle.testing.conformance.store import check_store as check_store
    from bridle.testing.conformance.tool import check_tool as check_tool

    from .fake_clock import FakeClock as FakeClock
    from .recordings import recording as recording
    from .recordings import replaying as replaying
    from .scripted_model import scripted as scripted
    from .simulated_provider import ProviderSim as ProviderSim
    from .simulated_provider import simulator as simulator

_WHERE = {
    "FakeClock": "fake_clock",
    "ProviderSim": "simulated_provider",
    "check_codec": "conformance.codec",
    "check_store": "conformance.store",
    "check_tool": "conformance.tool",
    "recording": "recordings",
    "replaying": "recordings",
    "scripted": "scripted_model",
    "simulator": "simulated_provider",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)

"""Mechanisms that run a command with fewer rights; each implements `ports/sandbox.py`.

    from bridle.sandbox import find_sandbox

Importing it loads nothing: the launcher below it runs without site-packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle.ports.sandbox import Sandbox as Sandbox
    from bridle.ports.sandbox import SandboxedCommand as SandboxedCommand
    from bridle.ports.sandbox import SandboxLimits as SandboxLimits

    from .docker import DockerSandbox as DockerSandbox
    from .local import LocalSandbox as LocalSandbox
    from .local import find_sandbox as find_sandbox

_WHERE = {
    "DockerSandbox": "bridle.sandbox.docker",
    "LocalSandbox": "bridle.sandbox.local",
    "Sandbox": "bridle.ports.sandbox",
    "SandboxLimits": "bridle.ports.sandbox",
    "SandboxedCommand": "bridle.ports.sandbox",
    "find_sandbox": "bridle.sandbox.local",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)

"""The user's own modules, found beside the file that imports them and read when they are first needed.

Modules that are not the user's are not followed: what they do is told by their names (sources.py).
"""

from pathlib import Path
from typing import NamedTuple

from ...values.errors import MisuseError
from .scopes import Module, read_module


class Found(NamedTuple):
    module: Module
    names: tuple[str, ...]
    """What of the full name is inside it."""


class Library:
    def __init__(self) -> None:
        self._modules: dict[Path, Module | None] = {}
        self._found: dict[tuple[Module, str], Found | None] = {}

    def open(self, path: Path) -> Module:
        """Raises `MisuseError` when it cannot be read."""
        whole = path.resolve()
        module = self._modules.get(whole) or read_module(path)
        self._modules[whole] = module
        return module

    def find(self, asking: Module, target: str) -> Found | None:
        """The module of ours that a full name is in."""
        key = asking, target
        if key not in self._found:
            self._found[key] = self._looked_for(asking, target)
        return self._found[key]

    def _looked_for(self, asking: Module, target: str) -> Found | None:
        names = target.lstrip(".").split(".")
        level = len(target) - len(target.lstrip("."))
        for root in _roots(asking.path, level):
            for count in range(len(names), 0, -1):
                module = self._at(root.joinpath(*names[:count]))
                if module is not None:
                    return Found(module, tuple(names[count:]))
            if level and (module := self._at(root)):
                return Found(module, tuple(names))
        return None

    def _at(self, place: Path) -> Module | None:
        for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if not path.is_file():
                continue
            whole = path.resolve()
            if whole not in self._modules:
                try:
                    self._modules[whole] = read_module(path)
                except MisuseError:
                    self._modules[whole] = None  # Python will say more about it than we can
            return self._modules[whole]
        return None


def _roots(path: Path, level: int) -> list[Path]:
    """Where an import may start: beside the file, above its package, and where the command was called."""
    folder = path.resolve().parent
    if level:
        return [folder.parents[level - 2] if level > 1 else folder]
    above = folder
    while (above / "__init__.py").is_file() and above.parent != above:
        above = above.parent
    return list(dict.fromkeys([folder, above, Path.cwd()]))

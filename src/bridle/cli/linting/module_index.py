"""The user's own modules, found beside the file that imports them and read when they are first needed.

Modules that are not the user's are not followed: what they do is told by their names (sources.py).
"""

from pathlib import Path
from typing import NamedTuple

from bridle.values.errors import MisuseError

from .scopes import ParsedModule, read_module


class FoundModule(NamedTuple):
    module: ParsedModule
    remaining_names: tuple[str, ...]
    """What of the full name is inside it."""


class ModuleIndex:
    def __init__(self) -> None:
        self._modules: dict[Path, ParsedModule | None] = {}
        self._found: dict[tuple[ParsedModule, str], FoundModule | None] = {}

    def open_module(self, path: Path) -> ParsedModule:
        """Raises `MisuseError` when it cannot be read."""
        whole = path.resolve()
        module = self._modules.get(whole) or read_module(path)
        self._modules[whole] = module
        return module

    def find_module(self, asking: ParsedModule, target: str) -> FoundModule | None:
        """The module of ours that a full name is in."""
        key = asking, target
        if key not in self._found:
            self._found[key] = self._search_module(asking, target)
        return self._found[key]

    def _search_module(self, asking: ParsedModule, target: str) -> FoundModule | None:
        names = target.lstrip(".").split(".")
        level = len(target) - len(target.lstrip("."))
        for root in _import_roots(asking.path, level):
            for count in range(len(names), 0, -1):
                module = self._module_at(root.joinpath(*names[:count]))
                if module is not None:
                    return FoundModule(module, tuple(names[count:]))
            if level and (module := self._module_at(root)):
                return FoundModule(module, tuple(names))
        return None

    def _module_at(self, place: Path) -> ParsedModule | None:
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


def _import_roots(path: Path, level: int) -> list[Path]:
    """Where an import may start: beside the file, above its package, and where the command was called."""
    folder = path.resolve().parent
    if level:
        return [folder.parents[level - 2] if level > 1 else folder]
    above = folder
    while (above / "__init__.py").is_file() and above.parent != above:
        above = above.parent
    return list(dict.fromkeys([folder, above, Path.cwd()]))

"""Finds and parses the user's modules, next to the file that imports them, when they are first needed.

Third-party modules are not parsed; sources.py lists what their functions do.
"""

from pathlib import Path
from typing import NamedTuple

from bridle.values.errors import MisuseError

from .scopes import ParsedModule, read_module


class FoundModule(NamedTuple):
    module: ParsedModule
    remaining_names: tuple[str, ...]
    """The part of the qualified name that is inside the module."""


class ModuleIndex:
    def __init__(self) -> None:
        self._modules: dict[Path, ParsedModule | None] = {}
        self._found: dict[tuple[ParsedModule, str], FoundModule | None] = {}

    def open_module(self, path: Path) -> ParsedModule:
        """Parse a file once; raises `MisuseError` if it cannot be read."""
        whole = path.resolve()
        module = self._modules.get(whole) or read_module(path)
        self._modules[whole] = module
        return module

    def find_module(self, asking: ParsedModule, target: str) -> FoundModule | None:
        """The user's module that contains a qualified name, or None."""
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
                    self._modules[whole] = None  # importing the module reports the error
            return self._modules[whole]
        return None


def _import_roots(path: Path, level: int) -> list[Path]:
    """Folders an import may start from: the file's folder, the one above its package, the working directory."""
    folder = path.resolve().parent
    if level:
        return [folder.parents[level - 2] if level > 1 else folder]
    above = folder
    while (above / "__init__.py").is_file() and above.parent != above:
        above = above.parent
    return list(dict.fromkeys([folder, above, Path.cwd()]))

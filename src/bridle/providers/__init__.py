"""Translators between Bridle's words and each provider's: one file per wire family.

`load("name")` imports `providers/name.py` and returns the `CODEC` it defines.  There is no list to
keep up to date: adding a family is adding its file.  Files whose names begin with an underscore are
parts shared by families and cannot be loaded.

A codec only translates.  It opens no connection, reads no clock, knows no key, and decides nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import cast

from ..ports.codec import Codec
from ..values.errors import MisuseError


def families() -> tuple[str, ...]:
    """The wire families there are, by name."""
    found = (module.name for module in iter_modules(__path__) if not module.name.startswith("_"))
    return tuple(sorted(name for name in found if hasattr(import_module(f"{__name__}.{name}"), "CODEC")))


def load(family: str) -> Codec:
    """The codec of a wire family; `MisuseError` when there is no such family."""
    if not family.isidentifier() or family.startswith("_") or find_spec(f"{__name__}.{family}") is None:
        raise MisuseError(
            f"no wire family {family!r}: a family is a file in bridle/providers, loaded by its name"
        )
    module = import_module(f"{__name__}.{family}")
    if not hasattr(module, "CODEC"):
        raise MisuseError(f"bridle/providers/{family}.py defines no CODEC, so it is not a wire family")
    return cast("Codec", module.CODEC)

"""Reads annotations: resolves names, and unwraps `Annotated[type, notes…]`.

A note may be a plain string (a description), `msgspec.Meta`, a bound of `annotated_types`, or the result of
pydantic's `Field`.  Only msgspec is imported: bounds are recognized by attribute names (`ge`, `max_length`, …),
which all of them share.  Unknown notes are ignored, as the typing rules require.
"""

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec

_BOUND_NAMES = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern", "tz")
_WRAPPER_NAMES = {"Required", "NotRequired", "ReadOnly", "Final"}


class NoJsonForm(Exception):
    """An annotation without a JSON form; the message says what to write instead."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.path = path

    def prefix_path(self, name: str) -> "NoJsonForm":
        joint = "" if not self.path or self.path.startswith("[") else "."
        return NoJsonForm(self.what, f"{name}{joint}{self.path}")


class AnnotationNotes(NamedTuple):
    description: str = ""
    bounds: Mapping[str, Any] = {}
    keywords: Mapping[str, Any] = {}
    """JSON Schema keywords to add unchanged."""
    needs_pydantic: bool = False
    """True if only pydantic can interpret the notes, so that it must read the whole annotation."""


def unwrap_annotation(annotation: Any) -> tuple[Any, AnnotationNotes]:
    """The bare type and its notes; outer notes override inner ones."""
    notes = AnnotationNotes()
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *written = get_args(annotation)
            inner = AnnotationNotes()
            for note in written:
                inner = _merge_notes(_read_note(note), inner)
            notes = _merge_notes(notes, inner)
        elif getattr(get_origin(annotation), "_name", "") in _WRAPPER_NAMES:
            (annotation,) = get_args(annotation)
        elif hasattr(annotation, "__supertype__"):  # a NewType
            annotation = annotation.__supertype__
        else:
            return annotation, notes


def read_field_default(default: Any) -> tuple[AnnotationNotes, Any, Callable[[], Any] | None] | None:
    """Read a pydantic `Field` used as a default, as in `count: int = Field(3, ge=1)`."""
    if not _is_pydantic_field(default):
        return None
    value = ... if default.is_required() else default.default
    return _read_note(default), value, default.default_factory


def resolve_hints(target: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve the annotations of a class or function; `names` are local names where it was defined."""
    is_class = isinstance(target, type)
    scope = {**names, target.__name__: target} if is_class else {**names}
    unknown = NameError()
    for candidate, local_names in (
        (target, None),
        (target, scope),
        (target if is_class else _without_return_type(target), scope),
    ):
        try:
            return typing.get_type_hints(candidate, localns=local_names, include_extras=True)
        except NameError as error:
            unknown = error
        except (AttributeError, SyntaxError, TypeError) as error:
            raise NoJsonForm(f"has an annotation that Python cannot read ({error}); correct it") from None
    what = f"has an annotation with the unknown name `{unknown.name}`"
    raise NoJsonForm(
        f"{what}; define it above, outside of `if TYPE_CHECKING`", _find_annotated_name(target, unknown.name)
    )


def _without_return_type(function: Any) -> Any:
    """The function with `Any` as its return type, which the schema does not need."""
    return types.SimpleNamespace(
        __annotations__={**function.__annotations__, "return": Any},
        __globals__=getattr(inspect.unwrap(function), "__globals__", {}),
    )


def _find_annotated_name(target: Any, name: str | None) -> str:
    word = re.compile(rf"\b{re.escape(name or '')}\b")
    written = getattr(target, "__annotations__", {})
    return next((key for key, hint in written.items() if isinstance(hint, str) and word.search(hint)), "")


def _read_note(note: Any) -> AnnotationNotes:
    if isinstance(note, str):
        return AnnotationNotes(description=note)
    if isinstance(note, msgspec.Meta):
        keywords = {"examples": list(note.examples)} if note.examples else {}
        return AnnotationNotes(
            note.description or "", _read_bounds(note), {**keywords, **(note.extra_json_schema or {})}
        )
    if _is_pydantic_field(note):
        notes = AnnotationNotes()
        for part in note.metadata:
            notes = _merge_notes(_read_note(part), notes)
        extra = note.json_schema_extra if isinstance(note.json_schema_extra, dict) else {}
        keywords = {"examples": list(note.examples)} if note.examples else {}
        return _merge_notes(AnnotationNotes(note.description or "", {}, {**keywords, **extra}), notes)
    documentation = getattr(note, "documentation", None)
    if isinstance(documentation, str):
        return AnnotationNotes(description=documentation)
    return AnnotationNotes(bounds=_read_bounds(note), needs_pydantic=_needs_pydantic(note))


def _is_pydantic_field(note: Any) -> bool:
    return type(note).__name__ == "FieldInfo" and "pydantic" in sys.modules and hasattr(note, "metadata")


def _needs_pydantic(note: Any) -> bool:
    if hasattr(note, "__get_pydantic_core_schema__"):
        return True
    changes = ("strip_whitespace", "to_upper", "to_lower", "ascii_only")
    return any(getattr(note, change, None) for change in changes)


def _read_bounds(note: Any) -> dict[str, Any]:
    if isinstance(note, type):
        return {}
    found = {name: getattr(note, name, None) for name in _BOUND_NAMES}
    if isinstance(found["pattern"], re.Pattern):
        found["pattern"] = found["pattern"].pattern
    if not isinstance(note, msgspec.Meta):
        found["tz"] = None
    return {name: limit for name, limit in found.items() if limit is not None}


def _merge_notes(outer: AnnotationNotes, inner: AnnotationNotes) -> AnnotationNotes:
    return AnnotationNotes(
        outer.description or inner.description,
        {**inner.bounds, **outer.bounds},
        {**inner.keywords, **outer.keywords},
        outer.needs_pydantic or inner.needs_pydantic,
    )

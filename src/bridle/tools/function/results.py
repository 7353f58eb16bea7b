"""Converts the return value of a tool to parts a model can read.

    str                       the text
    Text, Media, or a list    unchanged (strings allowed in the list)
    None                      "done" if the function is annotated to return nothing, otherwise "null"
    JSON-compatible value     compact JSON

The two forms of None differ because a search without results must not read as "done".  Blank text is shown in
quotes, because several wires reject a blank block.  Bytes are rejected: the author must decode them or use
`Media.from_bytes`.
"""

from bridle.tools.schema.json_form import to_json_text
from bridle.values.message import Media, Text
from bridle.values.text import repair_surrogates

DONE_TEXT = "done"


def make_result_parts(value: object, tool: str, *, returns_nothing: bool = False) -> tuple[Text | Media, ...]:
    """The value as parts; raises TypeError, naming the tool and the type, if it has no JSON form."""
    if isinstance(value, str):
        return (Text(text=_visible_text(value)),)
    if isinstance(value, Text | Media):
        return (_check_part(value),)
    if value is None:
        return (Text(text=DONE_TEXT if returns_nothing else "null"),)
    if isinstance(value, list | tuple) and any(isinstance(item, Text | Media) for item in value):
        return tuple(_make_part(item, tool) for item in value)
    try:
        return (Text(text=to_json_text(value)),)
    except TypeError as error:
        raise TypeError(f"tool `{tool}` returned {error}; {_suggest_type(value)}") from None


def _make_part(item: object, tool: str) -> Text | Media:
    if isinstance(item, str):
        return Text(text=_visible_text(item))
    if isinstance(item, Text | Media):
        return _check_part(item)
    raise TypeError(
        f"tool `{tool}` returned parts with a {type(item).__name__} among them; use Text, Media or str"
    )


def _check_part(part: Text | Media) -> Text | Media:
    return part if isinstance(part, Media) or part.native is not None else Text(text=_visible_text(part.text))


def _visible_text(text: str) -> str:
    return repair_surrogates(text) if text.strip() else to_json_text(text)


def _suggest_type(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return "return Media.from_bytes(...) for a picture or a file, or decode it to str"
    return "return str, numbers, dict, list, a dataclass, a pydantic model, Text or Media"

"""Reads the files that a prompt comes with: `bridle run -f report.pdf -f notes.txt PROMPT`."""

import sys
from collections.abc import Sequence

import msgspec

from bridle.tools.schema.output_type import OutputType, make_output_type
from bridle.values.errors import MisuseError
from bridle.values.media import read_at_most, read_file, recognize_bytes
from bridle.values.message import Media, Prompt, Text
from bridle.values.schema_limits import CHARACTERS_MAX

STANDARD_INPUT = "-"


def attach_files(prompt: str, paths: Sequence[str]) -> Prompt:
    """The prompt with the files in front of it, in order; `-` is the text of standard input."""
    if not paths:
        return prompt
    return [*(_read_part(path) for path in paths), Text(text=prompt)]


def read_schema_file(path: str) -> OutputType[object]:
    """The output type that a file with a JSON Schema describes."""
    try:
        schema = msgspec.json.decode(read_at_most(path, CHARACTERS_MAX), type=dict[str, object])
    except OSError as error:
        raise MisuseError(f"cannot read {path!r}: {error.strerror or error}") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MisuseError(f"{path!r} is not a JSON Schema: {error}") from None
    wanted: object = schema
    return make_output_type(wanted)


def _read_part(path: str) -> Text | Media:
    if path == STANDARD_INPUT:
        return _make_text("standard input", sys.stdin.read())
    data, name = read_file(path)
    if recognize_bytes(data):
        return Media.from_bytes(data, name=name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise MisuseError(
            f"{path!r} is neither text in UTF-8 nor an image, PDF, audio or video of a known type"
        )
    return _make_text(name, text)


def _make_text(name: str, text: str) -> Text:
    return Text(text=f"File {name}:\n\n{text}")

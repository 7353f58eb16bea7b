"""What remains of an exception in a tool that the tool did not declare, which is probably a bug.

The traceback goes to the log of the standard `logging` module, for a person or an error tracker, and to the record
of the result. The model reads only the type and the message.
"""

import logging
import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from bridle.ports.tool import Tool
from bridle.values.calls import ToolError
from bridle.values.message import ToolCall
from bridle.values.text import escape_text, locate_error, repair_surrogates

if TYPE_CHECKING:
    from bridle.run.known_secrets import KnownSecrets

LOG = logging.getLogger("bridle.tools")
# not from outside: what is kept of the traceback of a tool
TRACEBACK_CHARACTERS_MAX = 8_000
OWN_FILES = str(Path(__file__).parents[2])


def report_error(
    tool: Tool, call: ToolCall, error: BaseException | None, secrets: "KnownSecrets | None"
) -> ToolError | None:
    """Log an exception that the tool did not declare, and return its description, without credentials."""
    if error is None or isinstance(error, getattr(tool, "declared_errors", ())):
        return None
    located = locate_error(error)
    start = _skip_own_frames(error.__traceback__)
    try:
        whole = "".join(traceback.format_exception(type(error), error, start))
    except Exception as second:  # noqa: BLE001 - not swallowed: the text names it; a foreign `__str__` may raise
        whole = f"{located}\n(its traceback cannot be written: {type(second).__name__})"
    # guard: traceback-redacted
    shown = repair_surrogates(whole if secrets is None else secrets.redact_text(whole))
    lines = "\n".join(map(escape_text, shown.split("\n")))
    message = escape_text(f"tool {call.name} raised {located}")
    if lines == whole:
        LOG.warning("%s", message, exc_info=(type(error), error, start))
    else:
        LOG.warning("%s\n%s", message, lines)
    kind, _, place = located.partition(" at ")
    return ToolError(type=kind, place=place, traceback=shown[-TRACEBACK_CHARACTERS_MAX:])


def _skip_own_frames(place: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame of the tool's own code; the whole of it if all frames are Bridle's."""
    start = place
    while start is not None and start.tb_frame.f_code.co_filename.startswith(OWN_FILES):
        start = start.tb_next
    return start or place

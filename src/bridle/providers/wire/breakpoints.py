"""Cache breakpoints of a request, in terms that every wire with breakpoints can use."""

from bridle.values.errors import MisuseError
from bridle.values.request import Request


def tools_breakpoint_ttl(request: Request) -> str | None:
    return next((mark.ttl for mark in request.breakpoints if mark.position == "tools"), None)


def system_breakpoint_ttls(request: Request) -> dict[int, str]:
    """Map the index of a system block to the TTL of the breakpoint after it.

    An empty text is not sent as a block; its breakpoint then belongs to the last block before it.
    """
    count = len(request.system)
    marks = (
        mark for mark in request.breakpoints if mark.position == "system" and -count <= mark.block < count
    )
    return {mark.block % count: mark.ttl for mark in marks}


def message_breakpoint_ttls(request: Request, *, at_end: bool = False) -> dict[int, str]:
    """Map message indexes to TTLs; `at_end`: the end of the request counts as its last message."""
    count = len(request.messages)
    marks: dict[int, str] = {}
    for mark in request.breakpoints:
        if mark.position == "message":
            if not -count <= mark.message < count:
                raise MisuseError(f"no message {mark.message} for a breakpoint: the request has {count}")
            marks[mark.message % count] = mark.ttl
    if at_end and count and (ttl := end_breakpoint_ttl(request)):
        marks[count - 1] = ttl
    return marks


def end_breakpoint_ttl(request: Request) -> str | None:
    return next((mark.ttl for mark in request.breakpoints if mark.position == "end"), None)

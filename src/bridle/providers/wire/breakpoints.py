"""Where a request marks what stands before its messages, in terms every wire that takes marks can use."""

from bridle.values.request import Request


def tools_breakpoint_ttl(request: Request) -> str | None:
    return next((mark.ttl for mark in request.breakpoints if mark.position == "tools"), None)


def system_breakpoint_ttls(request: Request) -> dict[int, str]:
    """By the number of the system's text behind which it is marked.

    A text that says nothing is no block; then the mark belongs on the last block before it.
    """
    count = len(request.system)
    marks = (
        mark for mark in request.breakpoints if mark.position == "system" and -count <= mark.block < count
    )
    return {mark.block % count: mark.ttl for mark in marks}

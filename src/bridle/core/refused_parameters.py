"""Optional parameters that the endpoint refused in this run: they are left out from then on.

A parameter is left out once, and only if the refused request carried it.  Refused again, the failure is
judged like any other.
"""

from msgspec.structs import replace

from ..values.errors import Failure, OptionalParameter
from ..values.request import Request

Parameters = tuple[OptionalParameter, ...]


def has_parameter(request: Request, parameter: OptionalParameter) -> bool:
    """Whether a request carries the parameter."""
    if parameter == "tool_choice":
        return request.tool_choice.mode in ("any", "tool")
    return bool(request.marks or request.cache_key or request.compared_to)


def leave_out_refused(left_out: Parameters, failure: Failure) -> tuple[Parameters, Failure]:
    """What to leave out after a failure, and the failure, which names nothing that was left out before."""
    refused = failure.refused_parameter
    if refused is None:
        return left_out, failure
    if refused in left_out:
        return left_out, replace(failure, refused_parameter=None)
    return (*left_out, refused), failure

"""Extra endpoints of Converse: token counting."""

import re
from uuid import UUID

from bridle.sim.endpoints import EndpointCall, EndpointRoute, ExtraEndpoints, Json, ServerState
from bridle.values.errors import Failure
from bridle.values.request import Request

_UNSIMULATED_INPUT = (
    "simulator: count-tokens takes `input.converse` here; `input.invokeModel` is not simulated"
)


def count_tokens(state: ServerState, call: EndpointCall) -> Json | Failure:
    input_field = call.body.get("input")
    body = input_field.get("converse") if isinstance(input_field, dict) else None
    if not isinstance(body, dict):
        return Failure(kind="invalid", message=_UNSIMULATED_INPUT, status=400, code="ValidationException")
    request = state.read_request(f"/model/{call.path_params['model']}/converse", body, call.headers)
    return {"inputTokens": state.count_tokens(request)} if isinstance(request, Request) else request


def _format_uuid(digest: str) -> str:
    return str(UUID(hex=digest[:32]))


EXTRA_ENDPOINTS = ExtraEndpoints(
    routes=(EndpointRoute("POST", r".*/model/(?P<model>[^/]+)/count-tokens", count_tokens),),
    is_own_request=lambda path, headers: path.startswith(("/model/", "/async-invoke", "/guardrail/")),
    not_found_message="Unable to determine service/operation name to be authorized",
    unsimulated_paths=re.compile(r"/(?:async-invoke|guardrail/.+/apply)"),
    request_id_header="x-amzn-requestid",
    request_id=_format_uuid,
    reply_id=_format_uuid,
    call_prefix="tooluse_",
)

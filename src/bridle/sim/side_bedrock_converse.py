"""Beside Converse: counting tokens."""

import re
from uuid import UUID

from ..values.errors import Failure
from ..values.request import Request
from .side import Door, House, Json, Knock, Side

_UNNAMED = "simulator: count-tokens takes `input.converse` here; `input.invokeModel` is not simulated"


def count(house: House, knock: Knock) -> Json | Failure:
    given = knock.body.get("input")
    body = given.get("converse") if isinstance(given, dict) else None
    if not isinstance(body, dict):
        return Failure(kind="invalid", message=_UNNAMED, status=400, code="ValidationException")
    request = house.read(f"/model/{knock.found['model']}/converse", body, knock.headers)
    return {"inputTokens": house.count(request)} if isinstance(request, Request) else request


def _uuid(digest: str) -> str:
    return str(UUID(hex=digest[:32]))


SIDE = Side(
    doors=(Door(method="POST", pattern=re.compile(r".*/model/(?P<model>[^/]+)/count-tokens"), open=count),),
    home=lambda path, headers: path.startswith(("/model/", "/async-invoke", "/guardrail/")),
    lost="Unable to determine service/operation name to be authorized",
    unsimulated=re.compile(r"/(?:async-invoke|guardrail/.+/apply)"),
    stamp="x-amzn-requestid",
    request_id=_uuid,
    reply_id=_uuid,
    call_prefix="tooluse_",
)

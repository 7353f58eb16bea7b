"""Makes the OpenAPI document of the API from its table of routes."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bridle import __version__
from bridle.serve.api.types import ErrorReply

if TYPE_CHECKING:
    from .endpoints import ApiRoute

REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")


def make_openapi(routes: "Sequence[ApiRoute]") -> dict[str, Any]:
    """The document; every type of the table is one of its components."""
    types = [each for row in routes for each in (row.body, row.reply) if each is not None]
    queries = [row.query for row in routes if row.query is not None]
    every = list(dict.fromkeys([*types, *queries, ErrorReply]))
    schemas, components = msgspec.json.schema_components(every, schema_hook=_describe_any, ref_template=REF)
    found = dict(zip(every, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for row in routes:
        paths.setdefault(f"/api{row.path}", {})[row.method.lower()] = _describe(row, found, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Bridle", "version": __version__, "description": "Agents over HTTP."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _describe_any(type_: type) -> dict[str, Any]:
    if type_ is not object:
        raise NotImplementedError
    return {"description": "Any JSON value."}


def _describe(row: "ApiRoute", schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(row.path)
    ]
    if row.query is not None:
        fields = components[row.query.__name__]
        parameters += [
            {"name": name, "in": "query", "required": name in fields.get("required", ()), "schema": schema}
            for name, schema in fields["properties"].items()
        ]
    if row.reply is None:
        content = {"text/event-stream": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": schemas[row.reply]}}
    problem = {"content": {"application/json": {"schema": schemas[ErrorReply]}}, "description": "An error"}
    described: dict[str, Any] = {
        "summary": row.summary,
        "operationId": _make_id(row),
        "parameters": parameters,
        "responses": {str(row.status): {"description": "Done", "content": content}, "default": problem},
    }
    if row.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[row.body]}},
        }
    return described


def _make_id(row: "ApiRoute") -> str:
    words = [part for part in re.split(r"[/{}]+", row.path) if part]
    return "_".join((row.method.lower(), *words))

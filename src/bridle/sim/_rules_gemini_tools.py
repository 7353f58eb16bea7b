"""Tools, the choice among them, and what does not go together with them."""

import re

from ._rules_gemini_shape import (
    BUDGETS,
    asked,
    choice,
    chosen,
    config,
    declarations,
    field,
    listed,
    member,
    rule,
    tool,
    tools,
)
from ._rules_reading import (
    Block,
    mapping,
    to,
)
from .rules import Asked, Found

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
NAMING_MODES = ("ANY", "VALIDATED")
SEARCHES = ("googleSearch", "googleSearchRetrieval", "urlContext", "fileSearch", "googleMaps")
DECLARED = "functionDeclarations"
KINDS = (
    *SEARCHES,
    DECLARED,
    "codeExecution",
    "computerUse",
    "enterpriseWebSearch",
    "mcpServers",
)
_MODE = "type.googleapis.com/google.ai.generativelanguage.v1beta.FunctionCallingConfig.Mode"
_NAMING = (
    "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9),"
    " underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128.\n"
)
_CONFIG = "GenerateContentRequest.tool_config.function_calling_config"


def _bad_name(request: Asked) -> Found | None:
    for place, item in declarations(request):
        name = item.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            return {"at": place}
    return None


def _same_name(request: Asked) -> Found | None:
    seen: list[object] = []
    for _, item in declarations(request):
        name = item.get("name")
        if name in seen:
            return {"name": name}
        if name is not None:
            seen.append(name)
    return None


def _unknown_kind(request: Asked) -> Found | None:
    for index, item in enumerate(tools(request)):
        for name in item:
            if not any(member({name: True}, kind) for kind in KINDS):
                return {"index": index, "name": name}
    return None


def _mode(request: Asked) -> str:
    mode = choice(request, "mode")
    if isinstance(mode, int) and 0 <= mode < len(MODES):
        return MODES[mode]
    return mode.upper() if isinstance(mode, str) else ""


def _unknown_mode(request: Asked) -> Found | None:
    mode = choice(request, "mode")
    if mode is None or _mode(request) in MODES:
        return None
    return {"mode": mode}


def _nothing_to_choose(request: Asked) -> Found | None:
    return {} if _mode(request) and not any(True for _ in declarations(request)) else None


def _named_unasked(request: Asked) -> Found | None:
    names = listed(choice(request, "allowedFunctionNames"))
    return {} if names and _mode(request) not in NAMING_MODES else None


def _named_unknown(request: Asked) -> Found | None:
    known = {item.get("name") for _, item in declarations(request)}
    for name in listed(choice(request, "allowedFunctionNames")):
        if name not in known:
            return {}
    return None


def _exclusive(request: Asked) -> bool:
    """Whether the model takes functions only by themselves."""
    return request.abilities is not None and request.abilities.structured_output == "tool"


def _searches_too(request: Asked) -> Found | None:
    searches = any(member(item, kind) is not None for item in tools(request) for kind in SEARCHES)
    functions = any(True for _ in declarations(request))
    return {} if _exclusive(request) and functions and searches else None


def _hosted_unshown(request: Asked) -> Found | None:
    hosted = any(
        member(item, kind) is not None for item in tools(request) for kind in KINDS if kind != DECLARED
    )
    functions = any(True for _ in declarations(request))
    shown = member(mapping(field(request, "toolConfig")), "includeServerSideToolInvocations") is True
    return {} if functions and hosted and not shown and not _exclusive(request) else None


def _shaped_too(request: Asked) -> Found | None:
    shaped = config(request, "responseMimeType") == "application/json"
    functions = any(True for _ in declarations(request))
    return {} if _exclusive(request) and functions and shaped else None


def _cached_too(request: Asked) -> Found | None:
    again = any(field(request, name) for name in ("systemInstruction", "tools", "toolConfig"))
    return {} if again and field(request, "cachedContent") else None


_JSON = {"generationConfig": {"responseMimeType": "application/json"}}
_SEARCH: Block = {"googleSearch": {}}
_SHOWN = {"toolConfig": {"includeServerSideToolInvocations": True}}

TOOL_RULES = (
    rule(
        "tool-kind",
        _unknown_kind,
        "Invalid JSON payload received. Unknown name \"{name}\" at 'tools[{index}]': Cannot find field.",
        evidence="S",
        passes=asked(tools=[{"code_execution": {}}]),
        offends=asked(tools=[{"codeExecution": {}}, {"function": {"name": "look"}}]),
        says="Invalid JSON payload received. Unknown name \"function\" at 'tools[1]': Cannot find field.",
    ),
    rule(
        "tool-name",
        _bad_name,
        f"* GenerateContentRequest.{{at}}.name: {_NAMING}",
        evidence="S",
        passes=asked(tools=[tool("_look.up:2-b" + "x" * 116)]),
        offends=asked(tools=[tool(), tool("2look")]),
        says=f"* GenerateContentRequest.tools[1].function_declarations[0].name: {_NAMING}",
        also=(
            (
                asked(tools=[tool(), {"functionDeclarations": [{"description": "Looks."}]}]),
                f"* GenerateContentRequest.tools[1].function_declarations[0].name: {_NAMING}",
            ),
        ),
    ),
    rule(
        "tool-names-unique",
        _same_name,
        "Duplicate function declaration found: {name}",
        evidence="S",
        passes=asked(tools=[tool("look"), tool("find")]),
        offends=asked(tools=[tool("look"), tool("find"), tool("look")]),
        says="Duplicate function declaration found: look",
        also=((asked(tools=[{"functionDeclarations": [{}, {}]}]), ""),),
    ),
    rule(
        "choice-mode",
        _unknown_mode,
        f"Invalid value at 'tool_config.function_calling_config.mode' ({_MODE}), \"{{mode}}\"",
        evidence="S",
        passes=asked(tools=[tool()], **chosen(mode="any")),
        offends=asked(tools=[tool()], **chosen(mode="REQUIRED")),
        says=f"Invalid value at 'tool_config.function_calling_config.mode' ({_MODE}), \"REQUIRED\"",
        also=(
            (
                asked(tools=[tool()], **chosen(mode=5)),
                f"Invalid value at 'tool_config.function_calling_config.mode' ({_MODE}), \"5\"",
            ),
            (asked(tools=[tool()], **chosen(mode=4)), ""),
            (asked(tools=[tool()], **chosen(mode=0)), ""),
            (
                asked(tools=[tool()], **chosen(mode=-1)),
                f"Invalid value at 'tool_config.function_calling_config.mode' ({_MODE}), \"-1\"",
            ),
        ),
    ),
    rule(
        "choice-without-tools",
        _nothing_to_choose,
        "Function calling config is set without function_declarations.",
        evidence="S",
        passes=asked(tools=[tool()], **chosen(mode="NONE")),
        offends=asked(tools=[_SEARCH], **chosen(mode="AUTO")),
    ),
    rule(
        "choice-names-mode",
        _named_unasked,
        f"* {_CONFIG}.allowed_function_names: only allowed when function calling mode is ANY or VALIDATED\n",
        evidence="K",
        passes=asked(tools=[tool()], **chosen(mode="ANY", allowedFunctionNames=["look"])),
        offends=asked(tools=[tool()], **chosen(mode="AUTO", allowedFunctionNames=["look"])),
        also=((asked(tools=[tool()], **chosen(mode=2, allowedFunctionNames=["look"])), ""),),
    ),
    rule(
        "choice-names-known",
        _named_unknown,
        "allowed_function_names should be a subset of the provided function_declarations",
        evidence="S",
        passes=asked(tools=[tool(), tool("find")], **chosen(mode="ANY", allowedFunctionNames=["find"])),
        offends=asked(tools=[tool()], **chosen(mode="ANY", allowedFunctionNames=["look", "find"])),
    ),
    rule(
        "tools-mixed",
        _searches_too,
        "Tool use with function calling is unsupported",
        evidence="S",
        models="that take functions only by themselves",
        passes=asked(tools=[tool(), _SEARCH], **_SHOWN),
        offends=to(BUDGETS, asked(tools=[tool(), _SEARCH])),
        also=((to(BUDGETS, asked(tools=[_SEARCH])), ""),),
    ),
    rule(
        "tools-mixed-shown",
        _hosted_unshown,
        "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function"
        " calling.",
        evidence="K",
        models="that take functions beside the provider's own tools",
        passes=asked(tools=[tool(), _SEARCH], **_SHOWN),
        offends=asked(tools=[tool(), _SEARCH]),
        also=(
            (asked(tools=[_SEARCH, {"codeExecution": {}}]), ""),
            (to(BUDGETS, asked(tools=[tool(), _SEARCH])), ""),
        ),
    ),
    rule(
        "tools-shaped",
        _shaped_too,
        "Function calling with a response mime type: 'application/json' is unsupported",
        evidence="S",
        models="that take functions only by themselves",
        passes=asked(tools=[tool()], **_JSON),
        offends=to(BUDGETS, asked(tools=[tool()], **_JSON)),
        also=((to(BUDGETS, asked(**_JSON)), ""),),
    ),
    rule(
        "cached-again",
        _cached_too,
        "CachedContent can not be used with GenerateContent request setting system_instruction, tools or"
        " tool_config.\n\nProposed fix: move those values to CachedContent from GenerateContent request.",
        evidence="S",
        passes=asked(cachedContent="cachedContents/1"),
        offends=asked(cachedContent="cachedContents/1", tools=[tool()]),
    ),
)

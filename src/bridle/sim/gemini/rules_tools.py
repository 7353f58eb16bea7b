"""Rules about tools, the tool choice, and features that exclude them."""

import re

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_mapping, tools

from .request import as_list, field, generation_setting, list_declarations, member, rule, tool_choice_setting
from .rules_fields import refuse

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


def _has_odd_name(declaration: JsonObject) -> bool:
    name = declaration.get("name")
    return not isinstance(name, str) or not NAME.fullmatch(name)


def _check_tool_names_unique(request: RawRequest) -> RuleFinding | None:
    seen: list[object] = []
    for _, item in list_declarations(request):
        name = item.get("name")
        if name in seen:
            return {"name": name}
        if name is not None:
            seen.append(name)
    return None


def _find_unknown_kind(tool: JsonObject) -> RuleFinding | None:
    unknown = (name for name in tool if not any(member({name: True}, kind) for kind in KINDS))
    return next(({"name": name} for name in unknown), None)


def _choice_mode(request: RawRequest) -> str:
    mode = tool_choice_setting(request, "mode")
    if isinstance(mode, int) and 0 <= mode < len(MODES):
        return MODES[mode]
    return mode.upper() if isinstance(mode, str) else ""


def _check_choice_mode(request: RawRequest) -> RuleFinding | None:
    mode = tool_choice_setting(request, "mode")
    if mode is None or _choice_mode(request) in MODES:
        return None
    return {"mode": mode}


def _check_choice_without_tools(request: RawRequest) -> RuleFinding | None:
    return {} if _choice_mode(request) and not any(True for _ in list_declarations(request)) else None


def _check_choice_names_mode(request: RawRequest) -> RuleFinding | None:
    names = as_list(tool_choice_setting(request, "allowedFunctionNames"))
    return {} if names and _choice_mode(request) not in NAMING_MODES else None


def _check_choice_names_known(request: RawRequest) -> RuleFinding | None:
    known = {item.get("name") for _, item in list_declarations(request)}
    for name in as_list(tool_choice_setting(request, "allowedFunctionNames")):
        if name not in known:
            return {}
    return None


def _takes_functions_alone(request: RawRequest) -> bool:
    """True if the model accepts functions only without other features."""
    return request.abilities is not None and request.abilities.structured_output == "tool"


def _check_tools_mixed(request: RawRequest) -> RuleFinding | None:
    searches = any(member(item, kind) is not None for item in tools(request) for kind in SEARCHES)
    functions = any(True for _ in list_declarations(request))
    return {} if _takes_functions_alone(request) and functions and searches else None


def _check_tools_mixed_shown(request: RawRequest) -> RuleFinding | None:
    hosted = any(
        member(item, kind) is not None for item in tools(request) for kind in KINDS if kind != DECLARED
    )
    functions = any(True for _ in list_declarations(request))
    shown = member(as_mapping(field(request, "toolConfig")), "includeServerSideToolInvocations") is True
    return {} if functions and hosted and not shown and not _takes_functions_alone(request) else None


def _check_tools_shaped(request: RawRequest) -> RuleFinding | None:
    shaped = generation_setting(request, "responseMimeType") == "application/json"
    functions = any(True for _ in list_declarations(request))
    return {} if _takes_functions_alone(request) and functions and shaped else None


def _repeats_cached(body: JsonObject) -> bool:
    again = any(member(body, name) for name in ("systemInstruction", "tools", "toolConfig"))
    return again and bool(member(body, "cachedContent"))


TOOL_RULES = (
    refuse(
        "tool-kind",
        "tools[]",
        _find_unknown_kind,
        "Invalid JSON payload received. Unknown name \"{name}\" at 'tools[{index}]': Cannot find field.",
        evidence="S",
    ),
    refuse(
        "tool-name",
        "tools[].functionDeclarations[]",
        _has_odd_name,
        f"* GenerateContentRequest.{{at}}.name: {_NAMING}",
        evidence="S",
    ),
    rule(
        "tool-names-unique",
        _check_tool_names_unique,
        "Duplicate function declaration found: {name}",
        evidence="S",
    ),
    rule(
        "choice-mode",
        _check_choice_mode,
        f"Invalid value at 'tool_config.function_calling_config.mode' ({_MODE}), \"{{mode}}\"",
        evidence="S",
    ),
    rule(
        "choice-without-tools",
        _check_choice_without_tools,
        "Function calling config is set without function_declarations.",
        evidence="S",
    ),
    rule(
        "choice-names-mode",
        _check_choice_names_mode,
        f"* {_CONFIG}.allowed_function_names: only allowed when function calling mode is ANY or VALIDATED\n",
        evidence="K",
    ),
    rule(
        "choice-names-known",
        _check_choice_names_known,
        "allowed_function_names should be a subset of the provided function_declarations",
        evidence="S",
    ),
    rule(
        "tools-mixed",
        _check_tools_mixed,
        "Tool use with function calling is unsupported",
        evidence="S",
        models="that take functions only by themselves",
    ),
    rule(
        "tools-mixed-shown",
        _check_tools_mixed_shown,
        "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function"
        " calling.",
        evidence="K",
        models="that take functions beside the provider's own tools",
    ),
    rule(
        "tools-shaped",
        _check_tools_shaped,
        "Function calling with a response mime type: 'application/json' is unsupported",
        evidence="S",
        models="that take functions only by themselves",
    ),
    refuse(
        "cached-again",
        "",
        _repeats_cached,
        "CachedContent can not be used with GenerateContent request setting system_instruction, tools or"
        " tool_config.\n\nProposed fix: move those values to CachedContent from GenerateContent request.",
        evidence="S",
    ),
)

"""Tools a model can call, made from functions, types, raw JSON Schema or programs; `@tool` is the usual one.

Start with function/function_tool.py, then schema/builder.py (types to schemas and back) and
function/invoker.py (how a function is called).  Importing the package loads nothing; a name is loaded at its first use.

Does not belong here: anything about providers, runs or logs.  A tool takes arguments and returns parts.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle.ports.tool_index import ToolIndex as ToolIndex
    from bridle.tools.external import ExternalTool as ExternalTool
    from bridle.tools.external import external_tool as external_tool
    from bridle.tools.function.function_tool import FunctionTool as FunctionTool
    from bridle.tools.function.function_tool import tool as tool
    from bridle.tools.function.options import ToolOptions as ToolOptions
    from bridle.tools.function.raw_tool import RawTool as RawTool
    from bridle.tools.function.threads import limit_threads as limit_threads
    from bridle.tools.function.typed_tool import TypedTool as TypedTool
    from bridle.tools.process.command_tool import CommandTool as CommandTool
    from bridle.tools.process.run_process import ProcessResult as ProcessResult
    from bridle.tools.process.run_process import run_process as run_process
    from bridle.tools.schema.output_type import OutputType as OutputType
    from bridle.tools.schema.output_type import make_output_type as make_output_type
    from bridle.values.request import ToolSpec

_WHERE = {
    "ToolSpec": "bridle.values.request",
    "tool": "bridle.tools.function.function_tool",
    "make_output_type": "bridle.tools.schema.output_type",
    "OutputType": "bridle.tools.schema.output_type",
    "FunctionTool": "bridle.tools.function.function_tool",
    "CommandTool": "bridle.tools.process.command_tool",
    "ExternalTool": "bridle.tools.external",
    "ProcessResult": "bridle.tools.process.run_process",
    "RawTool": "bridle.tools.function.raw_tool",
    "ToolIndex": "bridle.ports.tool_index",
    "ToolOptions": "bridle.tools.function.options",
    "TypedTool": "bridle.tools.function.typed_tool",
    "external_tool": "bridle.tools.external",
    "limit_threads": "bridle.tools.function.threads",
    "run_process": "bridle.tools.process.run_process",
}

__all__ = [
    "CommandTool",
    "ExternalTool",
    "FunctionTool",
    "OutputType",
    "ProcessResult",
    "RawTool",
    "ToolIndex",
    "ToolOptions",
    "ToolSpec",
    "TypedTool",
    "external_tool",
    "limit_threads",
    "make_output_type",
    "run_process",
    "tool",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_WHERE[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

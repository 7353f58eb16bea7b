"""Tools a model can call, made from functions, types, raw JSON Schema or programs.

Start with function/function_tool.py, then schema/builder.py (types to schemas and back) and
function/invoker.py (how a function is called).  Importing the package loads nothing; a name is loaded at its first use.

Does not belong here: anything about providers, runs or logs.  A tool takes arguments and returns parts.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .function.function_tool import FunctionTool as FunctionTool
    from .function.function_tool import tool as tool
    from .function.raw_tool import RawTool as RawTool
    from .function.typed_tool import TypedTool as TypedTool
    from .process.command_tool import CommandTool as CommandTool
    from .process.run_process import ProcessResult as ProcessResult
    from .process.run_process import run_process as run_process
    from .schema.output_type import OutputType as OutputType
    from .schema.output_type import make_output_type as make_output_type

_WHERE = {
    "CommandTool": "process.command_tool",
    "FunctionTool": "function.function_tool",
    "OutputType": "schema.output_type",
    "ProcessResult": "process.run_process",
    "RawTool": "function.raw_tool",
    "TypedTool": "function.typed_tool",
    "make_output_type": "schema.output_type",
    "run_process": "process.run_process",
    "tool": "function.function_tool",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)

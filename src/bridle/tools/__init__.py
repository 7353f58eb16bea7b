"""Tools a model can call, made from functions, types, raw JSON Schema or programs.

Start with function/function_tool.py, then schema/builder.py (types to schemas and back) and
function/invoker.py (how a function is called).

Does not belong here: anything about providers, runs or logs.  A tool takes arguments and returns parts.
"""

from bridle.tools.function.function_tool import FunctionTool as FunctionTool
from bridle.tools.function.function_tool import tool as tool
from bridle.tools.function.raw_tool import RawTool as RawTool
from bridle.tools.function.typed_tool import TypedTool as TypedTool
from bridle.tools.process.command_tool import CommandTool as CommandTool
from bridle.tools.process.run_process import ProcessResult as ProcessResult
from bridle.tools.process.run_process import run_process as run_process
from bridle.tools.schema.output_type import OutputType as OutputType
from bridle.tools.schema.output_type import make_output_type as make_output_type

from .collect_tools import collect_tools as collect_tools

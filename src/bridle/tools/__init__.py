"""Things a model can call: from functions, from types, from raw JSON Schema, from programs.

Read `function.py` first, then `schema.py` (types to schemas and back) and `body.py` (how
a function is run).  Nothing here knows a provider, a run or a log: a tool is given
arguments and returns parts.
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

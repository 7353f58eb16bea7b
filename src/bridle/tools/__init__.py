"""Things a model can call: from functions, from types, from raw JSON Schema, from programs.

Read `function.py` first, then `schema.py` (types to schemas and back) and `body.py` (how
a function is run).  Nothing here knows a provider, a run or a log: a tool is given
arguments and returns parts.
"""

from .collect import collect as collect
from .command import CommandTool as CommandTool
from .function import FunctionTool as FunctionTool
from .function import tool as tool
from .output import OutputType as OutputType
from .output import output_type as output_type
from .process import ProcessResult as ProcessResult
from .process import run_process as run_process
from .raw import RawTool as RawTool
from .typed import TypedTool as TypedTool

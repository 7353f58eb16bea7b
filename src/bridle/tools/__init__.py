"""Things a model can call: from functions, from types, from raw JSON Schema.

Read `function.py` first, then `schema.py` (types to schemas and back) and `body.py` (how
a function is run).  Nothing here knows a provider, a run or a log: a tool is given
arguments and returns parts.
"""

from .collect import collect as collect
from .function import FunctionTool as FunctionTool
from .function import tool as tool
from .output import OutputType as OutputType
from .output import output_type as output_type
from .raw import RawTool as RawTool
from .typed import TypedTool as TypedTool

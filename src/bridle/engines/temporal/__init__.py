"""The loop on Temporal: `TemporalEngine` starts runs, its worker performs them; docs/temporal.md."""

from bridle.engines.parts import ToolPlacement as ToolPlacement

from .connection import connect_temporal as connect_temporal
from .connection import wait_for_callbacks as wait_for_callbacks
from .engine import EngineRun as EngineRun
from .engine import TemporalEngine as TemporalEngine
from .engine import check_shared_store as check_shared_store
from .worker import EngineWorker as EngineWorker
from .workflow import WorkflowLimits as WorkflowLimits

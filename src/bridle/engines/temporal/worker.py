"""A worker: performs the runs of agents, on the queue of the engine and on a queue of its own."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig

from bridle.engines.parts import PartRunner

from .activities import RunActivities
from .workflow import RunWorkflow

STICKY_SECONDS = 2.0
"""Time after which another worker gets a workflow whose worker does not answer."""


class EngineWorker:
    """Serves until it is stopped: `await worker.run()`, or as a context manager.

    On shutdown, parts in progress get `shutdown_seconds` to end; the others are continued by other workers.
    """

    def __init__(
        self,
        runners: Mapping[str, PartRunner[Any]],
        client: Client,
        task_queue: str,
        *,
        queues: Sequence[str] = (),
        parts_at_once: int = 100,
        shutdown_seconds: float = 30.0,
        deployment: str = "",
        build_id: str = "",
    ) -> None:
        """`queues` are those of tools (`ToolPlacement.queue`) that this worker serves too."""
        own = f"{task_queue}/{uuid4().hex[:12]}"
        activities = RunActivities(runners, own).functions
        shared: dict[str, Any] = {
            "activities": activities,
            "max_concurrent_activities": parts_at_once,
            "graceful_shutdown_timeout": timedelta(seconds=shutdown_seconds),
            "max_heartbeat_throttle_interval": timedelta(seconds=2),
            "default_heartbeat_throttle_interval": timedelta(seconds=2),
        }
        versioning: dict[str, Any] = {}
        if build_id:
            versioning["deployment_config"] = WorkerDeploymentConfig(
                version=WorkerDeploymentVersion(deployment or task_queue, build_id),
                use_worker_versioning=True,
                default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE,
            )
        main = Worker(
            client,
            task_queue=task_queue,
            workflows=[RunWorkflow],
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=STICKY_SECONDS),
            **shared,
            **versioning,
        )
        others = [Worker(client, task_queue=queue, **shared) for queue in (own, *queues)]
        self._workers, self._stop = (main, *others), asyncio.Event()

    async def run(self, report: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop` is called; calls `report` once it is ready."""
        async with self:
            report()
            await self._stop.wait()

    def stop(self) -> None:
        self._stop.set()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for worker in self._workers:
                await stack.enter_async_context(worker)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

"""One run of Pydantic AI's Temporal integration, in an environment of its own; started by temporal_steps.py.

    python bench/temporal_pydantic_ai.py HOST URL [continue]

The last line is JSON. `continue` gives it the handler that it offers for long runs: the workflow starts again with the
messages so far when the server suggests it.
"""

import asyncio
import json
import sys
import time

from pydantic_ai import Agent, ModelMessage
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.usage import UsageLimits
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

HOST, URL, *MODE = sys.argv[1:]
SECONDS_MAX = 300


def go_on(context):
    workflow.continue_as_new(args=[context.messages])


model = AnthropicModel("claude-sonnet-5-5", provider=AnthropicProvider(base_url=URL, api_key="sim"))
agent = Agent(
    model, name="long", model_settings={"max_tokens": 16_000},
    capabilities=[TemporalDurability(continue_as_new=go_on if MODE == ["continue"] else None)],
)  # fmt: skip


@agent.tool_plain
def look(at: int) -> str:
    """Look."""
    return f"place {at} is fine"


@workflow.defn
class Long(PydanticAIWorkflow):
    __pydantic_ai_agents__ = (agent,)

    @workflow.run
    async def run(self, messages: list[ModelMessage] | None) -> str:
        limits = UsageLimits(request_limit=None)
        prompt = None if messages else "Go."
        return (await agent.run(prompt, message_history=messages, usage_limits=limits)).output


async def main() -> None:
    client = await Client.connect(HOST, plugins=[PydanticAIPlugin()])
    stop = "done"
    async with Worker(client, task_queue="peer", workflows=[Long]):
        began, cpu = time.monotonic(), time.process_time()
        handle = await client.start_workflow(Long.run, None, id=f"peer-{time.time_ns()}", task_queue="peer")
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await handle.result()
        except WorkflowFailureError as error:
            stop = f"{type(error.cause).__name__}: {error.cause}"[:200]
        except TimeoutError:
            stop = f"no end after {SECONDS_MAX} s"
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        infos, calls = [], 0
        run_id = handle.first_execution_run_id
        while run_id:
            part = client.get_workflow_handle(handle.id, run_id=run_id)
            infos.append((await part.describe()).raw_description.workflow_execution_info)
            run_id, names = "", {}
            async for event in part.fetch_history_events():
                scheduled = event.activity_task_scheduled_event_attributes
                names[event.event_id] = scheduled.activity_type.name
                done = event.activity_task_completed_event_attributes.scheduled_event_id
                calls += "model_request" in names.get(done, "")
                if failure := event.workflow_task_failed_event_attributes.failure.message:
                    stop = f"{stop}; {failure}"[:200]
                run_id = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    sizes = [info.history_size_bytes for info in infos]
    print(json.dumps({
        "stop": stop, "steps": calls, "seconds": took, "cpu_seconds": cpu, "workflow_runs": len(infos),
        "history_bytes": sum(sizes), "largest_history_bytes": max(sizes),
    }))  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main())

from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter
from pydantic_ai import Agent, AgentRunResultEvent, AgentStreamEvent

app = FastAPI()
agent = Agent("openai:gpt-6.1-sol")
adapter = TypeAdapter(AgentStreamEvent)


async def frames(prompt: str) -> AsyncIterator[str]:
    async with agent.run_stream_events(prompt) as events:
        async for event in events:
            if not isinstance(event, AgentRunResultEvent):
                yield f"event: {event.event_kind}\ndata: {adapter.dump_json(event).decode()}\n\n"


@app.get("/ask")
async def ask(prompt: str) -> StreamingResponse:
    return StreamingResponse(frames(prompt), media_type="text/event-stream")

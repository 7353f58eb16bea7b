from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from bridle import Agent, to_sse

app = FastAPI()
agent = Agent("openai:gpt-6.1-sol")


@app.get("/ask")
async def ask(prompt: str) -> StreamingResponse:
    frames = (to_sse(event) async for event in agent.stream(prompt))
    return StreamingResponse(frames, media_type="text/event-stream")

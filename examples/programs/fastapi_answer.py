from fastapi import FastAPI

from bridle import Agent, Result

app = FastAPI()
agent = Agent("openai:gpt-6.1-sol")


@app.get("/answer")
async def answer(prompt: str) -> Result:
    return await agent.run(prompt)

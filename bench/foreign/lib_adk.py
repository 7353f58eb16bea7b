"""google-adk: its runner with its own Gemini model, two turns in one session."""

import uuid

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.google_llm import Gemini
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from task import SCRIPTS, URL, look, model_for, run_columns


async def run(feature, wire, streamed):
    model = Gemini(model=model_for(feature, wire), base_url=URL)
    agent = LlmAgent(name="scout", model=model, tools=[look])
    sessions = InMemorySessionService()
    runner = Runner(app_name="foreign", agent=agent, session_service=sessions)
    name = uuid.uuid4().hex
    await sessions.create_session(app_name="foreign", user_id="u", session_id=name)
    config = RunConfig(streaming_mode=StreamingMode.SSE if streamed else StreamingMode.NONE)
    answers = []
    for prompt in (SCRIPTS[feature], "!say Still Rome."):
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        said = ""
        async for event in runner.run_async(
            user_id="u", session_id=name, new_message=message, run_config=config
        ):
            if event.is_final_response() and event.content:
                said = "".join(part.text or "" for part in event.content.parts if not part.thought)
        answers.append(said)
    return answers


run_columns(run)

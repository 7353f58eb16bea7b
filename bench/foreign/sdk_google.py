"""The google-genai SDK: chats, automatic function calling, response schemas."""

import pydantic
from google import genai
from task import KEY, SCRIPTS, URL, look, model_for, run_columns

client = genai.Client(api_key=KEY, http_options={"base_url": URL})


class Answer(pydantic.BaseModel):
    city: str
    sunny: bool


def run(feature, wire, streamed):
    config = {"tools": [look]}
    if feature == "only-shape":
        config = {"response_mime_type": "application/json", "response_schema": Answer}
    if feature == "shape":
        config |= {"response_mime_type": "application/json", "response_schema": Answer}
    if feature == "thinking":
        config["thinking_config"] = {"include_thoughts": True}
    chat = client.chats.create(model=model_for(feature, wire), config=config)
    prompt = SCRIPTS["tools" if feature == "chats" else feature]
    said = send(chat, prompt, streamed)
    if feature == "chats":  # a second turn: what the chat kept must be good enough to go on
        return [said, send(chat, "!say Still Rome.", streamed)]
    return Answer.model_validate_json(said).model_dump() if "response_schema" in config else said


def send(chat, prompt, streamed):
    if not streamed:
        return chat.send_message(prompt).text
    pieces = [piece.text or "" for piece in chat.send_message_stream(prompt)]
    return "".join(pieces).removeprefix("Let me look.")


run_columns(run)

"""A web page that shows an agent's answer as it arrives, on plain ASGI: no framework.

    pip install uvicorn
    uvicorn examples.web_stream:app

Then open http://127.0.0.1:8000, or `curl -N "http://127.0.0.1:8000/ask?prompt=What+is+17*23"`.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from bridle import Agent, to_sse, tool

Message = MutableMapping[str, Any]
PAGE = b"""<!doctype html><meta charset="utf-8"><title>Agent</title>
<form><input name="prompt" size="60" value="Is it warmer in Tokyo or New York?"><button>Ask</button></form>
<pre id="answer"></pre>
<script>
const answer = document.getElementById("answer");
document.forms[0].onsubmit = (submit) => {
  submit.preventDefault();
  answer.textContent = "";
  const events = new EventSource("/ask?" + new URLSearchParams(new FormData(submit.target)));
  events.addEventListener("text_delta", (e) => { answer.textContent += JSON.parse(e.data).text; });
  events.addEventListener("tool_started", (e) => {
    const call = JSON.parse(e.data);
    answer.textContent += `\\n[${call.name}]\\n`;
  });
  events.addEventListener("final_answer", () => events.close());
};
</script>
"""


@tool(effect="read")
def get_weather(city: str) -> str:
    """Current weather for a city."""
    return {"Tokyo": "24 °C, clear", "New York": "17 °C, rain"}.get(city, "no data")


agent = Agent("sim:", tools=[get_weather])


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] != "http":
        return
    is_ask = scope["path"] == "/ask"
    media_type = b"text/event-stream" if is_ask else b"text/html; charset=utf-8"
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-type", media_type), (b"cache-control", b"no-store")],
        }
    )
    if not is_ask:
        await send({"type": "http.response.body", "body": PAGE})
        return
    prompt = parse_qs(scope["query_string"].decode()).get("prompt", ["Hello"])[0]
    async for event in agent.stream(prompt):  # ends when the browser leaves: the server cancels this task
        if frame := to_sse(event):  # empty for what stays on the server: settings, results, whole replies
            await send({"type": "http.response.body", "body": frame.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})

"""Requests of each wire as its clients write them: tools, calls, results, without a client library."""

import json

from tests.serve.raw_http import send

SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}}


class ChatWire:
    """Chat Completions."""

    path = "/openai/v1/chat/completions"

    def user(self, text):
        return {"role": "user", "content": text}

    def tool(self, name):
        return {
            "type": "function",
            "function": {"name": name, "description": f"Tool {name}.", "parameters": SCHEMA},
        }

    def with_tools(self, names):
        return {"tools": [self.tool(name) for name in names]} if names else {}

    def body(self, messages, stream):
        return {"model": "helper", "messages": messages, "stream": stream}

    def read(self, reply):
        message = reply["choices"][0]["message"]
        calls = [(call["id"], call["function"]["name"]) for call in message.get("tool_calls") or ()]
        return [message], calls, message.get("content") or ""

    def results(self, calls):
        return [{"role": "tool", "tool_call_id": each, "content": f"from {name}"} for each, name in calls]


class ResponsesWire(ChatWire):
    """Responses."""

    path = "/openai/v1/responses"

    def tool(self, name):
        described = {"name": name, "description": f"Tool {name}.", "parameters": SCHEMA}
        return {"type": "function", **described, "strict": False}

    def body(self, messages, stream):
        return {"model": "helper", "input": messages, "stream": stream}

    def read(self, reply):
        calls = [
            (item["call_id"], item["name"]) for item in reply["output"] if item["type"] == "function_call"
        ]
        texts = [
            part["text"] for item in reply["output"] if item["type"] == "message" for part in item["content"]
        ]
        return reply["output"], calls, "".join(texts)

    def results(self, calls):
        return [
            {"type": "function_call_output", "call_id": each, "output": f"from {name}"}
            for each, name in calls
        ]


class MessagesWire(ChatWire):
    """Anthropic's Messages."""

    path = "/anthropic/v1/messages"

    def tool(self, name):
        return {"name": name, "description": f"Tool {name}.", "input_schema": SCHEMA}

    def body(self, messages, stream):
        return {"model": "helper", "max_tokens": 1000, "messages": messages, "stream": stream}

    def read(self, reply):
        blocks = reply["content"]
        calls = [(block["id"], block["name"]) for block in blocks if block["type"] == "tool_use"]
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        return [{"role": "assistant", "content": blocks}], calls, "".join(texts)

    def results(self, calls):
        blocks = [
            {"type": "tool_result", "tool_use_id": each, "content": f"from {name}"} for each, name in calls
        ]
        return [{"role": "user", "content": blocks}]


class GeminiWire(ChatWire):
    """Gemini's generateContent."""

    path = "/gemini/v1beta/models/helper:generateContent"

    def user(self, text):
        return {"role": "user", "parts": [{"text": text}]}

    def with_tools(self, names):
        declared = [
            {"name": name, "description": f"Tool {name}.", "parametersJsonSchema": SCHEMA} for name in names
        ]
        return {"tools": [{"functionDeclarations": declared}]} if names else {}

    def body(self, messages, stream):
        return {"contents": messages}

    def read(self, reply):
        content = reply["candidates"][0]["content"]
        parts = content["parts"]
        calls = [
            (part["functionCall"].get("id", ""), part["functionCall"]["name"])
            for part in parts
            if "functionCall" in part
        ]
        return [content], calls, "".join(part.get("text", "") for part in parts)

    def results(self, calls):
        parts = [
            {
                "functionResponse": {
                    "name": name,
                    "response": {"output": f"from {name}"},
                    **({"id": each} if each else {}),
                }
            }
            for each, name in calls
        ]
        return [{"role": "user", "parts": parts}]


WIRES = {
    "openai_chat": ChatWire(),
    "openai_responses": ResponsesWire(),
    "anthropic": MessagesWire(),
    "gemini": GeminiWire(),
}


def post(served, wire, messages, names=(), more=None):
    """Send a request; `names` are the client's tools."""
    body = {**wire.body(messages, False), **wire.with_tools(names), **(more or {})}
    return send(served.url + wire.path, json.dumps(body).encode())

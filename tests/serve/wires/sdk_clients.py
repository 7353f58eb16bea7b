"""The vendors' SDKs as clients of a served agent: each holds a conversation with tools and streams every answer."""

import json
from contextlib import suppress

TOOL = "confirm"
ABOUT = "Asks the user."
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


class Answer:
    """One answer of the served agent, as an SDK has read it."""

    def __init__(self, text, calls, usage, pieces, stop):
        self.text, self.calls, self.usage, self.pieces, self.stop = text, calls, usage, pieces, stop


class ChatClient:
    """openai, Chat Completions."""

    def __init__(self, url, key="k"):
        import openai

        self.errors = openai.APIStatusError
        self.client = openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key, max_retries=0)
        self.messages = [{"role": "system", "content": "You are kind."}]

    def list_models(self):
        return [model.id for model in self.client.models.list().data]

    def say(self, text):
        self.messages.append({"role": "user", "content": text})

    def give(self, results):
        self.messages += [
            {"role": "tool", "tool_call_id": key, "content": text} for key, text in results.items()
        ]

    def _given(self, more):
        tool = {"type": "function", "function": {"name": TOOL, "description": ABOUT, "parameters": SCHEMA}}
        return {"model": "helper", "messages": self.messages, "tools": [tool], **more}

    def ask(self, stream=True, **more):
        pieces = []
        if stream:
            options = {"stream_options": {"include_usage": True}}
            with self.client.chat.completions.stream(**self._given({**options, **more})) as events:
                pieces += [event.delta for event in events if event.type == "content.delta" and event.delta]
                done = events.get_final_completion()
        else:
            done = self.client.chat.completions.create(**self._given(more))
        said = done.choices[0].message
        self.messages.append(said.to_dict())
        calls = {
            call.id: (call.function.name, json.loads(call.function.arguments))
            for call in said.tool_calls or ()
        }
        usage = done.usage.prompt_tokens, done.usage.completion_tokens
        return Answer(said.content or "", calls, usage, pieces, done.choices[0].finish_reason)

    def begin(self):
        """Read the first piece of an answer, then go away."""
        stream = self.client.chat.completions.create(**self._given({"stream": True}))
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                break
        stream.close()


class ResponsesClient:
    """openai, Responses."""

    chains = False

    def __init__(self, url, key="k"):
        import openai

        self.errors = openai.APIStatusError
        self.client = openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key, max_retries=0)
        self.messages, self.previous = [], None

    def list_models(self):
        return [model.id for model in self.client.models.list().data]

    def say(self, text):
        self.messages.append({"role": "user", "content": text})

    def give(self, results):
        self.messages += [
            {"type": "function_call_output", "call_id": key, "output": text} for key, text in results.items()
        ]

    def _given(self, more):
        tool = {"type": "function", "name": TOOL, "description": ABOUT, "parameters": SCHEMA, "strict": False}
        chained = {"previous_response_id": self.previous} if self.chains and self.previous else {}
        return {
            "model": "helper", "input": self.messages, "tools": [tool], "instructions": "You are kind.", **chained, **more
        }  # fmt: skip

    def ask(self, stream=True, **more):
        pieces = []
        if stream:
            with self.client.responses.stream(**self._given(more)) as events:
                pieces += [event.delta for event in events if event.type == "response.output_text.delta"]
                done = events.get_final_response()
        else:
            done = self.client.responses.create(**self._given(more))
        self.previous = done.id
        self.messages = [] if self.chains else [*self.messages, *(item.to_dict() for item in done.output)]
        calls = {
            item.call_id: (item.name, json.loads(item.arguments))
            for item in done.output
            if item.type == "function_call"
        }
        usage = done.usage.input_tokens, done.usage.output_tokens
        return Answer(done.output_text, calls, usage, pieces, done.status)

    def begin(self):
        stream = self.client.responses.create(**self._given({"stream": True}))
        for event in stream:
            if event.type == "response.output_text.delta":
                break
        stream.close()


class ChainedResponsesClient(ResponsesClient):
    """The same with `previous_response_id`: only what is new is sent."""

    chains = True


class AnthropicClient:
    """anthropic, Messages."""

    def __init__(self, url, key="k"):
        import anthropic

        self.errors = anthropic.APIStatusError
        self.client = anthropic.Anthropic(base_url=f"{url}/anthropic", api_key=key, max_retries=0)
        self.messages = []

    def list_models(self):
        return [model.id for model in self.client.models.list().data]

    def say(self, text):
        self.messages.append({"role": "user", "content": text})

    def give(self, results):
        blocks = [
            {"type": "tool_result", "tool_use_id": key, "content": text} for key, text in results.items()
        ]
        self.messages.append({"role": "user", "content": blocks})

    def _given(self, more):
        tool = {"name": TOOL, "description": ABOUT, "input_schema": SCHEMA}
        return {
            "model": "helper", "messages": self.messages, "tools": [tool], "system": "You are kind.",
            "max_tokens": 1_000, **more,
        }  # fmt: skip

    def ask(self, stream=True, **more):
        pieces = []
        if stream:
            with self.client.messages.stream(**self._given(more)) as events:
                pieces += list(events.text_stream)
                done = events.get_final_message()
        else:
            done = self.client.messages.create(**self._given(more))
        self.messages.append({"role": "assistant", "content": [block.to_dict() for block in done.content]})
        text = "".join(block.text for block in done.content if block.type == "text")
        calls = {block.id: (block.name, block.input) for block in done.content if block.type == "tool_use"}
        used = done.usage
        read = (
            used.input_tokens + (used.cache_read_input_tokens or 0) + (used.cache_creation_input_tokens or 0)
        )
        return Answer(text, calls, (read, used.output_tokens), pieces, done.stop_reason)

    def begin(self):
        with self.client.messages.stream(**self._given({})) as events:
            next(iter(events.text_stream))


class GeminiClient:
    """google-genai."""

    def __init__(self, url, key="k"):
        from google import genai
        from google.genai import errors, types

        self.errors, self.types = errors.APIError, types
        self.client = genai.Client(api_key=key, http_options=types.HttpOptions(base_url=f"{url}/gemini"))
        self.messages, self.calls = [], {}

    def list_models(self):
        return [model.name.removeprefix("models/") for model in self.client.models.list()]

    def say(self, text):
        self.messages.append(self.types.Content(role="user", parts=[self.types.Part(text=text)]))

    def give(self, results):
        parts = [
            self.types.Part(
                function_response=self.types.FunctionResponse(
                    id=key, name=self.calls[key][0], response={"output": text}
                )
            )
            for key, text in results.items()
        ]
        self.messages.append(self.types.Content(role="user", parts=parts))

    def _given(self, more):
        declared = self.types.FunctionDeclaration(name=TOOL, description=ABOUT, parameters_json_schema=SCHEMA)
        config = self.types.GenerateContentConfig(
            tools=[self.types.Tool(function_declarations=[declared])],
            system_instruction="You are kind.",
            automatic_function_calling=self.types.AutomaticFunctionCallingConfig(disable=True),
            **more,
        )
        return {"model": "helper", "contents": self.messages, "config": config}

    def ask(self, stream=True, **more):
        given = self._given(more)
        chunks = (
            [*self.client.models.generate_content_stream(**given)]
            if stream
            else [self.client.models.generate_content(**given)]
        )
        parts = [part for chunk in chunks for part in (chunk.candidates[0].content.parts or ())]
        pieces = [part.text for part in parts if part.text and not part.thought]
        self.messages.append(self.types.Content(role="model", parts=parts))
        found = [part.function_call for part in parts if part.function_call]
        self.calls = {call.id: (call.name, dict(call.args)) for call in found}
        last = chunks[-1]
        usage = last.usage_metadata.prompt_token_count, last.usage_metadata.candidates_token_count or 0
        stop = last.candidates[0].finish_reason.value
        return Answer("".join(pieces), self.calls, usage, pieces if stream else [], stop)

    def begin(self):
        stream = self.client.models.generate_content_stream(**self._given({}))
        for chunk in stream:
            if chunk.text:
                break
        with suppress(RuntimeError):
            stream.close()


CLIENTS = (ChatClient, ResponsesClient, ChainedResponsesClient, AnthropicClient, GeminiClient)

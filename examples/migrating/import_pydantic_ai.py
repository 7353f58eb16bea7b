"""Messages of Pydantic AI as a Chat Completions list, which `import_history("openai-chat", …)` reads."""

from collections.abc import Iterable, Iterator

from pydantic_ai import ModelMessage


def to_chat(messages: Iterable[ModelMessage]) -> Iterator[dict]:
    for number, message in enumerate(messages):
        if message.kind == "response":
            calls = [
                {
                    "id": part.tool_call_id,
                    "type": "function",
                    "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
                }
                for part in message.parts
                if part.part_kind == "tool-call"
            ]
            text = "".join(part.content for part in message.parts if part.part_kind == "text")
            yield {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
            continue
        if message.instructions and number == 0:
            yield {"role": "system", "content": message.instructions}
        for part in message.parts:
            match part.part_kind:
                case "system-prompt":
                    yield {"role": "system", "content": part.content}
                case "user-prompt":
                    yield {"role": "user", "content": part.content}
                case "tool-return":
                    content = part.model_response_str()
                    yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}

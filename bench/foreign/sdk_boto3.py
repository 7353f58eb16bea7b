"""boto3 with Converse: tools, thinking, structured output, streamed and whole."""

import json

import boto3
from task import SCHEMA, SCRIPTS, URL, look, model_for, run_columns

client = boto3.client("bedrock-runtime", endpoint_url=URL)
TOOLS = {"tools": [{"toolSpec": {"name": "look", "description": "Look.", "inputSchema": {"json": SCHEMA}}}]}
SHAPE = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "sunny": {"type": "boolean"}},
    "required": ["city", "sunny"],
    "additionalProperties": False,
}


def run(feature, wire, streamed):
    asked = {"modelId": model_for(feature, wire), "toolConfig": TOOLS}
    if feature == "thinking":
        thinking = {"type": "enabled", "budget_tokens": 2000}
        asked |= {
            "additionalModelRequestFields": {"thinking": thinking},
            "inferenceConfig": {"maxTokens": 4000},
        }
    if feature == "shape":
        schema = {"jsonSchema": {"schema": json.dumps(SHAPE), "name": "answer"}}
        asked["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": schema}}
    messages = [{"role": "user", "content": [{"text": SCRIPTS[feature]}]}]
    while True:
        if streamed:
            content = collect_blocks(client.converse_stream(**asked, messages=messages)["stream"])
        else:
            content = client.converse(**asked, messages=messages)["output"]["message"]["content"]
        messages.append({"role": "assistant", "content": content})
        calls = [block["toolUse"] for block in content if "toolUse" in block]
        if not calls:
            said = content[-1]["text"]
            return json.loads(said) if feature == "shape" else said
        results = [
            {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": look(**call["input"])}]}}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})


def collect_blocks(events):
    """Put the blocks of a stream together again."""
    blocks, inputs = {}, {}
    for event in events:
        if start := event.get("contentBlockStart"):
            blocks[start["contentBlockIndex"]] = {"toolUse": dict(start["start"]["toolUse"])}
        elif piece := event.get("contentBlockDelta"):
            index, delta = piece["contentBlockIndex"], piece["delta"]
            if "toolUse" in delta:
                inputs[index] = inputs.get(index, "") + delta["toolUse"]["input"]
            elif "reasoningContent" in delta:
                block = blocks.setdefault(index, {"reasoningContent": {"reasoningText": {"text": ""}}})
                thought = block["reasoningContent"]["reasoningText"]
                for key, value in delta["reasoningContent"].items():
                    thought[key] = thought.get(key, "") + value
            else:
                blocks.setdefault(index, {"text": ""})["text"] += delta["text"]
    for index, text in inputs.items():
        blocks[index]["toolUse"]["input"] = json.loads(text)
    return [blocks[index] for index in sorted(blocks)]


run_columns(run)

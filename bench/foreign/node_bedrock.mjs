// The AWS SDK with Converse, which asks in HTTP/2: tools, thinking, structured output, streamed and whole.

import { BedrockRuntimeClient, ConverseCommand, ConverseStreamCommand } from "@aws-sdk/client-bedrock-runtime";
import { KEY, PARAMETERS, SCRIPTS, URL_, look, modelFor, runColumns } from "./task.mjs";

const credentials = { accessKeyId: KEY, secretAccessKey: KEY };
const client = new BedrockRuntimeClient({ endpoint: URL_, region: "us-east-1", credentials, maxAttempts: 1 });
const toolSpec = { name: "look", description: "Look.", inputSchema: { json: PARAMETERS } };
const SHAPE = JSON.stringify({
  type: "object",
  properties: { city: { type: "string" }, sunny: { type: "boolean" } },
  required: ["city", "sunny"],
  additionalProperties: false,
});

/** Put the blocks of a stream together again. */
async function collect(stream) {
  const blocks = [];
  for await (const { contentBlockStart: start, contentBlockDelta: piece } of stream) {
    if (start) blocks[start.contentBlockIndex] = { toolUse: { ...start.start.toolUse, input: "" } };
    if (!piece) continue;
    const { contentBlockIndex: at, delta } = piece;
    if (delta.toolUse) blocks[at].toolUse.input += delta.toolUse.input;
    else if (delta.reasoningContent) {
      blocks[at] ??= { reasoningContent: { reasoningText: { text: "" } } };
      const thought = blocks[at].reasoningContent.reasoningText;
      for (const [name, text] of Object.entries(delta.reasoningContent)) thought[name] = (thought[name] ?? "") + text;
    } else blocks[at] = { text: (blocks[at]?.text ?? "") + delta.text };
  }
  for (const block of blocks) if (block.toolUse) block.toolUse.input = JSON.parse(block.toolUse.input || "{}");
  return blocks;
}

await runColumns(async (feature, wire, streamed) => {
  const asked = { modelId: modelFor(feature, wire), toolConfig: { tools: [{ toolSpec }] } };
  if (feature === "thinking") {
    asked.additionalModelRequestFields = { thinking: { type: "enabled", budget_tokens: 2000 } };
    asked.inferenceConfig = { maxTokens: 4000 };
  }
  if (feature === "shape") {
    asked.outputConfig = { textFormat: { type: "json_schema", structure: { jsonSchema: { schema: SHAPE, name: "answer" } } } };
  }
  const messages = [{ role: "user", content: [{ text: SCRIPTS[feature] }] }];
  for (;;) {
    const Command = streamed ? ConverseStreamCommand : ConverseCommand;
    const reply = await client.send(new Command({ ...asked, messages }));
    const content = streamed ? await collect(reply.stream) : reply.output.message.content;
    messages.push({ role: "assistant", content });
    const calls = content.filter((block) => block.toolUse).map((block) => block.toolUse);
    if (calls.length === 0) {
      const said = content.at(-1).text;
      return feature === "shape" ? JSON.parse(said) : said;
    }
    const results = calls.map(({ toolUseId, input }) => ({ toolResult: { toolUseId, content: [{ text: look(input) }] } }));
    messages.push({ role: "user", content: results });
  }
});

// @anthropic-ai/sdk: its tool runner and parse helper.

import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { KEY, SCRIPTS, URL_, look, modelFor, runColumns } from "./task.mjs";

const client = new Anthropic({ baseURL: URL_, apiKey: KEY, maxRetries: 0 });
const tool = betaZodTool({
  name: "look",
  description: "Look at a city.",
  inputSchema: z.object({ city: z.string() }),
  run: look,
});
const Answer = z.object({ city: z.string(), sunny: z.boolean() });

await runColumns(async (feature, wire, streamed) => {
  const asked = {
    model: modelFor(feature, wire),
    max_tokens: 4000,
    messages: [{ role: "user", content: SCRIPTS[feature] ?? SCRIPTS.tools }],
  };
  if (feature === "only-shape") {
    asked.output_config = { format: zodOutputFormat(Answer) };
    if (streamed) return (await client.messages.stream(asked).finalMessage()).parsed_output;
    return (await client.messages.parse(asked)).parsed_output;
  }
  if (feature === "thinking") asked.thinking = { type: "enabled", budget_tokens: 2000 };
  if (feature === "threadless") asked.thread = false;
  const runner = client.beta.messages.toolRunner({ ...asked, tools: [tool], stream: streamed });
  let last;
  for await (const item of runner) last = streamed ? await item.finalMessage() : item;
  return last.content.at(-1).text;
});

// @openai/agents: its runner on Responses and Chat, with a hand-off from one agent to another.

import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { KEY, SCRIPTS, URL_, look, modelFor, runColumns } from "./task.mjs";

setTracingDisabled(true);
const client = new OpenAI({ baseURL: `${URL_}/v1`, apiKey: KEY, maxRetries: 0 });
const lookTool = tool({
  name: "look",
  description: "Look at a city.",
  parameters: z.object({ city: z.string() }),
  execute: async (given) => look(given),
});

await runColumns(async (feature, wire, streamed) => {
  const kind = wire === "chat" ? OpenAIChatCompletionsModel : OpenAIResponsesModel;
  const model = new kind(client, modelFor(feature, wire));
  const worker = new Agent({ name: "billing", instructions: "You do bills.", model, tools: [lookTool] });
  const agent =
    feature === "handoff" ? new Agent({ name: "Triage", instructions: "You sort.", model, handoffs: [worker] }) : worker;
  const runner = new Runner({ tracingDisabled: true });
  if (!streamed) return (await runner.run(agent, SCRIPTS[feature])).finalOutput;
  const running = await runner.run(agent, SCRIPTS[feature], { stream: true });
  for await (const _ of running) continue;
  await running.completed;
  return running.finalOutput;
});

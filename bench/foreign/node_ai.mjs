// Vercel's AI SDK with its providers: tool loops, thinking, structured output.

import { createAmazonBedrock } from "@ai-sdk/amazon-bedrock";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { KEY, SCRIPTS, URL_, look, modelFor, runColumns } from "./task.mjs";

const openai = createOpenAI({ baseURL: `${URL_}/v1`, apiKey: KEY });
const WIRES = {
  messages: createAnthropic({ baseURL: `${URL_}/v1`, apiKey: KEY }),
  responses: openai.responses,
  chat: openai.chat,
  gemini: createGoogleGenerativeAI({ baseURL: `${URL_}/v1beta`, apiKey: KEY }),
  converse: createAmazonBedrock({ baseURL: URL_, region: "us-east-1", accessKeyId: KEY, secretAccessKey: KEY }),
};
const Answer = z.object({ city: z.string(), sunny: z.boolean() });

await runColumns(async (feature, wire, streamed) => {
  const asked = {
    model: WIRES[wire](modelFor(feature, wire)),
    stopWhen: stepCountIs(6),
    maxRetries: 0,
    maxOutputTokens: 4000,
    messages: [{ role: "user", content: SCRIPTS[feature] }],
    onError: () => {},
  };
  if (feature !== "only-shape") {
    asked.tools = { look: tool({ description: "Look.", inputSchema: z.object({ city: z.string() }), execute: look }) };
  }
  if (feature.endsWith("shape")) asked.output = Output.object({ schema: Answer });
  if (feature === "thinking") {
    asked.providerOptions = {
      anthropic: { thinking: { type: "enabled", budgetTokens: 2000 } },
      bedrock: { reasoningConfig: { type: "enabled", budgetTokens: 2000 } },
      google: { thinkingConfig: { includeThoughts: true } },
    };
  }
  const first = await once(asked, streamed);
  if (feature.endsWith("shape")) return first.output;
  asked.messages.push(...first.messages, { role: "user", content: "!say Still Rome." });
  return [first.text, (await once(asked, streamed)).text];
});

async function once(asked, streamed) {
  if (!streamed) {
    const done = await generateText(asked);
    return { text: done.text, messages: done.response.messages, output: asked.output && done.output };
  }
  let failure;
  const onError = ({ error }) => {
    failure = error;
  };
  const running = streamText({ ...asked, onError });
  await running.consumeStream();
  if (failure) throw failure;
  const output = asked.output && (await running.output);
  return { text: await running.text, messages: (await running.response).messages, output };
}

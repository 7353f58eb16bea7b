// openai (npm): its tool runner for Chat, its parse helpers on both wires.

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { KEY, PARAMETERS, SCRIPTS, URL_, look, modelFor, runColumns } from "./task.mjs";

const client = new OpenAI({ baseURL: `${URL_}/v1`, apiKey: KEY, maxRetries: 0 });
const Answer = z.object({ city: z.string(), sunny: z.boolean() });

async function runChat(feature, model, streamed) {
  const messages = [{ role: "user", content: SCRIPTS[feature] }];
  if (feature === "only-shape") {
    const asked = { model, messages, response_format: zodResponseFormat(Answer, "answer") };
    const done = streamed
      ? await client.chat.completions.stream(asked).finalChatCompletion()
      : await client.chat.completions.parse(asked);
    return done.choices[0].message.parsed;
  }
  const tools = [
    { type: "function", function: { function: look, parse: JSON.parse, name: "look", description: "Look.", parameters: PARAMETERS } },
  ];
  return client.chat.completions.runTools({ model, messages, tools, stream: streamed }).finalContent();
}

async function runResponses(feature, model, streamed) {
  const asked = { model };
  if (feature === "only-shape") asked.text = { format: zodTextFormat(Answer, "answer") };
  else asked.tools = [{ type: "function", name: "look", description: "Look.", parameters: PARAMETERS, strict: true }];
  let input = [{ role: "user", content: SCRIPTS[feature] }];
  for (;;) {
    const reply = streamed
      ? await client.responses.stream({ ...asked, input }).finalResponse()
      : await client.responses.parse({ ...asked, input });
    const calls = reply.output.filter((item) => item.type === "function_call");
    if (calls.length === 0) return feature === "only-shape" ? reply.output_parsed : reply.output_text;
    const results = calls.map((call) => ({
      type: "function_call_output",
      call_id: call.call_id,
      output: look(JSON.parse(call.arguments)),
    }));
    asked.previous_response_id = reply.id;
    input = results;
  }
}

await runColumns((feature, wire, streamed) =>
  (wire === "chat" ? runChat : runResponses)(feature, modelFor(feature, wire), streamed),
);

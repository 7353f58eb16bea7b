// @google/genai: chats with functions called by hand, automatic function calling, response schemas.

import { GoogleGenAI, Type } from "@google/genai";
import { KEY, PARAMETERS, SCRIPTS, URL_, look, modelFor, runColumns } from "./task.mjs";

const client = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: URL_ } });
const declaration = { name: "look", description: "Look at a city.", parametersJsonSchema: PARAMETERS };
const SHAPE = {
  type: Type.OBJECT,
  properties: { city: { type: Type.STRING }, sunny: { type: Type.BOOLEAN } },
  required: ["city", "sunny"],
};

async function send(chat, message, streamed) {
  if (!streamed) {
    const reply = await chat.sendMessage({ message });
    return { text: reply.text ?? "", calls: reply.functionCalls ?? [] };
  }
  let text = "";
  const calls = [];
  for await (const piece of await chat.sendMessageStream({ message })) {
    text += piece.text ?? "";
    calls.push(...(piece.functionCalls ?? []));
  }
  return { text, calls };
}

async function talk(chat, prompt, streamed) {
  let message = prompt;
  for (;;) {
    const { text, calls } = await send(chat, message, streamed);
    if (calls.length === 0) return text;
    message = calls.map((call) => ({
      functionResponse: { id: call.id, name: call.name, response: { output: look(call.args) } },
    }));
  }
}

const callable = {
  tool: async () => ({ functionDeclarations: [declaration] }),
  callTool: async (calls) =>
    calls.map((call) => ({ functionResponse: { id: call.id, name: call.name, response: { output: look(call.args) } } })),
};

await runColumns(async (feature, wire, streamed) => {
  const model = modelFor(feature, wire);
  if (feature === "tools") {
    const asked = { model, contents: SCRIPTS.tools, config: { tools: [callable] } };
    if (!streamed) return (await client.models.generateContent(asked)).text;
    let text = "";
    for await (const piece of await client.models.generateContentStream(asked)) text += piece.text ?? "";
    return text.replace(/^Let me look\./, "");
  }
  const config = feature === "only-shape" ? {} : { tools: [{ functionDeclarations: [declaration] }] };
  if (feature === "thinking") config.thinkingConfig = { includeThoughts: true };
  if (feature.endsWith("shape")) Object.assign(config, { responseMimeType: "application/json", responseSchema: SHAPE });
  const chat = client.chats.create({ model, config });
  const said = await talk(chat, SCRIPTS[feature], streamed);
  if (feature === "chats") return [said, await talk(chat, "!say Still Rome.", streamed)];
  return feature.endsWith("shape") ? JSON.parse(said) : said;
});

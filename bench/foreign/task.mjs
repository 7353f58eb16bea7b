// The same task for clients in JavaScript; see task.py.

export const URL_ = process.env.FOREIGN_URL ?? "http://127.0.0.1:8090";
export const KEY = "sim";
const OWN = process.env.FOREIGN_OWN_TOOL ? "Look at cities.\n!call own_clock {}\n!then\n" : "";
const CALLS =
  '!say Let me look.\n!call look {"city": "Oslo"}\n!call look {"city": "Rome"}\n!then\n!call look {"city": "Bonn"}\n!then\n!say Rome it is.';
const TOOLS = `${OWN}${CALLS}`;
const ANSWER = '{"city": "Rome", "sunny": true}';
export const SCRIPTS = {
  tools: TOOLS,
  chats: TOOLS,
  thinking: `!think I should look at two of them first.\n${TOOLS}`,
  handoff: `${OWN}!call transfer_to_billing {}\n!then\n!call look {"city": "Oslo"}\n!then\n!say Rome it is.`,
  shape: `${OWN}!call look {"city": "Oslo"}\n!then\n!say ${ANSWER}`,
  "only-shape": `${OWN}!say ${ANSWER}`,
};
const MODELS = {
  messages: "claude-sonnet-5-5",
  responses: "gpt-6.1-sol",
  chat: "gpt-5.4",
  gemini: "gemini-3.8-flash",
  converse: "global.anthropic.claude-sonnet-5-5",
};
const THINKING_MODELS = {
  messages: "claude-sonnet-4-5",
  converse: "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
};
export const modelFor = (feature, wire) => (feature === "thinking" && THINKING_MODELS[wire]) || MODELS[wire];
export const PARAMETERS = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const looked = [];

export function look({ city }) {
  looked.push(city);
  return `${city} is fine`;
}

export async function runColumns(run) {
  for (const column of process.argv.slice(2)) {
    const [feature, wire, mode] = column.split(":");
    looked.length = 0;
    let report;
    const began = Date.now() / 1000;
    try {
      const answer = await run(feature, wire, mode === "stream");
      report = { column, looked: [...looked].sort(), answer };
    } catch (error) {
      report = { column, error: `${error.name}: ${error.message}` };
    }
    console.log(JSON.stringify({ ...report, began, ended: Date.now() / 1000 }));
  }
  process.exit(0);
}

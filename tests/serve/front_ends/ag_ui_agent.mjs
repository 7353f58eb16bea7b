// Two turns, an interrupt and a tool of the client with the HTTP agent of AG-UI, which checks the order of events; prints them as JSON.
import { HttpAgent } from "@ag-ui/client";
import { EventSchemas } from "@ag-ui/core/schemas";

const [url] = process.argv.slice(2);
const agent = new HttpAgent({ url: `${url}/api/ag-ui/shop`, threadId: "thread-1" });
const events = [];
const subscriber = {
  onEvent: ({ event }) => {
    EventSchemas.parse(event);
    events.push(event.type);
  },
};
agent.messages = [{ id: "1", role: "user", content: '!call look {"name": "x"}\n!then\n!say found' }];
const found = await agent.runAgent({ runId: "r1" }, subscriber);
agent.messages.push({ id: "2", role: "user", content: '!call pay {"usd": 7}\n!then\n!say paid' });
await agent.runAgent({ runId: "r2" }, subscriber);
const interrupts = agent.pendingInterrupts;
const resume = interrupts.map((each) => ({ interruptId: each.id, status: "resolved", payload: { approved: true } }));
const paid = await agent.runAgent({ runId: "r3", resume }, subscriber);

// A tool of the client: the run waits, the client runs it, and the next run continues with its result.
const tools = [{ name: "choose", description: "Asks the user.", parameters: { type: "object", properties: { of: { type: "string" } } } }];
agent.messages.push({ id: "4", role: "user", content: '!call choose {"of": "colour"}\n!then\n!say blue it is' });
const asked = await agent.runAgent({ runId: "r4", tools }, subscriber);
const call = asked.newMessages.at(-1).toolCalls[0];
agent.messages.push({ id: "5", role: "tool", toolCallId: call.id, content: "blue" });
const chosen = await agent.runAgent({ runId: "r5", tools }, subscriber);

// A picture, as version 1.0 has it.
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const picture = { type: "image", source: { type: "data", value: png, mimeType: "image/png" } };
const viewer = new HttpAgent({ url: `${url}/api/ag-ui/shop`, threadId: "thread-3" });
viewer.messages = [{ id: "1", role: "user", content: [{ type: "text", text: "!say a dot" }, picture] }];
const seen = await viewer.runAgent({ runId: "r7" }, {});

// The stop button ends the run.
const other = new HttpAgent({ url: `${url}/api/ag-ui/shop`, threadId: "thread-2" });
other.messages = [{ id: "1", role: "user", content: "!call wait {}" }];
const onEvent = ({ event }) => void (event.type === "TOOL_CALL_END" && other.abortRun());
await other.runAgent({ runId: "r6" }, { onEvent }).catch(() => {});
await (await fetch(`${url}/api/sessions/thread-2/stream`)).text();
const stopped = (await (await fetch(`${url}/api/sessions/thread-2`)).json()).summary.status;
console.log(JSON.stringify({ found, interrupts, paid, chosen, seen, events, stopped }));

// Two turns, an approval and a regenerated answer with the chat transport of the Vercel AI SDK; prints the messages as JSON.
import { DefaultChatTransport, readUIMessageStream } from "ai";

const [url, sdk] = process.argv.slice(2);
const transport = new DefaultChatTransport({ api: `${url}/api/chat/shop`, headers: { "x-ai-sdk": sdk } });
const errors = [];

async function send(messages, trigger = "submit-message") {
  const request = { chatId: "chat-1", messages, trigger, messageId: undefined, abortSignal: undefined };
  const stream = await transport.sendMessages(request);
  const last = messages[messages.length - 1];
  const message = last.role === "assistant" ? structuredClone(last) : undefined;
  let result;
  for await (const each of readUIMessageStream({ stream, message, onError: (error) => errors.push(String(error)) })) result = each;
  return result;
}

const user = (text) => ({ id: `user-${Math.random()}`, role: "user", parts: [{ type: "text", text }] });
const history = [user('!call look {"name": "x"}\n!then\n!say found')];
const found = await send(history);
history.push(found, user('!call pay {"usd": 7}\n!then\n!say paid'));
const asked = structuredClone(await send(history));
const part = asked.parts.find((each) => each.state === "approval-requested");
const answered = structuredClone(asked);
Object.assign(answered.parts.find((each) => each.state === "approval-requested"), {
  state: "approval-responded",
  approval: { ...part.approval, approved: true },
});
const paid = await send([...history, answered]);
const again = await send(history.slice(0, 1), "regenerate-message");

// The provider breaks off the first attempt: version 7 takes its text back, an earlier one keeps it as a part of its own.
const flaky = new DefaultChatTransport({ api: `${url}/api/chat/flaky`, headers: { "x-ai-sdk": sdk } });
const question = { chatId: "chat-3", messages: [user("!say one whole answer of the model")], trigger: "submit-message" };
let broken;
for await (const each of readUIMessageStream({ stream: await flaky.sendMessages(question), onError: (error) => errors.push(String(error)) })) broken = each;

const idle = await transport.reconnectToStream({ chatId: "chat-1" });

// The stop button ends the run.
const stopping = new AbortController();
const chunks = await transport.sendMessages({ chatId: "chat-2", messages: [user("!call wait {}")], trigger: "submit-message", abortSignal: stopping.signal });
const reader = chunks.getReader();
while ((await reader.read()).value.type !== "tool-input-available");
stopping.abort();
await (await fetch(`${url}/api/sessions/chat-2/stream`)).text();
const stopped = (await (await fetch(`${url}/api/sessions/chat-2`)).json()).summary.status;
console.log(JSON.stringify({ found, asked, paid, again, broken, idle, errors, stopped }));

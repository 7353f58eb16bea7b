// Shows one session: what is streamed, what waits for a person, and how the run ended.
// All text comes from a model or a customer, so it is set as textContent and never as HTML.
"use strict";

const api = "/agents/api/sessions";
const conversation = document.getElementById("conversation");
const form = document.getElementById("prompt");
const cancel = document.getElementById("cancel");
const status = document.getElementById("status");
let session = new URLSearchParams(location.search).get("session");
let events = null;
let live = null; // the reply that is arriving

function add(kind, text) {
  const node = document.createElement("div");
  node.className = kind;
  node.textContent = text;
  conversation.append(node);
  node.scrollIntoView({ block: "end" });
  return node;
}

async function call(method, path, body) {
  const reply = await fetch(api + path, {
    method,
    headers: { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const data = await reply.json();
  if (!reply.ok) throw new Error([data.error.message, data.error.hint].filter(Boolean).join(" "));
  return data;
}

function setStatus(text, isRunning) {
  status.textContent = text;
  cancel.disabled = !isRunning;
}

async function showQuestions() {
  const { approvals } = await call("GET", `/${encodeURIComponent(session)}/approvals`);
  for (const question of approvals) {
    if (document.getElementById(question.id)) continue;
    const node = add("question", `${question.tool} ${question.complete_arguments}\n`);
    node.id = question.id;
    for (const answer of ["approve", "reject"]) {
      const button = document.createElement("button");
      button.textContent = answer;
      button.onclick = guard(async () => {
        node.querySelectorAll("button").forEach((each) => { each.disabled = true; });
        await call("POST", `/${encodeURIComponent(session)}/approvals/${question.id}`, { answer, by: "web page" });
        node.querySelectorAll("button").forEach((each) => { each.remove(); });
        node.append(answer === "approve" ? "approved" : "rejected");
      });
      node.append(button);
    }
  }
}

// A record carries its event under `event`; a delta is the event itself.
const handlers = {
  prompted: (event) => {
    add("person", event.parts.map((part) => part.text ?? "[file]").join("\n"));
    setStatus("working", true);
  },
  resumed: () => setStatus("working", true),
  text_delta: (event) => {
    live ??= add("model", "");
    live.textContent += event.text;
  },
  attempt_restarted: () => { live?.remove(); live = null; },
  model_replied: (event) => {
    const text = event.reply.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
    live?.remove();
    live = null;
    if (text.trim()) add("model", text);
  },
  tool_started: (event) => add("tool", `${event.name} ${event.arguments}`),
  progress: (event) => setStatus(event.message, true),
  tool_finished: (event) => add("tool", `→ ${event.result.parts.map((part) => part.text ?? "[file]").join("\n")}`),
  run_ended: guard(async (event) => {
    live = null;
    setStatus({ done: "ready", waiting: event.reason }[event.stop] ?? `${event.stop}: ${event.reason}`, false);
    if (event.stop === "waiting") await showQuestions();
  }),
};

function guard(work) {
  return async (...given) => {
    try { await work(...given); } catch (error) { setStatus(`error: ${error.message}`, false); }
  };
}

function watch() {
  events?.close();
  conversation.replaceChildren();
  events = new EventSource(`${api}/${encodeURIComponent(session)}/stream?until=never`);
  for (const [name, handle] of Object.entries(handlers)) {
    events.addEventListener(name, (message) => {
      const data = JSON.parse(message.data);
      handle(data.event ?? data);
    });
  }
  events.onerror = () => { if (events.readyState === EventSource.CONNECTING) setStatus("reconnecting", false); };
}

form.onsubmit = guard(async (submit) => {
  submit.preventDefault();
  const prompt = form.elements.text.value;
  form.elements.text.value = "";
  setStatus("sending", false);
  if (session) {
    await call("POST", `/${encodeURIComponent(session)}/prompts`, { prompt });
  } else {
    session = (await call("POST", "", { agent: "shop", prompt })).session;
    history.replaceState(null, "", `?session=${encodeURIComponent(session)}`);
    watch();
  }
});
cancel.onclick = guard(() => call("POST", `/${encodeURIComponent(session)}/cancel`, {}));
if (session) watch();

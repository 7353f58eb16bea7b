// Types that the JavaScript of the inspector shares. They exist for the checker only and are not served.

// --- values of the API; the server leaves out fields that have their default ---

interface Usage {
  input: number;
  cache_read: number;
  cache_write: number;
  output: number;
  reasoning: number;
}

/** A part of a message: text, media, tool_call, tool_result, reasoning and others. */
interface Part {
  type: string;
  [field: string]: any;
}

/** The fields of an event depend on its type: docs/reference/events.md. */
interface LogEvent {
  type: string;
  [field: string]: any;
}

interface LogRecord {
  seq: number;
  at: number;
  event: LogEvent;
  is_redacted?: boolean;
}

type Dollars = number | string | null | undefined;

interface SessionSummary {
  session: string;
  status: string;
  prompt: string;
  agent: string;
  model: string;
  steps: number;
  records: number;
  usage: Partial<Usage>;
  usd: Dollars;
  created_at: number;
  updated_at: number;
  reason?: string;
  problem?: string;
  tenant?: string;
  caller?: string;
  callers?: string[];
  parent?: string;
  parent_session?: string;
  pending_approvals: number;
}

interface Approval {
  id: string;
  tool: string;
  arguments: string;
  complete_arguments?: string;
  asked_at: number;
  question?: string;
  rule?: string;
  preview?: string;
  is_approved?: boolean;
  approved_by?: string;
  is_uncompared?: boolean;
}

interface SessionDetail {
  summary: SessionSummary;
  approvals: Approval[];
  approved_calls: Approval[];
  is_running: boolean;
}

interface Branch {
  session: string;
  parent?: string;
  at?: number;
  depth?: number;
  end?: string;
  steps?: number;
  usd?: Dollars;
  own_messages?: number;
  first_text?: string;
  read_error?: string;
}

interface BranchSide {
  session: string;
  model: string;
  end: string;
  messages: number;
  steps: number;
  seconds: number;
  usage?: Partial<Usage>;
  usd: Dollars;
  calls?: [string, number][];
}

interface Message {
  role: string;
  id?: string;
  parts: Part[];
}

interface MessagePair {
  kind: string;
  a: Message | null;
  b: Message | null;
}

interface CacheCall {
  index: number;
  at: number;
  outcome: string;
  prompt_tokens: number;
  expected_tokens: number;
  read_tokens: number;
  missed_tokens: number;
  usd: Dollars;
  why?: string;
}

interface CacheReport {
  sum: { outcomes: Record<string, number>; expected_tokens: number; read_tokens: number; missed_tokens: number; usd: Dollars };
  hit_rate: number | null;
  calls: CacheCall[];
}

interface CostRow {
  name: string;
  calls: number;
  tokens: number;
  usd: Dollars;
}

interface CostCall {
  run: number;
  step: number;
  attempt: number;
  model: string;
  usage?: Partial<Usage>;
  usd: Dollars;
  summary?: boolean;
  outcome?: string;
}

interface CostReport {
  usage: Partial<Usage>;
  usd: Dollars;
  by_model: CostRow[];
  by_tool: CostRow[];
  calls: CostCall[];
}

interface SentRequest {
  number: number;
  seq: number;
  step: number;
  attempt: number;
  model: string;
  outcome?: string;
  stop?: string;
  problem?: string;
  is_proven: boolean;
  body_bytes: number;
}

// --- what the page makes of them ---

/** A bar or a mark on the timeline. */
interface Span {
  kind: string;
  name: string;
  text: string;
  start: number;
  end: number | null;
  seq: number;
  status: string;
  run: number;
  endSeq?: number;
  model?: string;
  attempt?: number;
  usage?: Usage;
  usd?: Dollars;
  stop?: string;
  latency?: { first_token_seconds?: number; total_seconds?: number };
  did?: string;
  problem?: string;
  outcome?: string;
  by?: string;
  question?: string;
  call?: string;
  child?: string;
  parent?: number;
}

/** A row of the transcript; its further fields depend on its kind. */
interface Entry {
  kind: string;
  seq?: number;
  at?: number;
  [field: string]: any;
}

/** A call of a tool, as far as the log tells it. */
interface ToolUse {
  id: string;
  name: string;
  arguments: string;
  entry: Entry;
  result: { outcome: string; parts: Part[]; call_id?: string } | null;
  resultSeq?: number;
  seconds?: number | null;
  startedAt?: number;
  ran?: string;
  rule?: string;
  progress?: string;
  waits?: boolean;
  answer?: string;
  answeredBy?: string;
  answerReason?: string;
  edited?: string;
}

/** The reply that is being received. */
interface LiveReply {
  text: string;
  reasoning: string;
  calls: Map<number, { name: string; arguments: string }>;
}

/** A member of a JSON object: the text of its value, and the value if it is a string. */
interface JsonMember {
  name: string;
  raw: string;
  value?: string;
}

/** A line of a difference: its kind (" ", "-", "+" or "@") and its text. */
type DiffLine = [string, string];

interface Field {
  name: string;
  label: string;
  placeholder?: string;
  value?: string;
  multiline?: boolean;
  required?: boolean;
}

/** A page: the list of sessions, or a session. */
interface View {
  open(): Promise<void>;
  dispose(): void;
  leave(): void;
  handleKey(key: string): boolean;
}

/** A tab of a session. */
interface Tab {
  open(): void | Promise<void>;
  handleKey(key: string): boolean;
  dispose?(): void;
  update?(log: import("../../../src/bridle/serve/inspector/log.js").SessionLog): void;
  updateDetail?(detail: SessionDetail): void;
  setParams?(params: URLSearchParams): void;
  leave?(): boolean;
}

// --- elements ---

/** No number: `count && node` would show a zero. */
type Child = Node | string | boolean | null | undefined | Child[];
type Props = Record<string, any>;
type TagName<Tag extends string> = Tag extends `${infer Name}.${string}` ? (Name extends "" ? "div" : Name) : Tag;
/** The element that a tag such as `input.wide` or `.row` stands for. */
type ElementOf<Tag extends string> = TagName<Tag> extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[TagName<Tag>] : HTMLElement;

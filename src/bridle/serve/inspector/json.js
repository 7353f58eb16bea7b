// JSON as text: shown and sent exactly as it is written. A number of JavaScript cannot hold every number of JSON.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/**
 * True if the text is JSON; its value is not used.
 * @param {string} text
 */
export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * JSON with indentation, every token as it stands in the text; null if the text is not JSON.
 * @param {string} text
 */
export function indentJson(text) {
  if (!isJson(text)) return null;
  const tokens = text.match(TOKEN) ?? [];
  /** @type {string[]} */
  const parts = [];
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  tokens.forEach((token, at) => {
    if (token === "{" || token === "[") {
      const isEmpty = tokens[at + 1] === "}" || tokens[at + 1] === "]";
      depth += 1;
      parts.push(token, isEmpty ? "" : line());
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const isEmpty = tokens[at - 1] === "{" || tokens[at - 1] === "[";
      parts.push(isEmpty ? "" : line(), token);
    } else {
      parts.push(token, token === "," ? line() : token === ":" ? " " : "");
    }
  });
  return parts.join("");
}

/**
 * Members of a JSON object, in order, repeated names included; null if the text is no JSON object.
 * @param {string} text
 * @returns {JsonMember[] | null}
 */
export function readMembers(text) {
  if (!text || !isJson(text)) return null;
  const tokens = [...text.matchAll(TOKEN)];
  if (tokens[0]?.[0] !== "{") return null;
  /** @type {JsonMember[]} */
  const members = [];
  for (let at = 1; at < tokens.length - 1; ) {
    const name = JSON.parse(tokens[at][0]);
    const first = at + 2;
    let depth = 0;
    let end = first;
    for (; end < tokens.length; end += 1) {
      const token = tokens[end][0];
      if (token === "{" || token === "[") depth += 1;
      if (token === "}" || token === "]") depth -= 1;
      if (depth <= 0) break;
    }
    const raw = text.slice(tokens[first].index, tokens[end].index + tokens[end][0].length);
    members.push({ name, raw, value: raw.startsWith('"') ? JSON.parse(raw) : undefined });
    at = end + 2;
  }
  return members;
}

/**
 * The JSON text of an object with these members.
 * @param {JsonMember[]} members
 */
export const joinMembers = (members) => `{${members.map(({ name, raw }) => `${JSON.stringify(name)}:${raw}`).join(",")}}`;

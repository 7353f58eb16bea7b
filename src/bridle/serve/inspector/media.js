// Images, files and addresses of messages. An image is shown only if its bytes are one of four kinds.

import { h, bytes, plain } from "./dom.js";

const PIXELS_MAX = 40_000_000;
/** @type {[string, (data: Uint8Array) => boolean][]} */
const SIGNATURES = [
  ["image/png", (data) => starts(data, [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])],
  ["image/jpeg", (data) => starts(data, [0xff, 0xd8, 0xff])],
  ["image/gif", (data) => starts(data, [0x47, 0x49, 0x46, 0x38])],
  ["image/webp", (data) => starts(data, [0x52, 0x49, 0x46, 0x46]) && starts(data.subarray(8), [0x57, 0x45, 0x42, 0x50])],
];

/** @type {(data: Uint8Array, wanted: number[]) => boolean} */
const starts = (data, wanted) => wanted.every((value, at) => data[at] === value);

/**
 * Width and height in the header of an image; null if they are not found.
 * @param {string} type
 * @param {Uint8Array} data
 */
function readSize(type, data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (type === "image/png") return [view.getUint32(16), view.getUint32(20)];
  if (type === "image/gif") return [view.getUint16(6, true), view.getUint16(8, true)];
  if (type === "image/webp") {
    const kind = String.fromCharCode(...data.subarray(12, 16));
    if (kind === "VP8X") return [1 + (view.getUint32(24, true) & 0xffffff), 1 + (view.getUint32(26, true) >> 8)];
    if (kind === "VP8L") {
      const packed = view.getUint32(21, true);
      return [1 + (packed & 0x3fff), 1 + ((packed >> 14) & 0x3fff)];
    }
    return [view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff];
  }
  for (let at = 2; at + 9 < data.length; ) {
    const marker = data[at + 1];
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) return [view.getUint16(at + 7), view.getUint16(at + 5)];
    at += 2 + view.getUint16(at + 2);
  }
  return null;
}

/** @param {string} text */
function decodeBase64(text) {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return null;
  }
}

/** @type {(part: Part, why: string) => HTMLElement} */
const refusal = (part, why) => h("p.media-note", {}, `${part.kind ?? "media"} ${part.name ? `“${part.name}” ` : ""}${part.media_type || ""} not shown: ${why}`);

/** @param {Part} part */
function showImage(part) {
  const data = decodeBase64(part.data);
  if (!data) return refusal(part, "its data is not base64");
  const type = SIGNATURES.find(([, matches]) => matches(data))?.[0];
  // guard: inspector-image-type
  if (!type) return refusal(part, "only PNG, JPEG, GIF and WebP are");
  let size = null;
  try {
    size = readSize(type, data);
  } catch {
    // the header is cut off
  }
  // guard: inspector-image-pixels
  if (!size || size[0] * size[1] > PIXELS_MAX) return refusal(part, size ? `it has ${size[0]} × ${size[1]} pixels` : "its size cannot be read");
  const image = h("img", { alt: part.name || "image", loading: "lazy", decoding: "async" });
  const url = URL.createObjectURL(new Blob([data], { type }));
  image.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
  image.addEventListener("error", () => image.replaceWith(refusal(part, "it is damaged")), { once: true });
  image.src = url;
  return h("figure.media", {}, image, h("figcaption.muted", {}, [part.name, type, `${size[0]} × ${size[1]}`, bytes(data.length)].filter(Boolean).join(" · ")));
}

/**
 * A link that shows where it leads; text if it is not a web address.
 * @param {string} address
 */
export function webLink(address) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    // not an address
  }
  if (!url || !/^https?:$/.test(url.protocol) || plain(address) !== address) return h("code", {}, address);
  return h("a.url", { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank" }, url.href);
}

/** @param {Part} part */
export function showMedia(part) {
  // guard: inspector-media-url
  if (part.url) return h("p.media-note", {}, `${part.kind} at `, webLink(part.url), " (not loaded)");
  if (part.file_id) return h("p.media-note", {}, `${part.kind} stored at the provider: ${part.file_id}`);
  if (part.kind === "image") return showImage(part);
  return h("p.media-note", {}, `${part.kind} ${part.name ? `“${part.name}” ` : ""}${part.media_type}, ${bytes(Math.floor((part.data.length * 3) / 4))}`);
}

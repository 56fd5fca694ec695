// How numbers, times and values are written, everywhere the same.

import { EFFECTS, UNDOABLE, UNKNOWN_EFFECT_MARK } from "./effects.js";
import { OTHERS_WAIT, STATE, STATES } from "./states.js";

/** A state in words for somebody; what waits for others does not wait for them. */
export const stateOf = (state, forYou = true) => (state === STATE.WAITING && !forYou ? OTHERS_WAIT : STATES[state] || ["·", state]);

/** The mark and the words of an effect; a level without words of its own is named. */
export const effectOf = (effect) => EFFECTS[effect] || [UNKNOWN_EFFECT_MARK, effect];

/** Whether it is red; an unknown level is. */
export const isFinal = (effect) => !UNDOABLE.includes(effect);

/** The class of what shows an effect. */
export const effectClass = (effect) => (isFinal(effect) ? "final" : "");

export function money(usd) {
  if (usd === null || usd === undefined) return "cost unknown";
  if (usd === 0) return "$0";
  const digits = usd >= 1 ? 2 : Math.min(8, 1 - Math.floor(Math.log10(usd)));
  return `$${usd.toFixed(Math.max(2, digits))}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1) return "< 1 ms";
  if (Math.round(ms) < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (Number(seconds.toFixed(1)) < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.round(seconds) % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

export function ago(at, now = Date.now() / 1000) {
  const seconds = Math.max(0, now - at);
  if (seconds < 45) return "now";
  if (seconds < 3570) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h ago`;
  return new Date(at * 1000).toLocaleDateString(undefined, { day: "numeric", month: "short" });
}

export const exact = (at) => new Date(at * 1000).toLocaleString();
export const shortId = (id) => id.replace(/^task_|^req_/, "").slice(0, 7);
export const size = (bytes) => bytes < 1000 ? `${bytes} B`
  : bytes < 1e6 ? `${(bytes / 1000).toFixed(bytes < 10_000 ? 1 : 0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
export const count = (n, one, many = `${one}s`) => `${n.toLocaleString()} ${n === 1 ? one : many}`;

/** A part of an address as it was before it was encoded; as it is if it is no code. */
export function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

/** A text of one line, cut where it is long. */
export function short(text, most = 80) {
  const line = text.slice(0, most * 4).replace(/\s+/g, " ").trim();
  return line.length <= most && text.length <= most * 4 ? line : `${line.slice(0, most - 1)}…`;
}

const LONG_NUMBER = /(?<![\d.])\d{16,}(?![\d.])/;

/** Keep a whole number that JavaScript would round as it was written, where the browser can. */
const exactly = (_name, item, context) => (Number.isInteger(item) && !Number.isSafeInteger(item) && context?.source ? JSON.rawJSON(context.source) : item);

/** JSON as data; a long number, such as an id, keeps all its digits. */
export const parsed = (text) => JSON.parse(text, JSON.rawJSON && LONG_NUMBER.test(text) ? exactly : undefined);

/** Whether a value has no parts; a number that is kept as it was written has none. */
export const isSingle = (data) => data === null || typeof data !== "object" || Boolean(JSON.isRawJSON?.(data));

/** A value as people read it: as JSON. */
export const value = (data) => JSON.stringify(data) ?? String(data);

/** A value on one line that may be broken between its parts. */
function spaced(data) {
  if (isSingle(data)) return value(data);
  if (Array.isArray(data)) return `[${data.map(spaced).join(", ")}]`;
  return `{${Object.entries(data).map(([name, item]) => `${JSON.stringify(name)}: ${spaced(item)}`).join(", ")}}`;
}

/** A value over as many lines as it needs, and no more: what fits on one line stands on one. */
export function pretty(data, indent = "") {
  const flat = spaced(data);
  if (isSingle(data) || flat.length + indent.length <= 72) return flat;
  const deeper = `${indent}  `;
  const items = Array.isArray(data)
    ? data.map((item) => deeper + pretty(item, deeper))
    : Object.entries(data).map(([name, item]) => `${deeper}${JSON.stringify(name)}: ${pretty(item, deeper)}`);
  const [open, close] = Array.isArray(data) ? "[]" : "{}";
  return items.length ? `${open}\n${items.join(",\n")}\n${indent}${close}` : open + close;
}

/** Arguments as a script writes them. */
export const args = (given, most = 80) =>
  short(Object.entries(given).map(([name, item]) => `${name}=${value(item)}`).join(", "), most);

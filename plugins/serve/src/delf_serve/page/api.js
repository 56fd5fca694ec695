// What the page asks of the server, and how it follows what happens there.

import { parsed } from "./words.js";

const base = new URL(".", document.baseURI);
const MOST_TRIES = 10;
const LONGEST_WAIT = 15;
/** How often a lost connection is tried again before a person is asked: about 45 seconds. */
export const MOST_BREAKS = 8;
/** How long to wait before a try, in milliseconds. */
export const pause = (tries) => Math.min(10_000, 500 * 2 ** tries);
let csrf = null;

/** A refused request; its message is the server's, with the hint. */
export class Refused extends Error {
  constructor(status, problem) {
    super([problem.detail || `status ${status}`, problem.hint].filter(Boolean).join(" — "));
    this.status = status;
    this.code = problem.code || "";
    this.hint = problem.hint || "";
  }
}

export const address = (path) => new URL(path, base).href;

async function ask(method, path, body, type = "application/json") {
  const headers = {};
  if (csrf) headers["x-csrf-token"] = csrf;
  if (body !== undefined) headers["content-type"] = type;
  const sent = body === undefined || type !== "application/json" ? body : JSON.stringify(body);
  const answer = await withRetries(() => fetch(address(path), { method, headers, body: sent, credentials: "same-origin" }));
  const text = await answer.text();
  let data = null;
  try { data = text ? parsed(text) : null; } catch { data = { detail: text.slice(0, 200) }; }
  if (!answer.ok) {
    if (answer.status === 401 && !path.startsWith("login") && !path.startsWith("session")) {
      window.dispatchEvent(new Event("delf:login"));
    }
    throw new Refused(answer.status, data || {});
  }
  return data;
}

/** How many requests wait until the server takes them. */
let waiting = 0;

/** Ask again as often as the server says that it was too soon, and say so meanwhile. */
async function withRetries(send) {
  let waits = false;
  try {
    for (let tries = 1; ; tries++) {
      let answer;
      try {
        answer = await send();
      } catch {
        throw new Refused(0, { detail: "the server cannot be reached" });
      }
      const seconds = Number(answer.headers.get("retry-after"));
      const tooSoon = answer.status === 429 && seconds > 0 && seconds <= LONGEST_WAIT;
      if (!tooSoon || tries === MOST_TRIES) return answer;
      if (!waits) waiting++;
      waits = true;
      window.dispatchEvent(new CustomEvent("delf:wait", { detail: seconds }));
      await new Promise((done) => { setTimeout(done, seconds * 1000 * (1 + Math.random() / 2)); });
    }
  } finally {
    if (waits) waiting--;
    // Another request may still wait: its notice stays.
    if (!waiting) window.dispatchEvent(new CustomEvent("delf:wait", { detail: 0 }));
  }
}

export const get = (path) => ask("GET", path);

/** All entries of a list, page after page. */
export async function all(path, name) {
  const entries = [];
  for (;;) {
    const found = await get(`${path}?limit=1000&offset=${entries.length}`);
    entries.push(...found[name]);
    if (!found.more) return entries;
  }
}

export const post = (path, body = undefined) => ask("POST", path, body);
export const remove = (path) => ask("DELETE", path);
export const upload = (file) =>
  ask("POST", `files?name=${encodeURIComponent(file.name)}`, file, "application/octet-stream");

export async function session() {
  const known = await get("session");
  csrf = known.csrf;
  return known;
}

export async function login(key) {
  const known = await post("login", { key });
  csrf = known.csrf;
  return known;
}

export const logout = () => post("logout");

/**
 * Follow a stream of server-sent events; it goes on where it broke off, and says when it is broken, and when it gives
 * up. What comes is handed over in slices, so that the page stays fluid however much it is: an EventSource would
 * dispatch thousands of events at once.
 */
export class Stream {
  constructor(path, { message, change, broken, whole }, after = 0) {
    this.path = path;
    this.take = { message, change, broken, whole };
    this.last = after;
    this.waiting = [];
    this.closed = false;
    this.tries = 0;
    this.open();
  }

  async open() {
    const glue = this.path.includes("?") ? "&" : "?";
    const path = this.last ? `${this.path}${glue}after=${this.last}` : this.path;
    const abort = this.abort = new AbortController();
    try {
      const options = { headers: { accept: "text/event-stream" }, credentials: "same-origin", cache: "no-store", signal: abort.signal };
      // A stream that was opened too soon is not a lost connection.
      const answer = await withRetries(() => fetch(address(path), options));
      if (!answer.ok) throw new Refused(answer.status, {});
      this.tries = 0;
      this.live = true;
      this.take.whole?.();
      await this.read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch (error) {
      if (!(error instanceof Refused || error instanceof TypeError || error.name === "AbortError")) throw error;
    }
    const isReplaced = abort !== this.abort; // retry() has opened it again
    if (this.closed || this.ended || isReplaced) return;
    this.live = false;
    const over = this.tries >= MOST_BREAKS;
    this.take.broken?.(over);
    if (!over) this.timer = setTimeout(() => this.open(), pause(this.tries++));
  }

  /** Read frames to the end; an empty line ends each. */
  async read(reader) {
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done || this.closed) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) this.put(frame);
    }
  }

  /** Try at once, where it is broken. */
  retry() {
    if (this.live || this.closed || this.ended) return;
    clearTimeout(this.timer);
    this.abort.abort();
    this.tries = 0;
    this.open();
  }

  put(frame) {
    const { id, event, data } = Object.fromEntries(frame.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]));
    if (id) this.last = Number(id);
    if (event === "end") { this.ended = true; this.close(); } else if (event === "task") this.take.change?.(parsed(data));
    else if (data) this.later(data);
  }

  later(text) {
    this.waiting.push(text);
    if (this.working) return;
    this.working = true;
    const slice = () => {
      const until = performance.now() + 8;
      const some = [];
      while (this.waiting.length > 0 && performance.now() < until) {
        for (const one of this.waiting.splice(0, 20)) some.push(parsed(one));
      }
      if (!this.forgotten) this.take.message(some);
      if (this.waiting.length > 0) setTimeout(slice, 0);
      else this.working = false;
    };
    setTimeout(slice, 0);
  }

  /** No more is wanted; what is waiting is still handed over. */
  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.abort.abort();
  }

  /** No more is wanted, and nothing is handed over any more. */
  drop() {
    this.forgotten = true;
    this.close();
  }
}

// A script line by line, and under each line the calls that it made.

import { arrange, el, fill, say, setText } from "./dom.js";
import { table } from "./text.js";
import { visible } from "./visible.js";
import { ago, args, count, duration, effectOf, exact, isSingle, pretty, short, shortId, value } from "./words.js";

const SHOWN = 3;
const MORE = 50;
const WORDS = /(#.*)|("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\b(False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|not|or|pass|raise|return|try|while|with|yield)\b|\b(\d[\d_.]*)\b/g;
const KINDS = ["note", "text", "word", "number"];
const MOST_PAINTED = 50_000;
const MOST_SHOWN = 200_000;

/** A script with its words marked, line by line, and how many brackets are open after each line. */
function painted(code) {
  const lines = [[]];
  const open = [];
  let depth = 0;
  const put = (text, kind) => {
    const [first, ...rest] = text.split("\n");
    const add = (piece) => piece && lines.at(-1).push(kind ? el("span", { class: `c-${kind}` }, piece) : piece);
    const count = (piece) => { if (!kind) for (const mark of piece) depth += "([{".includes(mark) ? 1 : ")]}".includes(mark) ? -1 : 0; };
    add(first);
    count(first);
    for (const piece of rest) { open.push(depth); lines.push([]); add(piece); count(piece); }
  };
  let at = 0;
  for (const found of code.length > MOST_PAINTED ? [] : code.matchAll(WORDS)) {
    put(code.slice(at, found.index), null);
    put(found[0], KINDS[found.slice(1).findIndex((group) => group !== undefined)]);
    at = found.index + found[0].length;
  }
  put(code.slice(at), null);
  open.push(depth);
  return { lines, open };
}

/** How calls went, in words: "412 calls of sql.query, 2 failed". */
function summary(calls) {
  const names = new Map();
  for (const call of calls) names.set(call.action, (names.get(call.action) || 0) + 1);
  const message = [...names].slice(0, 3).map(([name, n]) => `${count(n, "call")} of ${short(name, 60)}`);
  const bad = calls.filter((call) => !["ok", "running", "waiting"].includes(call.status)).length;
  const total = calls.reduce((sum, call) => sum + (call.duration || 0), 0);
  return `${message.join(", ")}${bad ? `, ${bad} not done` : ""} · ${duration(total)}`;
}

const STATUS = { ok: "", running: "runs", waiting: "waits for an answer", error: "failed", refused: "refused",
  rejected: "rejected", changes_requested: "changes requested", cancelled: "cancelled", expired: "expired", already_done: "it did happen", answered: "answered" };

const cellOf = (item) => (item === null || item === undefined ? "" : typeof item === "string" ? item : value(item));
const MOST_COLUMNS = 12;
const MOST_OF_A_CELL = 200;

/** A result as rows, where it is a list of records with plain values; else nothing. */
function rowsOf(result) {
  const isRecord = (one) => one !== null && typeof one === "object" && !Array.isArray(one) && Object.values(one).every(isSingle);
  if (!Array.isArray(result) || !result.length || !result.every(isRecord)) return null;
  const head = [...new Set(result.flatMap((one) => Object.keys(one)))];
  const isLong = result.some((one) => Object.values(one).some((item) => typeof item === "string" && item.length > MOST_OF_A_CELL));
  if (!head.length || head.length > MOST_COLUMNS || isLong) return null;
  return { head, cells: result.map((one) => head.map((name) => cellOf(one[name]))) };
}

/** A value: as a table where it is one, else as JSON, and a text as it is. */
export function valueNodes(data) {
  const rows = rowsOf(data);
  return rows ? table(rows.head, rows.cells) : [el("pre", { class: "value", tabindex: "0" }, long(typeof data === "string" ? data : pretty(data)))];
}

function bodyOf(call) {
  const rows = [];
  for (const [name, item] of Object.entries(call.args)) {
    rows.push(el("dt", {}, name), el("dd", {}, long(typeof item === "string" ? item : pretty(item))));
  }
  const parts = [];
  if (call.passed) {
    const { by, decided_at: at, from_task: from, from_request: request } = call.passed;
    parts.push(el("p", { class: "quiet" }, `made without asking: ${by} approved it earlier, `, el("time", { title: exact(at) }, ago(at)), " in ",
      el("a", { href: `#/${from}/${request}` }, `task ${shortId(from)}`)));
  }
  if (call.description) parts.push(el("p", { class: "quiet" }, `the script says: ${call.description}`));
  if (rows.length) parts.push(el("dl", { class: "fields" }, rows));
  if (call.error) parts.push(el("p", { class: "bad" }, long(call.error)));
  else if (call.result !== undefined && call.result !== null) {
    parts.push(el("p", { class: "quiet" }, "result"), ...valueNodes(call.result));
  }
  for (const child of call.children) {
    parts.push(el("p", {}, el("a", { href: `#/${child.id}` }, `child task: ${short(child.task, 80)}`)));
  }
  return parts;
}

/** A text; one that is very long is cut, and says so. `left` receives how many characters are not shown, now and later. */
export function long(text, most = 4000, left = () => {}) {
  left(Math.max(0, text.length - most));
  if (text.length <= most) return [text];
  const rest = el("button", { type: "button", class: "link", onclick: () => {
    rest.replaceWith(visible(text.slice(most, MOST_SHOWN)));
    left(Math.max(0, text.length - MOST_SHOWN));
  } }, `… ${(text.length - most).toLocaleString()} more characters`);
  return [text.slice(0, most), " ", rest];
}

export class CallRow {
  constructor(call) {
    this.call = call;
    this.mark = el("span", { class: "mark" });
    this.name = el("span", { class: "call-name" }, call.action);
    this.args = el("span", { class: "call-args" });
    this.result = el("span", { class: "call-result" });
    this.time = el("span", { class: "call-time" });
    this.body = el("div", { class: "call-body" });
    this.node = el("details", { class: "call", ontoggle: () => this.node.open && fill(this.body, bodyOf(this.call)) },
      el("summary", {}, this.mark, " ", this.name, " ", this.args, " ", this.result, " ", this.time), this.body);
    this.update();
  }

  update() {
    const { call } = this;
    const [shape, words] = call.effect ? effectOf(call.effect) : ["·", "not made"];
    this.node.dataset.status = call.status;
    setText(this.mark, shape);
    this.mark.title = words;
    this.mark.setAttribute("aria-label", words);
    this.mark.setAttribute("role", "img");
    setText(this.args, args(call.args, 70));
    let message = STATUS[call.status] ?? call.status;
    if (call.error) message = `${message}: ${short(call.error, 80)}`;
    else if (call.status === "ok" && call.result !== null && call.result !== undefined) message = `→ ${short(value(call.result), 60)}`;
    setText(this.result, message);
    setText(this.time, duration(call.duration));
    if (this.node.open) fill(this.body, bodyOf(call));
  }
}

/** The calls of one line: the newest few, and more where somebody wants them. */
class LineCalls {
  constructor(calls) {
    this.calls = calls;
    this.most = SHOWN;
    this.rows = new Map();
    this.head = el("p", { class: "calls-head" });
    this.list = el("div", { class: "calls-list" });
    this.more = el("button", { type: "button", class: "link", onclick: () => this.showMore() });
    this.node = el("div", { class: "calls" }, this.head, this.list, this.more);
    this.update();
  }

  showMore() {
    this.most += MORE;
    this.update();
    say(`${Math.min(this.most, this.calls.length)} of ${this.calls.length} calls shown`);
  }

  update() {
    const { calls } = this;
    const bad = calls.filter((call) => call.status === "error" || call.status === "waiting").slice(0, 3);
    const shown = new Set([...calls.slice(0, this.most), ...bad, ...calls.slice(-1)]);
    setText(this.head, calls.length > 1 ? `${summary(calls)}${calls.length > shown.size ? `, ${shown.size} shown` : ""}` : "");
    this.head.hidden = calls.length < 2;
    for (const call of shown) {
      const row = this.rows.get(call);
      if (row) row.update();
      else this.rows.set(call, new CallRow(call));
    }
    for (const call of this.rows.keys()) if (!shown.has(call)) this.rows.delete(call);
    const nodes = [...this.rows.values()].sort((a, b) => a.call.id - b.call.id).map((row) => row.node);
    arrange(this.list, nodes);
    const left = calls.length - shown.size;
    this.more.hidden = left <= 0;
    setText(this.more, `show ${Math.min(MORE, left)} more of ${left.toLocaleString()}`);
  }
}

const ENDS = { done: "ended well", failed: "failed", rerun: "asked for another script", limit: "reached a limit",
  crashed: "its sandbox died", cancelled: "was stopped", running: "" };

/** One script of a task: its lines, the calls under them, and questions at their line. */
export class ChapterView {
  constructor(chapter, number, cards) {
    this.chapter = chapter;
    this.cards = cards;
    chapter.touched = new Set(chapter.calls.keys());
    this.calls = new Map();
    this.title = el("h2", { id: `script-${number}` }, `Script ${chapter.attempt}`);
    this.because = el("p", { class: "quiet" });
    this.end = el("p", { class: "script-end" });
    const { lines, open } = painted(chapter.lines.join("\n"));
    // A call of several lines is whole; what it did stands after its last line.
    this.ends = open.map((_, n) => {
      const before = n ? open[n - 1] : 0;
      const end = open.findIndex((depth, m) => m >= n && depth <= before);
      return open[n] > before && end > n && end < n + 60 ? end : n;
    });
    this.rows = lines.map((parts, n) => {
      const code = el("code", {}, parts);
      return el("li", { class: "line", "data-line": n + 1 },
        el("div", { class: "code" }, el("span", { class: "no", "aria-hidden": "true" }, String(n + 1)), code, el("span", { class: "runs-here" })));
    });
    this.last = el("li", { class: "line loose" }, el("div", { class: "code" }));
    this.node = el("section", { class: "chapter", "aria-labelledby": `script-${number}` },
      this.title, this.because, el("ol", { class: "script", "aria-label": `Script ${chapter.attempt}, line by line` }, this.rows, this.last), this.end);
    if (chapter.because) setText(this.because, `because ${short(chapter.because, 400)}`);
    this.because.hidden = !chapter.because;
  }

  update() {
    const { chapter } = this;
    for (const line of chapter.touched) {
      const row = line ? this.rows[this.ends[line - 1]] : this.last;
      const calls = chapter.calls.get(line) || [];
      let view = this.calls.get(line);
      if (!view && calls.length) {
        view = new LineCalls(calls);
        this.calls.set(line, view);
        row.querySelector(".code").after(view.node);
      }
      view?.update();
    }
    for (const [line, row] of this.rows.entries()) {
      const running = chapter.status === "running" && (chapter.running.get(line + 1) || 0);
      if (row.classList.contains("lit") !== Boolean(running)) {
        row.classList.toggle("lit", Boolean(running));
        setText(row.querySelector(".runs-here"), running ? "runs" : "");
        if (running) row.setAttribute("aria-current", "step"); else row.removeAttribute("aria-current");
      }
      if (chapter.errorLine === line + 1 && chapter.error && !row.classList.contains("broke")) {
        row.classList.add("broke");
        row.append(el("p", { class: "bad line-error" }, long(chapter.error, 1000)));
      }
    }
    chapter.touched.clear();
    const message = ENDS[chapter.status] ?? chapter.status;
    const where = chapter.error && !chapter.errorLine ? `: ${short(chapter.error, 300)}` : "";
    setText(this.end, message ? `${message}${chapter.duration ? ` after ${duration(chapter.duration)}` : ""}${where}` : "");
  }

  /** Where a question stands: at its line, else over the script. */
  place(question, card) {
    const row = question.line ? this.rows[this.ends[question.line - 1]] : null;
    if (row) row.append(card);
    else this.because.after(card);
  }
}

// Two tasks side by side: figures, scripts, calls, answers.

import { get } from "./api.js";
import { el, fill, setText } from "./dom.js";
import { ago, decoded, duration, money, short, shortId } from "./words.js";

const ROWS = [
  ["task", (one) => short(one.task, 300)],
  ["state", (one) => one.state],
  ["models", (one) => one.models.join(", ")],
  ["model calls", (one) => one.model_calls.toLocaleString(), true],
  ["calls", (one) => one.calls.toLocaleString(), true],
  ["tokens", (one) => one.tokens.toLocaleString(), true],
  ["cost", (one) => money(one.cost_usd), true],
  ["time", (one) => duration(one.duration_ms), true],
  ["error", (one) => one.error || ""],
];
const PARTS = [["scripts", "Scripts"], ["calls", "Calls"], ["answer", "Answer"]];
const MOST_LINES = 2000;
const SAME_AROUND = 3;

/** Rows with those that are alike left out, where no other is near. */
function near(rows) {
  const wanted = new Set();
  rows.forEach((row, n) => { if (!row.same) for (let k = n - SAME_AROUND; k <= n + SAME_AROUND; k += 1) wanted.add(k); });
  const found = [];
  rows.forEach((row, n) => {
    if (wanted.has(n)) found.push(row);
    else if (found.at(-1) !== null) found.push(null);
  });
  return found;
}

function beside(rows, name) {
  if (!rows.length) return el("p", { class: "quiet" }, "neither has any");
  if (rows.every((row) => row.same)) return el("p", { class: "quiet" }, "the same in both");
  const cell = (text, kind) => el("td", { class: text === null ? "gap" : kind }, text === null ? el("span", { class: "unseen" }, "nothing") : el("code", {}, text || " "));
  const body = near(rows).slice(0, MOST_LINES).map((row) => (row === null
    ? el("tr", {}, el("td", { class: "skipped quiet", colSpan: 2 }, "…"))
    : el("tr", {}, cell(row.left, row.same ? null : "minus"), cell(row.right, row.same ? null : "plus"))));
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": name }, el("table", { class: "beside" }, el("tbody", {}, body)));
}

export class CompareView {
  /** The tasks are the parts of the address: `#/compare/A` asks for the other one, `#/compare/A/B` shows both. */
  constructor() {
    const [, , a = "", b = ""] = location.hash.split("/").map(decoded);
    this.a = a;
    this.problem = el("p", { class: "bad", role: "alert" });
    this.other = el("select", { "aria-label": "The other task", class: "other", onchange: () => { if (this.other.value) location.hash = `#/compare/${a}/${this.other.value}`; } });
    this.body = el("div", { class: "compared" });
    this.title = el("h1", { tabindex: "-1" }, "Two tasks side by side");
    this.node = el("article", { class: "task wide" }, this.title, el("p", { class: "pair" }, el("a", { href: `#/${a}` }, `task ${shortId(a)}`), " beside ", this.other), this.problem, this.body);
    this.load(b);
  }

  async load(b) {
    try {
      const { tasks } = await get("tasks?limit=100");
      const words = tasks.find((one) => one.task_id === this.a)?.task;
      const others = tasks.filter((one) => one.task_id !== this.a).sort((x, y) => (y.task === words) - (x.task === words));
      if (b && !others.some((one) => one.task_id === b)) others.unshift({ task_id: b, task: shortId(b), started_at: null });
      fill(this.other, el("option", { value: "" }, "choose a task"), others.map((one) => el("option", { value: one.task_id, selected: one.task_id === b },
        `${short(one.task, 60)}${one.started_at ? `, ${ago(one.started_at)}` : ""} (${shortId(one.task_id)})`)));
      if (b) this.show(await get(`tasks/${encodeURIComponent(this.a)}/compare/${encodeURIComponent(b)}`));
    } catch (error) { setText(this.problem, error.message); }
  }

  show(found) {
    const { a, b } = found;
    const head = [a, b].map((one) => el("th", { scope: "col" }, el("a", { href: `#/${one.task_id}` }, shortId(one.task_id))));
    const rows = ROWS.map(([name, of, number]) => [name, of(a), of(b), number ? "num" : null]).filter(([, left, right]) => left || right)
      .map(([name, left, right, side]) => el("tr", { class: left === right ? null : "differs" }, el("th", { scope: "row" }, name), el("td", { class: side }, left), el("td", { class: side }, right)));
    fill(this.body, el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Figures" },
      el("table", {}, el("thead", {}, el("tr", {}, el("td", {}), head)), el("tbody", {}, rows))),
    PARTS.map(([part, name]) => el("section", { "aria-label": name }, el("h2", {}, name), beside(found[part], `${name} of both`))));
  }

  /** Nothing is followed. */
  drop() {}
}

// Search: tasks by their words, scripts, calls, answers and errors, and by who, what, when and how much.

import { get } from "./api.js";
import { el, fill, say, setText } from "./dom.js";
import { Filters, query } from "./filters.js";
import { STATES, ago, duration, exact, money, short } from "./words.js";

const PLACES = { task: "task", script: "script", call: "call", answer: "answer", error: "error" };

export class SearchView {
  constructor() {
    this.problem = el("p", { class: "bad", role: "alert" });
    this.note = el("p", { class: "quiet" });
    this.rows = el("ol", { class: "found" });
    this.more = el("button", { type: "button", hidden: true, onclick: () => this.load(this.last) }, "Older ones");
    this.title = el("h1", { tabindex: "-1" }, "Search");
    this.filters = new Filters("search", { words: true, changed: () => this.load() });
    this.node = el("article", { class: "task wide" }, this.title, this.filters.node, this.problem, this.note, this.rows, this.more);
    this.load();
    this.names();
  }

  async names() {
    for (const name of ["person", "connection", "model"]) {
      try {
        const { figures } = await get(`figures?by=${name}`);
        this.filters.offer(name, figures.map((one) => one.group));
      } catch { return; } // the search itself says what is wrong
    }
  }

  async load(before = null) {
    const mine = this.asking = {};
    setText(this.problem, "");
    try {
      const { tasks, more, behind } = await get(`search?${query(this.filters.given, before ? { before } : {})}`);
      if (mine !== this.asking) return;
      if (!before) fill(this.rows);
      this.rows.append(...tasks.map((one) => this.row(one)));
      this.last = tasks.at(-1)?.task.task_id;
      this.more.hidden = !more;
      setText(this.note, this.rows.childElementCount ? "" : "No task matches.");
      if (behind) setText(this.note, `${behind.toLocaleString()} events are not in the search index yet; delf adds them by itself.`);
      say(`${this.rows.childElementCount}${more ? " and more" : ""} found`);
    } catch (error) { setText(this.problem, `${error.message}${error.hint ? ` — ${error.hint}` : ""}`); }
  }

  row({ task, person, place, excerpt }) {
    const [shape, words] = STATES[task.state];
    const figures = [task.is_terminal ? `${duration(task.duration_ms)} · ${money(task.cost_usd)}` : "", person].filter(Boolean).join(" · ");
    return el("li", {}, el("a", { class: "row", href: `#/${task.task_id}`, "data-state": task.state },
      el("span", { class: "row-words" }, short(task.task, 120)),
      place && place !== "task" ? el("span", { class: "excerpt" }, el("span", { class: "quiet" }, `${PLACES[place]} `), excerpt) : null,
      el("span", { class: "row-line" }, el("span", { class: "row-state" }, `${shape} ${words}`), el("span", {}, figures),
        el("time", { title: exact(task.started_at) }, ago(task.started_at)))));
  }

  /** Nothing is followed. */
  drop() {}
}

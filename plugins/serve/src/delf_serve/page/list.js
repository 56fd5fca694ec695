// The tasks: those that wait for a person first, the newest next, more as one scrolls.

import { get } from "./api.js";
import { el, fill, say, setText } from "./dom.js";
import { STATES, ago, exact, money, duration, short } from "./words.js";

const PAGE = 100;
const GROUPS = ["waiting", "others", "running", "queued", "rest"];
const TITLES = { waiting: "Waiting for you", others: "Waiting for others", running: "Running", queued: "Queued", rest: "Earlier" };
const FILTERS = [["", "all"], ["waiting", "waiting for you"], ["running", "running"], ["done", "done"], ["failed", "failed"],
  ["stopped", "stopped"], ["interrupted", "interrupted"], ["queued", "queued"]];

class Row {
  constructor(task) {
    this.state = el("span", { class: "row-state" });
    this.words = el("span", { class: "row-words" });
    this.when = el("time", {});
    this.figures = el("span", { class: "row-figures" });
    this.node = el("a", { class: "row", href: `#/${task.task_id}` }, this.words, el("span", { class: "row-line" }, this.state, this.figures, this.when));
    this.update(task);
  }

  update(task) {
    this.task = task;
    const [shape, words] = STATES[task.state];
    this.node.dataset.state = task.state;
    setText(this.state, `${shape} ${task.state === "waiting" && !task.waits_for_you ? "waits for others" : words}`);
    setText(this.words, short(task.task, 120));
    setText(this.figures, task.is_terminal ? `${duration(task.duration_ms)} · ${money(task.cost_usd)}` : "");
    this.when.title = exact(task.started_at);
    this.when.dateTime = new Date(task.started_at * 1000).toISOString();
    this.tick();
  }

  tick() { setText(this.when, ago(this.task.started_at)); }

  get group() {
    if (this.task.state === "waiting" && !this.task.waits_for_you) return "others";
    return this.known;
  }

  get known() { return GROUPS.includes(this.task.state) ? this.task.state : "rest"; }
}

export class List {
  constructor({ composer, failed }) {
    this.rows = new Map();
    this.failed = failed;
    this.search = el("input", { type: "search", id: "search", placeholder: "Search", "aria-label": "Search tasks", oninput: () => this.loadSoon() });
    this.filter = el("select", { "aria-label": "Which tasks", onchange: () => this.load() },
      FILTERS.map(([name, text]) => el("option", { value: name }, text)));
    this.groups = new Map(GROUPS.map((name) => {
      const box = el("div", { class: "rows" });
      return [name, { box, node: el("section", { class: "group", "aria-label": TITLES[name], hidden: true }, el("h2", {}, TITLES[name]), box) }];
    }));
    this.empty = el("p", { class: "quiet none", hidden: true });
    this.end = el("button", { type: "button", class: "link more", hidden: true, onclick: () => this.more() }, "more tasks");
    this.scroller = el("nav", { class: "tasks", "aria-label": "Tasks" }, [...this.groups.values()].map((group) => group.node), this.empty, this.end);
    this.nodes = [el("div", { class: "find" }, this.search, this.filter), this.scroller, composer];
    this.nearEnd = new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) this.more(); }, { rootMargin: "400px" });
    setInterval(() => { for (const row of this.rows.values()) row.tick(); }, 30_000);
    this.scroller.addEventListener("keydown", (event) => this.key(event));
  }

  get query() {
    const query = new URLSearchParams({ limit: PAGE });
    if (this.filter.value) query.set("state", this.filter.value);
    if (this.search.value.trim()) query.set("text", this.search.value.trim());
    return query;
  }

  loadSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), 200);
  }

  /** Load again; what is shown stays until the answer is there. */
  async load() {
    const mine = this.asking = {};
    try {
      const { tasks, more, next } = await get(`tasks?${this.query}`);
      if (mine !== this.asking) return;
      this.next = next;
      this.rows.clear();
      for (const { box } of this.groups.values()) fill(box);
      this.add(tasks);
      this.endsWith(more);
      const filtered = this.filter.value || this.search.value.trim();
      this.empty.hidden = tasks.length > 0;
      setText(this.empty, filtered ? "No task matches." : "No tasks yet. Say below what delf should do, in plain words.");
      if (filtered) say(`${tasks.length}${more ? " and more" : ""} found`);
    } catch (error) { this.failed(error); }
  }

  async more() {
    const mine = this.asking;
    if (this.loading === mine || this.end.hidden) return;
    this.loading = mine;
    try {
      const query = this.query;
      query.set("after", this.next);
      const { tasks, more, next } = await get(`tasks?${query}`);
      if (mine !== this.asking) return;
      this.next = next;
      this.add(tasks);
      this.endsWith(more);
    } catch (error) { this.failed(error); } finally { if (this.loading === mine) this.loading = null; }
  }

  /** Whether there are more: an observer tells of changes only, so one that begins again says where the end is now. */
  endsWith(more) {
    this.end.hidden = !more;
    this.nearEnd.disconnect();
    if (more) this.nearEnd.observe(this.end);
  }

  add(tasks) {
    const parts = new Map(GROUPS.map((name) => [name, []]));
    for (const task of tasks) {
      if (this.rows.has(task.task_id)) { this.change(task); continue; }
      const row = new Row(task);
      this.rows.set(task.task_id, row);
      parts.get(row.group).push(row.node);
    }
    for (const [name, nodes] of parts) this.groups.get(name).box.append(...nodes);
    this.settle();
  }

  /** A task began, waits, goes on or ended. */
  change(task) {
    let row = this.rows.get(task.task_id);
    if (!row) {
      if (this.filter.value || this.search.value.trim()) { this.loadSoon(); return; }
      row = new Row(task);
      this.rows.set(task.task_id, row);
      this.groups.get(row.group).box.prepend(row.node);
    } else {
      const before = row.group;
      row.update(task);
      if (row.group !== before) {
        const focused = document.activeElement === row.node;
        this.groups.get(row.group).box.prepend(row.node);
        if (focused) row.node.focus();
      }
    }
    this.mark(this.current);
    this.settle();
  }

  settle() {
    for (const { node, box } of this.groups.values()) node.hidden = !box.childElementCount;
    const waiting = this.groups.get("waiting").box.childElementCount;
    if (waiting !== this.waiting) {
      if (this.waiting !== undefined && waiting > this.waiting) say("A task waits for you.");
      this.waiting = waiting;
    }
    if (this.rows.size) this.empty.hidden = true;
  }

  mark(taskId) {
    this.current = taskId;
    for (const [id, row] of this.rows) {
      if (id === taskId) row.node.setAttribute("aria-current", "page");
      else row.node.removeAttribute("aria-current");
    }
  }

  key(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const all = [...this.scroller.querySelectorAll(".row")];
    const next = all[all.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) { next.focus(); event.preventDefault(); }
  }
}

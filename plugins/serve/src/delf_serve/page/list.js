// The tasks: those that wait for a person first, the newest next, more as one scrolls; and the one search of the page.

import { get } from "./api.js";
import { el, fill, say, setText } from "./dom.js";
import { FIELDS } from "./fields.js";
import { Filters, query } from "./filters.js";
import { OTHERS_WAIT, STATE, STATES } from "./states.js";
import { ago, exact, money, duration, short, stateOf } from "./words.js";

const PAGE = 100;
const OTHERS = "others";
const REST = "rest";
const GROUPS = [STATE.WAITING, OTHERS, STATE.RUNNING, STATE.QUEUED, REST];
const TITLES = { ...STATES, [OTHERS]: OTHERS_WAIT, [REST]: ["", "earlier"] };
const title = (group) => TITLES[group][1].replace(/^./, (first) => first.toUpperCase());
const PLACES = { script: "script", call: "call", answer: "answer", error: "error" };
const NARROW = ["days", "person", "connection", "action", "model", "least_cost", ...Object.keys(FIELDS)];

/** The newer one of two looks at a task: events are only ever added to it. */
const newer = (known, task) => (known && known.events > task.events ? known : task);

class Row {
  /** `found` says where a search found it. */
  constructor(task, { place = "", excerpt = "" } = {}) {
    this.state = el("span", { class: "row-state" });
    this.words = el("span", { class: "row-words" });
    this.when = el("time", {});
    this.figures = el("span", { class: "row-figures" });
    this.node = el("a", { class: "row", href: `#/${task.task_id}`, "data-task": task.task_id }, this.words,
      place in PLACES ? el("span", { class: "excerpt" }, el("span", { class: "quiet" }, `${PLACES[place]} `), excerpt) : null, el("span", { class: "row-line" }, this.state, this.figures, this.when));
    this.update(task);
  }

  update(task) {
    this.task = task;
    const [shape, words] = stateOf(task.state, task.waits_for_you);
    this.node.dataset.state = task.state;
    setText(this.state, `${shape} ${words}`);
    setText(this.words, short(task.task, 120));
    setText(this.figures, [task.is_terminal ? `${duration(task.duration_ms)} · ${money(task.cost_usd)}` : "", task.asked_by === "local" ? "" : task.asked_by, ...Object.entries(task.columns).map(([heading, text]) => `${heading} ${text}`), task.project].filter(Boolean).join(" · "));
    this.when.title = exact(task.started_at);
    this.when.dateTime = new Date(task.started_at * 1000).toISOString();
    this.tick();
  }

  tick() { setText(this.when, ago(this.task.started_at)); }
}

function groupOf(task) {
  if (task.state === STATE.WAITING && !task.waits_for_you) return OTHERS;
  return GROUPS.includes(task.state) ? task.state : REST;
}

/** Some rows that follow each other; they are there while they are near what is seen. */
class Block {
  constructor(list, ids = []) {
    this.list = list;
    this.ids = ids;
    this.isShown = true;
    this.node = el("div", { class: "rows" }, ids.map((id) => list.rowOf(id).node));
  }

  show() {
    if (this.isShown) return;
    this.isShown = true;
    fill(this.node, this.ids.map((id) => this.list.rowOf(id).node));
    this.node.style.height = "";
  }

  /** Leave a gap of the same height; a list that is not shown at all has none. */
  hide(height) {
    if (!this.isShown || !height || this.node.contains(document.activeElement)) return;
    this.isShown = false;
    this.node.style.height = `${height}px`;
    fill(this.node);
    for (const id of this.ids) this.list.rows.delete(id);
  }

  prepend(id) {
    this.ids.unshift(id);
    if (this.isShown) this.node.prepend(this.list.rowOf(id).node);
  }

  remove(id) {
    this.ids.splice(this.ids.indexOf(id), 1);
    this.list.rows.get(id)?.node.remove();
  }
}

/** The tasks of a group, in blocks. */
class Group {
  constructor(list, name) {
    this.list = list;
    this.blocks = [];
    this.box = el("div", {});
    this.node = el("section", { class: "group", "aria-label": title(name), hidden: true }, el("h2", {}, title(name)), this.box);
  }

  get size() { return this.blocks.reduce((sum, block) => sum + block.ids.length, 0); }

  clear() {
    this.blocks = [];
    fill(this.box);
  }

  append(ids) {
    const block = new Block(this.list, ids);
    this.blocks.push(block);
    this.box.append(block.node);
    this.list.watch(block);
    return block;
  }

  prepend(id) {
    let [block] = this.blocks;
    if (!block || block.ids.length >= PAGE) {
      block = new Block(this.list);
      this.blocks.unshift(block);
      this.box.prepend(block.node);
      this.list.watch(block);
    }
    block.prepend(id);
    return block;
  }
}

export class List {
  constructor({ composer, failed }) {
    this.tasks = new Map(); // id → the task, where it was found, and its block
    this.rows = new Map(); // id → the row, where there is one
    this.received = new Map();
    this.failed = failed;
    this.filters = new Filters("search", ["text", "state", ...NARROW], () => this.narrowed());
    const { text, state, ...narrow } = this.filters.inputs;
    this.how = el("summary", {}, "More filters");
    this.more_filters = el("details", { class: "narrow", ontoggle: () => this.more_filters.open && this.filters.askNames() }, this.how,
      el("div", { class: "filters" }, ...Object.values(narrow), this.filters.keeper));
    this.message = el("span", { role: "status" });
    this.note = el("p", { class: "quiet found", hidden: true }, this.message, " ", el("button", { type: "button", class: "link", onclick: () => this.choose(new URLSearchParams()) }, "Show all tasks"));
    this.newer = el("button", { type: "button", class: "link more", hidden: true, onclick: () => this.load() }, "Tasks have changed: search again");
    this.groups = new Map(GROUPS.map((name) => [name, new Group(this, name)]));
    this.empty = el("p", { class: "quiet none", hidden: true });
    this.end = el("button", { type: "button", class: "link more", hidden: true, onclick: () => this.more() }, "more tasks");
    this.scroller = el("nav", { class: "tasks", "aria-label": "Tasks" }, [...this.groups.values()].map((group) => group.node), this.empty, this.end);
    // On a phone the list is all there is.
    this.title = el("p", { class: "unseen list-title", role: "heading", "aria-level": "1" }, "Tasks");
    this.nodes = [this.title, el("div", { class: "find", role: "search" }, text, state, this.more_filters, this.filters.views, this.note, this.newer), this.scroller, composer];
    this.nearEnd = new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) this.more(); }, { root: this.scroller, rootMargin: "400px" });
    this.blocks = new WeakMap(); // element → block
    this.nearView = new IntersectionObserver((seen) => {
      for (const one of seen) {
        const block = this.blocks.get(one.target);
        if (one.isIntersecting) block.show(); else block.hide(one.boundingClientRect.height);
      }
    }, { root: this.scroller, rootMargin: "2000px" });
    setInterval(() => { for (const row of this.rows.values()) row.tick(); }, 30_000);
    this.scroller.addEventListener("keydown", (event) => this.key(event));
  }

  /** The address of what the list shows. */
  get address() { return this.filters.given.size ? this.filters.address : "#/"; }

  /** Show what meets these conditions. */
  choose(given) {
    if (String(given) === String(this.filters.given)) return;
    this.filters.set(given);
    this.more_filters.open ||= NARROW.some((name) => given.get(name));
    this.narrowed();
  }

  /** The conditions have changed. */
  narrowed() {
    const [, first = ""] = location.hash.split("/");
    if (!first || first === "search") history.replaceState(null, "", this.address);
    this.load();
  }

  /** A page of tasks: by state alone from the list, which tells what changes; else from the search. */
  async page(after = null) {
    const { given } = this.filters;
    if ([...given.keys()].every((name) => name === "state")) return get(`tasks?${query(given, { limit: PAGE, after })}`);
    const found = await get(`search?${query(given, { limit: PAGE, before: after })}`);
    return { ...found, next: found.tasks.at(-1)?.task.task_id, tasks: found.tasks.map((one) => ({ ...one.task, found: one })) };
  }

  /** Load again; what is shown stays until the answer is there. */
  async load() {
    const mine = this.asking = {}; // of several loads, only the last one shows its answer
    const received = this.received = new Map(); // what comes meanwhile may be newer than the answer
    try {
      const { tasks, more, next, behind } = await this.page();
      if (mine !== this.asking) return;
      this.next = next;
      this.tasks.clear();
      this.rows.clear();
      this.nearView.disconnect();
      for (const group of this.groups.values()) group.clear();
      this.add(tasks);
      for (const task of received.values()) this.change(task);
      this.endsWith(more);
      const filtered = this.filters.given.size > 0;
      const used = NARROW.filter((name) => this.filters.given.has(name)).length;
      setText(this.how, used ? `More filters (${used})` : "More filters");
      this.newer.hidden = true;
      this.note.hidden = !filtered;
      const shown = tasks.length ? `${tasks.length}${more ? " and more" : ""} found.` : "";
      setText(this.message, filtered ? `${shown}${behind ? ` ${behind.toLocaleString()} events are not in the search index yet; delf adds them by itself.` : ""}` : "");
      this.empty.hidden = tasks.length > 0;
      setText(this.empty, filtered ? "No task matches." : "No tasks yet. Say below what delf should do, in plain words.");
    } catch (error) { this.failed(error); }
  }

  async more() {
    const mine = this.asking;
    if (this.loading === mine || this.end.hidden) return;
    this.loading = mine;
    try {
      const { tasks, more, next } = await this.page(this.next);
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

  /** The row of a task that is listed, made where there is none. */
  rowOf(id) {
    let row = this.rows.get(id);
    if (!row) {
      const { task, found } = this.tasks.get(id);
      row = new Row(task, found);
      this.rows.set(id, row);
      if (id === this.current) row.node.setAttribute("aria-current", "page");
    }
    return row;
  }

  watch(block) {
    this.blocks.set(block.node, block);
    this.nearView.observe(block.node);
  }

  add(tasks) {
    const parts = new Map(GROUPS.map((name) => [name, []]));
    for (const task of tasks) {
      if (this.tasks.has(task.task_id)) { this.change(task); continue; }
      this.tasks.set(task.task_id, { task, found: task.found });
      parts.get(groupOf(task)).push(task.task_id);
    }
    for (const [name, ids] of parts) {
      if (!ids.length) continue;
      const block = this.groups.get(name).append(ids);
      for (const id of ids) this.tasks.get(id).block = block;
    }
    this.settle();
  }

  /** A task began, waits, goes on or ended. */
  change(given) {
    const known = this.tasks.get(given.task_id);
    const task = newer(known?.task, given);
    const group = groupOf(task);
    this.received.set(task.task_id, task);
    if (!known) {
      const filter = this.filters.given;
      // Whether the task meets other conditions than its state, only the search knows.
      if (filter.size > 1 || (filter.size && filter.get("state") !== task.state)) { this.newer.hidden = !this.tasks.size; return; }
      const entry = { task };
      this.tasks.set(task.task_id, entry);
      entry.block = this.groups.get(group).prepend(task.task_id);
    } else {
      const before = groupOf(known.task);
      known.task = task;
      this.rows.get(task.task_id)?.update(task);
      if (group !== before) {
        const focused = document.activeElement === this.rows.get(task.task_id)?.node;
        known.block.remove(task.task_id);
        known.block = this.groups.get(group).prepend(task.task_id);
        if (focused) this.rows.get(task.task_id)?.node.focus();
      }
    }
    this.settle();
  }

  settle() {
    for (const group of this.groups.values()) group.node.hidden = !group.size;
    const waiting = this.groups.get(STATE.WAITING).size;
    if (waiting !== this.waiting) {
      if (this.waiting !== undefined && waiting > this.waiting) say("A task waits for you.");
      this.waiting = waiting;
    }
    if (this.tasks.size) this.empty.hidden = true;
  }

  mark(taskId) {
    this.rows.get(this.current)?.node.removeAttribute("aria-current");
    this.current = taskId;
    this.rows.get(taskId)?.node.setAttribute("aria-current", "page");
  }

  /** Move to the next row or the one before, even where it is not there yet. */
  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const at = this.tasks.get(document.activeElement?.dataset.task);
    if (!step || !at) return;
    const blocks = [...this.groups.values()].flatMap((group) => group.blocks).filter((block) => block.ids.length);
    let { block } = at;
    let n = block.ids.indexOf(at.task.task_id) + step;
    if (n < 0 || n >= block.ids.length) {
      block = blocks[blocks.indexOf(block) + step];
      n = step > 0 ? 0 : (block?.ids.length ?? 0) - 1;
    }
    if (!block) return;
    block.show();
    this.rowOf(block.ids[n]).node.focus();
    event.preventDefault();
  }
}

// Schedules: tasks that runners do at set times, or for each new item of a call.

import { get, post, remove } from "./api.js";
import { long } from "./code.js";
import { el, fill, say, setText } from "./dom.js";
import { STATE } from "./states.js";
import { ago, exact, shortId, stateOf } from "./words.js";

const NONE = "There is no schedule yet. A schedule does a task at set times, or for each new mail, row or file.";

/** One of a schedule's times, with the tasks that it started. */
function firing(one) {
  const tasks = one.task_ids.flatMap((id) => [" ", el("a", { href: `#/${id}` }, `task ${shortId(id)}`)]);
  const idle = one.note ? "" : "nothing new";
  const state = tasks.length && !Object.keys(one.task_states).length ? "started" : stateOf(one.state)[1]; // deleted tasks have no state
  return el("li", {}, el("time", { title: exact(one.at) }, ago(one.at)), ` ${one.test ? "test, " : ""}${one.state !== STATE.DONE ? stateOf(one.state)[1] : tasks.length ? state : idle}`, tasks,
    one.note ? el("span", { class: one.state === STATE.FAILED ? "bad" : "quiet" }, ` ${one.note}`) : null);
}

export class SchedulesView {
  constructor(who) {
    this.who = who;
    this.may = who.rights.includes("run");
    this.problem = el("p", { class: "bad", role: "alert" });
    this.rows = el("div", { class: "routines" });
    this.title = el("h1", { tabindex: "-1" }, "Schedules");
    this.form = this.may ? this.makeForm() : null;
    this.node = el("article", { class: "task" }, this.title, this.problem,
      this.form ? el("details", { class: "seen invite" }, el("summary", {}, el("h2", {}, "Add a schedule")), this.form) : null, this.rows);
    this.load();
  }

  makeForm() {
    const field = (name, words, hint = "", more = {}) => el("p", {}, el("label", {}, `${words} `, el("input", { type: "text", name, ...more })), hint ? el("span", { class: "quiet" }, ` ${hint}`) : null);
    return el("form", { "aria-label": "Add a schedule", onsubmit: (event) => { event.preventDefault(); this.add(); } },
      field("name", "Name", "", { required: true, maxLength: 100 }),
      field("cron", "Times", "minute, hour, day, month, weekday: 0 8 * * 1-5 is workdays at eight", { required: true, value: "0 8 * * 1-5" }),
      field("zone", "Time zone", "", { value: Intl.DateTimeFormat().resolvedOptions().timeZone }),
      el("p", {}, el("label", {}, "Does ", el("select", { name: "kind" }, el("option", { value: "" }, "a task in plain words"), el("option", { value: "routine" }, "a routine, by its call")))),
      el("p", {}, el("label", {}, "Task ", el("textarea", { name: "task", required: true, rows: 3 }))),
      el("p", { class: "quiet" }, "A routine is written as report(month=\"2026-10\"), or as report(mail=item[\"id\"]) for each new item."),
      field("each", "For each new item of", "a call that only reads, such as mail.search(query=\"is:unread\"); empty for the times alone"),
      field("id_field", "Its items are identified by", "id, if empty"),
      el("div", { class: "buttons" }, el("button", { type: "submit", class: "primary" }, "Add")));
  }

  async load() {
    try {
      const { schedules, missing } = await get("schedules?limit=500");
      fill(this.rows, schedules.length ? schedules.map((one) => this.row(one)) : el("p", { class: "quiet" }, missing ? `${NONE} ${missing}.` : NONE));
    } catch (error) { setText(this.problem, error.message); }
  }

  row(one) {
    const place = `schedules/${encodeURIComponent(one.name)}`;
    const button = (text, act, kind = "") => el("button", { type: "button", class: kind, onclick: act }, text);
    const past = el("ul", {});
    const history = el("details", { ontoggle: () => { if (history.open) this.show(place, past); } }, el("summary", {}, "History"), past);
    const times = `${one.paused ? "paused; " : ""}${one.cron}, ${one.zone ?? "UTC"}`;
    const buttons = el("div", { class: "buttons" },
      button(one.paused ? `Resume ${one.name}` : `Pause ${one.name}`, () => this.act(() => post(`${place}/pause`, { paused: !one.paused }), one.paused ? `${one.name} continues` : `${one.name} is paused`)),
      button(`Test ${one.name}`, () => this.test(place, history, past)),
      button(`Remove ${one.name}`, () => { if (confirm(`Remove ${one.name}? The tasks that it started stay.`)) this.act(() => remove(place), `${one.name} is removed`); }, "danger"));
    return el("section", { class: "ask decided", "aria-label": one.name }, el("h2", {}, one.name), el("p", {}, one.routine ? ["the routine ", el("code", {}, long(one.task, 500))] : long(one.task, 500)),
      el("p", { class: "quiet" }, times, one.last ? ["; last ", el("time", { title: exact(one.last) }, ago(one.last))] : "", one.user && one.user !== this.who.name ? `; tasks of ${one.user}` : ""),
      one.each ? el("p", {}, "for each new item of ", el("code", {}, one.each)) : null, history, this.may ? buttons : null);
  }

  async show(place, past) {
    try {
      const { firings } = await get(`${place}/history`);
      fill(past, firings.length ? firings.map(firing) : el("li", { class: "quiet" }, "Nothing has happened yet."));
    } catch (error) { setText(this.problem, error.message); }
  }

  /** Do the task once without any change, and show what comes of it. */
  async test(place, history, past) {
    setText(this.problem, "");
    try {
      await post(`${place}/test`);
      say("The task is done once, without any change.");
      history.open = true;
      await this.show(place, past);
    } catch (error) { setText(this.problem, error.message); }
  }

  async act(work, message) {
    setText(this.problem, "");
    try {
      await work();
      say(message);
    } catch (error) { setText(this.problem, error.message); }
    await this.load();
    this.title.focus();
  }

  async add() {
    const fields = this.form.elements;
    const text = (name) => fields[name].value.trim() || null;
    setText(this.problem, "");
    try {
      const made = await post("schedules", { name: text("name"), cron: text("cron"), zone: text("zone"), task: text("task"), routine: fields.kind.value === "routine", each: text("each"), id_field: text("id_field") });
      say(`${made.name} is kept`);
      this.form.reset();
      this.form.parentElement.open = false;
    } catch (error) { setText(this.problem, error.message); }
    await this.load();
  }

  /** Nothing is followed. */
  drop() {}
}

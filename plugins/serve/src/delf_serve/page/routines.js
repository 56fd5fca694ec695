// Routines: tasks that worked and are kept as scripts, each with a form of its parameters.

import { get, post } from "./api.js";
import { el, fill, setText } from "./dom.js";

const KINDS = { integer: ["number", "1"], number: ["number", "any"] };
const HINTS = { date: "a date: 2026, 2026-10 or 2026-10-31", integer: "a whole number", number: "a number" };

function field(routine, item) {
  const [type, step] = KINDS[item.type] ?? ["text", null];
  const id = `routine-${routine.name}-${item.name}`;
  const input = el("input", { id, name: item.name, type, step, required: true, value: String(item.default) });
  const hint = HINTS[item.type];
  return { input, row: el("p", { class: "field" }, el("label", { htmlFor: id }, item.name), " ", input, hint ? el("span", { class: "quiet" }, ` ${hint}`) : null) };
}

export class RoutinesView {
  constructor(rights, { started }) {
    this.may = rights.includes("run");
    this.started = started;
    this.problem = el("p", { class: "bad", role: "alert" });
    this.rows = el("div", { class: "routines" });
    this.title = el("h1", { tabindex: "-1" }, "Routines");
    this.node = el("article", { class: "task" }, this.title, this.problem, this.rows);
    this.load();
  }

  async load() {
    try {
      const { routines } = await get("routines");
      fill(this.rows, routines.length ? routines.map((one) => this.row(one))
        : el("p", { class: "quiet" }, "There is none yet. delf routines save TASK NAME keeps a task that worked as one: it runs again with other values, without a model."));
    } catch (error) { setText(this.problem, error.message); }
  }

  row(one) {
    const fields = one.parameters.map((item) => [item, field(one, item)]);
    const told = el("p", { class: "bad", role: "alert" });
    const go = el("button", { type: "submit", class: "primary" }, "Run");
    const form = el("form", { "aria-label": `Run ${one.name}`, onsubmit: (event) => { event.preventDefault(); this.run(one, fields, go, told); } },
      fields.map(([, { row }]) => row), told, this.may ? el("div", { class: "buttons" }, go) : null);
    return el("section", { class: "ask decided", "aria-label": one.name }, el("h2", {}, one.name), el("p", {}, one.title), form);
  }

  async run(one, fields, go, told) {
    const inputs = Object.fromEntries(fields.map(([item, { input }]) => [item.name, KINDS[item.type] ? Number(input.value) : input.value]));
    go.disabled = true;
    setText(told, "");
    try {
      const accepted = await post(`routines/${encodeURIComponent(one.name)}`, { inputs });
      this.started(accepted.task_id);
    } catch (error) {
      setText(told, `${error.message}${error.hint ? ` — ${error.hint}` : ""}`);
    } finally { go.disabled = false; }
  }

  /** Nothing is followed. */
  drop() {}
}

// Routines: tasks that worked and are kept as scripts, each with a form of its parameters.

import { all, post } from "./api.js";
import { long } from "./code.js";
import { el, fill, say, setText } from "./dom.js";
import { ago, count, exact, money, shortId, stateOf } from "./words.js";

const KINDS = { integer: ["number", "1"], number: ["number", "any"] };
const HINTS = { date: "a date: 2026, 2026-10 or 2026-10-31", integer: "a whole number", number: "a number" };

function field(routine, item) {
  const [type, step] = KINDS[item.type] ?? ["text", null];
  const id = `routine-${routine.name}-${item.name}`;
  const input = el("input", { id, name: item.name, type, step, required: true, value: String(item.default) });
  const hint = HINTS[item.type];
  return { input, row: el("p", { class: "field" }, el("label", { htmlFor: id }, item.name), " ", input, hint ? el("span", { class: "quiet" }, ` ${hint}`) : null) };
}

/** What a routine did: how often, what that saved, and its newest runs. */
function savings(one) {
  const saved = one.saved_usd ? `, which saved ${money(one.saved_usd)}` : "";
  const runs = one.runs.map((run) => el("li", {}, el("a", { href: `#/${run.task_id}` }, `task ${shortId(run.task_id)}`),
    ` ${stateOf(run.state, run.waits_for_you)[1]} `, el("time", { title: exact(run.started_at) }, ago(run.started_at)), " ", el("span", { class: "quiet" }, long(run.task, 200))));
  return [el("p", { class: "quiet" }, one.done ? `done ${count(one.done, "time")}${saved}` : "not done yet"),
    runs.length ? el("details", {}, el("summary", {}, "Last runs"), el("ul", {}, runs)) : null,
    el("details", {}, el("summary", {}, "File"), el("pre", { class: "prints", tabindex: "0", role: "region", "aria-label": `File of ${one.name}` }, one.text))];
}

export class RoutinesView {
  constructor(rights, { started, wanted = "" }) {
    this.may = rights.includes("run");
    this.maySave = rights.includes("decide");
    this.started = started;
    this.draftPlace = el("div", {});
    this.problem = el("p", { class: "bad", role: "alert" });
    this.rows = el("div", { class: "routines" });
    this.title = el("h1", { tabindex: "-1" }, "Routines");
    this.node = el("article", { class: "task" }, this.title, this.problem, this.draftPlace, this.rows);
    this.load();
    if (wanted) this.goToQuestion(wanted);
  }

  /** Begin to keep a task as a routine. */
  goToQuestion(taskId) {
    if (!this.maySave) return;
    const input = el("input", { id: "routine-name", name: "name", required: true, pattern: "[a-z][a-z0-9_]{0,62}", title: "lower-case letters, digits and _" });
    const place = el("div", {});
    const form = el("form", { "aria-label": "Keep a task as a routine", onsubmit: (event) => { event.preventDefault(); this.draft(taskId, input.value, place); } },
      el("p", {}, "Keep ", el("a", { href: `#/${taskId}` }, `task ${shortId(taskId)}`), " as a routine"),
      el("p", { class: "field" }, el("label", { htmlFor: "routine-name" }, "name"), " ", input, " ", el("button", { type: "submit" }, "Show it")), place);
    fill(this.draftPlace, el("section", { class: "ask" }, form));
    input.focus();
  }

  /** Show a task as a routine; with what was seen, save that. */
  async draft(taskId, name, place, fixed = [], seen = undefined) {
    setText(this.problem, "");
    fill(place, el("p", { class: "quiet" }, "The routine is tested with the recorded results of its calls…"));
    try {
      const made = await post("routines", { task_id: taskId, name, fixed, seen });
      if (made.saved) {
        say(`${name} is saved`);
        fill(this.draftPlace, el("p", { role: "status" }, `${name} is saved.`));
        await this.load();
        return;
      }
      const box = (item) => el("label", {}, el("input", { type: "checkbox", checked: true, value: item, name: "parameter" }), ` ${item} `);
      const boxes = made.parameters.map(box);
      const chosen = () => boxes.map((one) => one.firstChild).filter((one) => !one.checked).map((one) => one.value);
      fill(place, el("pre", { class: "prints", tabindex: "0", role: "region", "aria-label": "Routine" }, made.change),
        made.cost_usd ? el("p", { class: "quiet" }, `a model joined several scripts into one for ${money(made.cost_usd)}`) : null,
        made.warnings.length ? el("ul", {}, made.warnings.map((text) => el("li", {}, long(text, 500)))) : null,
        made.differences.length ? el("ul", { class: "bad" }, made.differences.map((text) => el("li", {}, long(text, 500)))) : null,
        boxes.length ? el("fieldset", {}, el("legend", {}, "Parameters"), boxes) : null,
        el("div", { class: "buttons" },
          made.parameters.length ? el("button", { type: "button", onclick: () => this.draft(taskId, name, place, [...fixed, ...chosen()]) }, "Show it with these parameters") : null,
          made.differences.length ? null : el("button", { type: "button", class: "primary", onclick: () => this.draft(taskId, name, place, fixed, made.digest) }, "Save")));
    } catch (error) {
      fill(place);
      setText(this.problem, error.message);
    }
  }

  async load() {
    try {
      const routines = await all("routines", "routines");
      fill(this.rows, routines.length ? routines.map((one) => this.row(one))
        : el("p", { class: "quiet" }, "There are no routines yet. On the page of a task that worked, you can keep it as a routine. A routine runs again with other values, without a model."));
    } catch (error) { setText(this.problem, error.message); }
  }

  row(one) {
    const fields = one.parameters.map((item) => [item, field(one, item)]);
    const wrong = el("p", { class: "bad", role: "alert" });
    const go = el("button", { type: "submit", class: "primary" }, "Run");
    const form = el("form", { "aria-label": `Run ${one.name}`, onsubmit: (event) => { event.preventDefault(); this.run(one, fields, go, wrong); } },
      fields.map(([, { row }]) => row), wrong, this.may ? el("div", { class: "buttons" }, go) : null);
    return el("section", { class: "ask decided", "aria-label": one.name }, el("h2", {}, one.name), one.title ? el("p", {}, one.title) : null, form, savings(one));
  }

  async run(one, fields, go, wrong) {
    const inputs = Object.fromEntries(fields.map(([item, { input }]) => [item.name, KINDS[item.type] ? Number(input.value) : input.value]));
    go.disabled = true;
    setText(wrong, "");
    try {
      const accepted = await post(`routines/${encodeURIComponent(one.name)}`, { inputs });
      this.started(accepted.task_id);
    } catch (error) {
      setText(wrong, error.message);
    } finally { go.disabled = false; }
  }

  /** Nothing is followed. */
  drop() {}
}

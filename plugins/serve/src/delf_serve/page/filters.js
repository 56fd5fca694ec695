// Conditions for tasks, as inputs whose state is in the page's address: a link to it is a view that can be kept.

import { get } from "./api.js";
import { el } from "./dom.js";
import { FIELDS } from "./fields.js";
import { STATE, STATES } from "./states.js";

const DAY = 86_400;
const PERIODS = [["", "any time"], ["1", "the last day"], ["7", "the last 7 days"], ["30", "the last 30 days"], ["90", "the last 90 days"], ["365", "the last year"]];
const CHOICES = [["", "all"], ...Object.entries(STATES).map(([state, [, text]]) => [state, state === STATE.WAITING ? `${text} or others` : text])];
/** Each with the words for no choice, and its label. */
const NAMED = { person: ["anybody", "Who asked"], connection: ["any connection", "Connection"], action: ["any action", "Action"], model: ["any model", "Model"] };
const KEPT = "delf.views";

const options = (pairs, chosen) => pairs.map(([value, text]) => el("option", { value, selected: value === chosen }, text));

/** The conditions in the page's address, as `#/search/text=…&person=…`. */
export const conditions = () => new URLSearchParams(location.hash.split("/").slice(2).join("/"));

/** The query of a request: the conditions, with the period as a time. */
export function query(given, more = {}) {
  const sent = new URLSearchParams();
  for (const [name, value] of given) if (value && name !== "days") sent.set(name, value);
  const days = Number(given.get("days"));
  if (days > 0) sent.set("since", String(Math.floor(Date.now() / 1000) - days * DAY));
  for (const [name, value] of Object.entries(more)) if (value) sent.set(name, value);
  return sent;
}

function kept() {
  try { return JSON.parse(localStorage.getItem(KEPT)) || []; } catch { return []; }
}

export class Filters {
  /** `names` are those of the conditions; `changed` is called after each change by a person. */
  constructor(place, names, changed) {
    this.place = place;
    this.changed = changed;
    this.inputs = Object.fromEntries(names.map((name) => [name, this.input(name)]));
    this.views = el("div", { class: "views" });
    this.name = el("input", { "aria-label": "Name of the view", placeholder: "name of this view", maxLength: 40 });
    this.keeper = el("form", { class: "keep", onsubmit: (event) => { event.preventDefault(); this.keep(); } }, this.name, el("button", { type: "submit" }, "Keep view"));
    this.showViews();
  }

  input(name) {
    const change = () => this.changed();
    const soon = () => { clearTimeout(this.timer); this.timer = setTimeout(change, 200); };
    if (name === "text") return el("input", { type: "search", id: "search", "aria-label": "Search", placeholder: "Search everything", oninput: soon });
    if (name === "least_cost") return el("input", { type: "number", min: "0", step: "any", placeholder: "cost from $", "aria-label": "Cost from, in US dollars", oninput: soon });
    if (name === "days") return el("select", { "aria-label": "When", onchange: change }, options(PERIODS, ""));
    if (name === "state") return el("select", { "aria-label": "In which state", onchange: change }, options(CHOICES, ""));
    if (name in FIELDS) return el("input", { placeholder: name.replaceAll("_", " "), "aria-label": FIELDS[name], oninput: soon });
    const [any, label] = NAMED[name];
    return el("select", { "aria-label": label, onchange: change }, options([["", any]], ""));
  }

  get given() {
    const given = new URLSearchParams();
    for (const [name, input] of Object.entries(this.inputs)) if (input.value.trim()) given.set(name, input.value.trim());
    return given;
  }

  /** Take these conditions and no others. */
  set(given) {
    for (const [name, input] of Object.entries(this.inputs)) {
      const value = given.get(name) || "";
      if (name in NAMED) this.offer(name, [value]);
      input.value = value;
    }
  }

  get address() { return `#/${this.place}/${this.given}`; }

  /** Names that can be chosen; the chosen one stays. */
  offer(name, found) {
    const input = this.inputs[name];
    const known = new Set([...input.options].map((option) => option.value));
    input.append(...options(found.filter((one) => one && !known.has(one)).map((one) => [one, one]), input.value));
  }

  /** Ask for the names that can be chosen, once. */
  async askNames() {
    if (this.asked) return;
    this.asked = true;
    try {
      for (const name of Object.keys(NAMED)) {
        const { figures } = await get(`figures?by=${name}`);
        this.offer(name, figures.map((one) => one.group));
      }
    } catch { this.asked = false; } // the list itself says what is wrong
  }

  keep() {
    const name = this.name.value.trim();
    if (!name) { this.name.focus(); return; }
    const rest = kept().filter((one) => one.name !== name);
    localStorage.setItem(KEPT, JSON.stringify([...rest, { name, address: this.address }]));
    this.name.value = "";
    this.showViews();
  }

  showViews() {
    const drop = (one) => { localStorage.setItem(KEPT, JSON.stringify(kept().filter((other) => other.name !== one.name))); this.showViews(); };
    this.views.replaceChildren(...kept().map((one) => el("span", { class: "view" }, el("a", { href: one.address }, one.name), " ",
      el("button", { type: "button", class: "link", "aria-label": `Forget the view ${one.name}`, onclick: () => drop(one) }, "×"))));
  }
}

// Conditions for tasks, as a form whose state is in the page's address: a link to it is a view that can be kept.

import { el } from "./dom.js";

const DAY = 86_400;
const PERIODS = [["", "any time"], ["1", "last day"], ["7", "last 7 days"], ["30", "last 30 days"], ["90", "last 90 days"], ["365", "last year"]];
const STATES = [["", "any state"], ["done", "done"], ["failed", "failed"], ["stopped", "stopped"], ["running", "running"], ["queued", "queued"], ["interrupted", "interrupted"]];
const NAMED = { person: "anybody", connection: "any connection", model: "any model" };
const KEPT = "delf.views";

const options = (pairs, chosen) => pairs.map(([value, text]) => el("option", { value, selected: value === chosen }, text));

/** The conditions in the page's address, as `#/search/text=…&person=…`. */
export const conditions = () => new URLSearchParams(location.hash.split("/").slice(2).join("/"));

/** The query of a request: what the address says, with the period as a time. */
export function query(given, more = {}) {
  const sent = new URLSearchParams();
  for (const [name, value] of given) if (value && name !== "days") sent.set(name, value);
  const days = Number(given.get("days"));
  if (days > 0) sent.set("since", String(Math.floor(Date.now() / 1000) - days * DAY));
  for (const [name, value] of Object.entries(more)) sent.set(name, value);
  return sent;
}

function kept() {
  try { return JSON.parse(localStorage.getItem(KEPT)) || []; } catch { return []; }
}

export class Filters {
  /** `names` gives the known persons, connections and models; `changed` is called after each change. */
  constructor(place, { words = false, days = "", changed }) {
    this.place = place;
    this.changed = changed;
    const given = conditions();
    if (!given.has("days") && days) given.set("days", days);
    this.inputs = {};
    const change = () => this.change();
    const soon = () => { clearTimeout(this.timer); this.timer = setTimeout(change, 200); };
    if (words) this.inputs.text = el("input", { type: "search", "aria-label": "Words", placeholder: "Words of a task, script, call, answer or error", value: given.get("text") || "", oninput: soon });
    this.inputs.days = el("select", { "aria-label": "When", onchange: change }, options(PERIODS, given.get("days") || ""));
    for (const [name, any] of Object.entries(NAMED)) {
      const chosen = given.get(name) || "";
      this.inputs[name] = el("select", { "aria-label": any.replace(/^any(body)? ?/, "Only this ") .trim(), onchange: change }, options([["", any], ...(chosen ? [[chosen, chosen]] : [])], chosen));
    }
    if (words) {
      this.inputs.state = el("select", { "aria-label": "In which state", onchange: change }, options(STATES, given.get("state") || ""));
      this.inputs.least_cost = el("input", { type: "number", min: "0", step: "any", placeholder: "cost from $", "aria-label": "Cost from, in US dollars", value: given.get("least_cost") || "", oninput: soon });
    }
    this.views = el("span", { class: "views" });
    this.name = el("input", { "aria-label": "Name of the view", placeholder: "name of this view", maxLength: 40 });
    const keep = el("form", { class: "keep", onsubmit: (event) => { event.preventDefault(); this.keep(); } }, this.name, el("button", { type: "submit" }, "Keep view"));
    this.node = el("div", { class: "filters" }, ...Object.values(this.inputs), keep, this.views);
    this.showViews();
  }

  get given() {
    const given = new URLSearchParams();
    for (const [name, input] of Object.entries(this.inputs)) if (input.value.trim()) given.set(name, input.value.trim());
    return given;
  }

  change() {
    history.replaceState(null, "", `#/${this.place}/${this.given}`);
    this.changed();
  }

  /** Names that can be chosen; the chosen one stays. */
  offer(name, found) {
    const input = this.inputs[name];
    const known = new Set([...input.options].map((option) => option.value));
    input.append(...options(found.filter((one) => one && !known.has(one)).map((one) => [one, one]), input.value));
  }

  keep() {
    const name = this.name.value.trim();
    if (!name) { this.name.focus(); return; }
    const rest = kept().filter((one) => one.name !== name);
    localStorage.setItem(KEPT, JSON.stringify([...rest, { name, address: `#/${this.place}/${this.given}` }]));
    this.name.value = "";
    this.showViews();
  }

  showViews() {
    const drop = (one) => { localStorage.setItem(KEPT, JSON.stringify(kept().filter((other) => other.name !== one.name))); this.showViews(); };
    this.views.replaceChildren(...kept().map((one) => el("span", { class: "view" }, el("a", { href: one.address }, one.name), " ",
      el("button", { type: "button", class: "link", "aria-label": `Forget the view ${one.name}`, onclick: () => drop(one) }, "×"))));
  }
}

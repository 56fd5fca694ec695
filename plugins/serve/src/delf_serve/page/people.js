// The people of the server: invited, changed, removed; and who did what.

import { address, all, get, post, remove } from "./api.js";
import { el, fill, say, setText } from "./dom.js";
import { ago, exact } from "./words.js";

const RIGHTS = { read: "look at tasks", run: "run tasks", decide: "decide", delete: "delete tasks", people: "manage people" };
const SCOPES = { own: "their own tasks", team: "their team's tasks", all: "all tasks" };
const list = (text) => text.split(",").map((part) => part.trim()).filter(Boolean);

export class PeopleView {
  constructor(who) {
    this.who = who;
    this.problem = el("p", { class: "bad", role: "alert" });
    this.made = el("div", { class: "made", role: "status" });
    this.rows = el("ul", { class: "remembered", "aria-label": "People" });
    this.entries = el("tbody", {});
    this.title = el("h1", { tabindex: "-1" }, "People");
    this.form = this.makeForm();
    this.node = el("article", { class: "task" }, this.title, this.problem, this.made,
      el("details", { class: "seen invite" }, el("summary", {}, el("h2", {}, "Add or change a person")), this.form), this.rows,
      el("section", { "aria-label": "Who did what" }, el("h2", {}, "Who did what"), el("p", {}, el("a", { href: address("audit?format=csv"), download: "delf-audit.csv" }, "CSV")),
        el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Entries" }, el("table", {}, el("thead", {}, el("tr", {}, ["when", "who", "what", "about", "from where"].map((name) => el("th", { scope: "col" }, name)))), this.entries))));
    this.load();
  }

  makeForm() {
    const field = (name, words, more = {}) => el("p", {}, el("label", {}, `${words} `, el("input", { type: "text", name, ...more })));
    const may = Object.entries(RIGHTS).filter(([name]) => this.who.rights.includes(name));
    return el("form", { onsubmit: (event) => { event.preventDefault(); this.keep(); } },
      field("name", "Name", { required: true, maxLength: 64 }), field("mail", "Mail address"), field("teams", "Teams, with commas between them"),
      el("fieldset", {}, el("legend", {}, "May"), may.map(([name, words]) => el("label", {}, el("input", { type: "checkbox", name: "right", value: name, checked: name !== "people" }), words))),
      el("p", {}, el("label", {}, "Sees ", el("select", { name: "scope" }, Object.entries(SCOPES).map(([name, words]) => el("option", { value: name }, words))))),
      field("key", "Label of a new key; empty for none", { value: "first", maxLength: 64 }),
      el("div", { class: "buttons" }, el("button", { type: "submit", class: "primary" }, "Save")));
  }

  async load() {
    try {
      const [people] = await Promise.all([all("people", "people"), this.loadAudit()]);
      fill(this.rows, people.length ? people.map((one) => this.row(one)) : el("li", { class: "quiet" }, "Nobody is known yet."));
    } catch (error) { setText(this.problem, error.message); }
  }

  /** Show the newest entries; of answers out of order, the one asked for last. */
  async loadAudit() {
    const asked = this.asked = (this.asked ?? 0) + 1;
    const { entries } = await get("audit?limit=200");
    if (asked !== this.asked) return;
    fill(this.entries, entries.map((one) => el("tr", {}, el("td", {}, el("time", { title: exact(one.at) }, ago(one.at))), el("td", {}, one.by), el("td", {}, one.what),
      el("td", {}, one.task_id ? el("a", { href: `#/${one.task_id}/${one.request_id}` }, one.about) : one.about), el("td", {}, one.via))));
  }

  /** A task has changed: somebody may have decided. */
  async taskChanged() {
    try { await this.loadAudit(); } catch (error) { setText(this.problem, error.message); }
  }

  row(one) {
    const gone = one.revoked_at !== null;
    const about = [`may ${one.rights.join(", ") || "nothing"}`, `sees ${SCOPES[one.scope]}`, one.teams.length ? `in ${one.teams.join(", ")}` : "", one.mail].filter(Boolean).join("; ");
    const button = (text, act) => el("button", { type: "button", class: "danger", onclick: act }, text);
    const keys = one.keys.map((key) => el("li", {}, `key ${key.label}, made `, el("time", { title: exact(key.made_at) }, ago(key.made_at)), " ",
      button(`Revoke key ${key.label}`, () => this.act(`people/${encodeURIComponent(one.name)}/keys/${encodeURIComponent(key.label)}`, `The key ${key.label} is revoked.`))));
    return el("li", { class: "ask decided" }, el("h2", {}, one.name, gone ? el("span", { class: "quiet" }, " removed") : null), el("p", { class: "quiet" }, about),
      gone ? null : el("ul", {}, keys),
      gone ? null : el("div", { class: "buttons" }, el("button", { type: "button", onclick: () => this.edit(one) }, `Change ${one.name}…`), one.name === this.who.name ? null : button(`Remove ${one.name}`, () => this.removePerson(one))));
  }

  removePerson(one) {
    if (!confirm(`Remove ${one.name} with all keys and sessions?`)) return;
    this.act(`people/${encodeURIComponent(one.name)}`, `${one.name} is removed.`);
  }

  edit(one) {
    const fields = this.form.elements;
    [fields.name.value, fields.mail.value, fields.teams.value, fields.scope.value, fields.key.value] = [one.name, one.mail, one.teams.join(", "), one.scope, ""];
    for (const box of this.form.querySelectorAll("input[name=right]")) box.checked = one.rights.includes(box.value);
    this.form.parentElement.open = true;
    fields.name.focus();
  }

  async act(path, message) {
    setText(this.problem, "");
    try {
      await remove(path);
      say(message);
    } catch (error) { setText(this.problem, error.message); }
    await this.load();
    this.title.focus();
  }

  async keep() {
    const fields = this.form.elements;
    const rights = [...this.form.querySelectorAll("input[name=right]:checked")].map((box) => box.value);
    const wish = { name: fields.name.value.trim(), mail: fields.mail.value.trim(), teams: list(fields.teams.value), rights, scope: fields.scope.value };
    if (fields.key.value.trim()) wish.key = fields.key.value.trim();
    setText(this.problem, "");
    fill(this.made);
    try {
      const made = await post("people", wish);
      say(`${made.name} is saved.`);
      if (made.key) fill(this.made, el("p", {}, `The key of ${made.name}, which is shown only now: `, el("code", {}, made.key)));
      this.form.reset();
      this.form.parentElement.open = false;
    } catch (error) { setText(this.problem, error.message); }
    await this.load();
  }

  /** Nothing is followed; see taskChanged. */
  drop() {}
}

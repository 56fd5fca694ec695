// Decisions that let calls pass without a question: what, by whom, and the way to end it.

import { all, remove } from "./api.js";
import { long } from "./code.js";
import { el, fill, say, setText } from "./dom.js";
import { ago, exact, pretty, shortId } from "./words.js";

function what(one) {
  if (one.covers === "action") return el("p", { class: "quiet" }, ["with any arguments", ...one.flow_rules.map((rule) => `allows the flow ${rule}`)].join("; "));
  const rows = Object.entries(one.arguments || {}).flatMap(([name, item]) =>
    [el("dt", {}, name), el("dd", {}, long(typeof item === "string" ? item : pretty(item)))]);
  return rows.length ? el("dl", { class: "fields" }, rows) : el("p", { class: "quiet" }, "without arguments");
}

export class RememberedView {
  constructor(rights) {
    this.may = rights.includes("decide");
    this.problem = el("p", { class: "bad", role: "alert" });
    this.rows = el("div", { class: "remembered" });
    this.title = el("h1", { tabindex: "-1" }, "Remembered decisions");
    this.node = el("article", { class: "task" }, this.title, this.problem, this.rows);
    this.load();
  }

  async load() {
    const asked = this.asked = (this.asked ?? 0) + 1;
    try {
      const remembered = await all("remembered", "remembered");
      if (asked !== this.asked) return; // a later look is under way, and shows what is newer
      fill(this.rows, remembered.length ? remembered.map((one) => this.row(one))
        : el("p", { class: "quiet" }, "No decision is remembered: delf asks about every call that needs approval."));
    } catch (error) { setText(this.problem, error.message); }
  }

  row(one) {
    const revoke = el("button", { type: "button", class: "danger", onclick: () => this.revoke(one, revoke) }, "Revoke");
    const whose = one.user ? `tasks of ${one.user}` : "tasks of the local user";
    return el("section", { class: "ask decided", "aria-label": one.action },
      el("h3", {}, one.worker ? `${one.worker}: ${one.action}` : one.action), what(one),
      el("p", { class: "quiet" }, `approved by ${one.by} `, el("time", { title: exact(one.at) }, ago(one.at)), " in ",
        el("a", { href: `#/${one.task_id}/${one.request_id}` }, `task ${shortId(one.task_id)}`), `; holds for ${whose} in ${one.project}`),
      this.may ? el("div", { class: "buttons" }, revoke) : null);
  }

  async revoke(one, button) {
    button.disabled = true;
    setText(this.problem, "");
    try {
      await remove(`remembered/${one.request_id}`);
      say(`delf asks about ${one.action} again`);
      await this.load();
      this.title.focus();
    } catch (error) {
      setText(this.problem, error.message);
      button.disabled = false;
    }
  }

  /** A task has changed: somebody may have decided. Whoever is at a button keeps it. */
  taskChanged() {
    if (!this.rows.contains(document.activeElement)) this.load();
  }

  /** Nothing is followed; see taskChanged. */
  drop() {}
}

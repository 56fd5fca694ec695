// The box in which a task is given.

import { post, upload } from "./api.js";
import { el, fill, setText } from "./dom.js";
import { money, short } from "./words.js";

export class Composer {
  constructor({ started, budgets }) {
    this.started = started;
    this.files = [];
    this.words = el("textarea", { id: "words", rows: 2, placeholder: "What should delf do?", "aria-label": "A task, in plain words",
      onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.send(); }, oninput: () => this.grow(),
      onfocus: () => budgets() });
    this.go = el("button", { type: "submit", class: "primary" }, "Run");
    this.pick = el("input", { type: "file", multiple: true, class: "unseen", id: "pick", onchange: () => this.add(this.pick.files) });
    this.chosen = el("p", { class: "quiet chosen" });
    this.earlier = null; // the task that is done again
    this.kept = el("p", { class: "quiet kept" });
    this.budgets = el("p", { class: "quiet budgets" });
    this.problem = el("p", { class: "bad", role: "alert" });
    this.node = el("form", { class: "composer", "aria-label": "Give a task", onsubmit: (event) => { event.preventDefault(); this.send(); } },
      this.words, this.kept, this.chosen, this.budgets, this.problem,
      el("div", { class: "buttons" }, this.go, el("label", { class: "button", htmlFor: "pick" }, "Files…"), this.pick, el("span", { class: "quiet hint" }, "Ctrl+Enter runs it")));
    this.node.addEventListener("dragover", (event) => event.preventDefault());
    this.node.addEventListener("drop", (event) => { event.preventDefault(); this.add(event.dataTransfer.files); });
  }

  grow() {
    this.words.rows = Math.min(10, Math.max(2, this.words.value.split("\n").length));
  }

  add(files) {
    if (this.earlier) { setText(this.problem, "The task keeps its earlier files. “Without them” lets you add your own."); return; }
    this.files.push(...files);
    fill(this.chosen, this.files.map((file) => el("span", {}, short(file.name, 40), " ")),
      this.files.length ? el("button", { type: "button", class: "link", onclick: () => { this.files = []; this.pick.value = ""; fill(this.chosen); } }, "remove all") : null);
  }

  /** Another task is written, or one is done again: with its files, its kind of answer and its conversation. */
  put(task, earlier = null) {
    this.words.value = task;
    this.from(earlier);
    this.grow();
    this.words.focus();
  }

  from(earlier) {
    this.earlier = earlier;
    setText(this.problem, "");
    fill(this.kept, earlier ? ["With the files, the kind of answer and the conversation of the earlier task. ",
      el("button", { type: "button", class: "link", onclick: () => this.from(null) }, "Without them")] : []);
    this.pick.disabled = Boolean(earlier);
    if (earlier && this.files.length) { this.files = []; this.pick.value = ""; fill(this.chosen); }
  }

  /** What is left of the budgets for this month; those that are nearly used up say so first. */
  showBudgets(budgets) {
    const low = (one) => one.left_usd <= one.limit_usd / 5;
    fill(this.budgets, [...budgets].sort((a, b) => low(b) - low(a)).map((one) =>
      el("span", { class: low(one) ? "bad" : "" }, `${one.name}: ${money(one.left_usd)} of ${money(one.limit_usd)} left this month${low(one) ? ", nearly used up" : ""}. `)));
    this.budgets.hidden = !budgets.length;
  }

  async send() {
    const task = this.words.value.trim();
    if (!task) { setText(this.problem, "Say what to do, in plain words."); this.words.focus(); return; }
    this.go.disabled = true;
    setText(this.problem, "");
    try {
      const files = [];
      for (const file of this.files) files.push({ id: (await upload(file)).id });
      const accepted = this.earlier ? await post(`tasks/${this.earlier}/again`, { task }) : await post("run", { task, files });
      this.words.value = "";
      this.from(null);
      this.files = [];
      fill(this.chosen);
      this.grow();
      this.started(accepted.task_id);
    } catch (error) {
      setText(this.problem, error.message);
    } finally { this.go.disabled = false; }
  }
}

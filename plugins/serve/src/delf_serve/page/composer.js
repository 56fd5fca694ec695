// The box in which a task is given.

import { post, upload } from "./api.js";
import { el, fill, setText } from "./dom.js";
import { short } from "./words.js";

export class Composer {
  constructor({ started }) {
    this.started = started;
    this.files = [];
    this.words = el("textarea", { id: "words", rows: 2, placeholder: "What should delf do?", "aria-label": "A task, in plain words",
      onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.send(); }, oninput: () => this.grow() });
    this.go = el("button", { type: "submit", class: "primary" }, "Run");
    this.pick = el("input", { type: "file", multiple: true, class: "unseen", id: "pick", onchange: () => this.add(this.pick.files) });
    this.chosen = el("p", { class: "quiet chosen" });
    this.problem = el("p", { class: "bad", role: "alert" });
    this.node = el("form", { class: "composer", "aria-label": "Give a task", onsubmit: (event) => { event.preventDefault(); this.send(); } },
      this.words, this.chosen, this.problem,
      el("div", { class: "buttons" }, this.go, el("label", { class: "button", htmlFor: "pick" }, "Files…"), this.pick, el("span", { class: "quiet hint" }, "Ctrl+Enter runs it")));
    this.node.addEventListener("dragover", (event) => event.preventDefault());
    this.node.addEventListener("drop", (event) => { event.preventDefault(); this.add(event.dataTransfer.files); });
  }

  grow() {
    this.words.rows = Math.min(10, Math.max(2, this.words.value.split("\n").length));
  }

  add(files) {
    this.files.push(...files);
    fill(this.chosen, this.files.map((file) => el("span", {}, short(file.name, 40), " ")),
      this.files.length ? el("button", { type: "button", class: "link", onclick: () => { this.files = []; this.pick.value = ""; fill(this.chosen); } }, "remove all") : null);
  }

  put(task) {
    this.words.value = task;
    this.grow();
    this.words.focus();
  }

  async send() {
    const task = this.words.value.trim();
    if (!task) { setText(this.problem, "Say what to do, in plain words."); this.words.focus(); return; }
    this.go.disabled = true;
    setText(this.problem, "");
    try {
      const files = [];
      for (const file of this.files) files.push({ id: (await upload(file)).id });
      const order = { task, files };
      const accepted = await post("run", order);
      this.words.value = "";
      this.files = [];
      fill(this.chosen);
      this.grow();
      this.started(accepted.task_id);
    } catch (error) {
      setText(this.problem, `${error.message}${error.hint ? ` — ${error.hint}` : ""}`);
    } finally { this.go.disabled = false; }
  }
}

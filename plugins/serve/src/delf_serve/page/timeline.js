// Where the time went: steps, models and calls over the seconds of the task.

import { el, fill, setText } from "./dom.js";
import { count, duration } from "./words.js";

const MOST = 60;

export class Timeline {
  constructor() {
    this.rows = el("ol", { class: "timeline" });
    this.calls = el("canvas", { class: "call-bars", height: 24, "aria-hidden": "true" });
    this.message = el("p", { class: "quiet" });
    this.node = el("details", { class: "part" }, el("summary", {}, el("h2", {}, "Timeline")), this.rows, this.calls, this.message);
    this.node.addEventListener("toggle", () => this.story && this.update(this.story));
  }

  update(story) {
    this.story = story;
    if (!this.node.open || story.startedAt === null) return;
    const from = story.startedAt;
    const all = Math.max(0.001, (story.lastAt ?? from) - from);
    const bar = (name, at, ms, kind) => {
      const left = Math.max(0, Math.min(100, ((at - from) / all) * 100));
      const width = Math.max(0.3, Math.min(100 - left, ((ms ?? (story.lastAt - at) * 1000) / 1000 / all) * 100));
      const line = el("span", { class: `span ${kind}` });
      line.style.marginLeft = `${left}%`;
      line.style.width = `${width}%`;
      return el("li", {}, el("span", { class: "span-name" }, name), el("span", { class: "track" }, line), el("span", { class: "span-time" }, duration(ms)));
    };
    const scripts = story.chapters.map((one) => bar(`script ${one.attempt}`, one.at, one.duration, "script-span"));
    const steps = story.steps.filter((one) => one.duration === null || one.duration >= 1 || one.kind !== "step").slice(0, MOST)
      .map((one) => bar(one.name, one.at, one.duration, one.kind));
    fill(this.rows, steps, scripts);
    const calls = [...story.calls.values()].filter((call) => call.at !== null);
    this.calls.hidden = !calls.length;
    setText(this.message, calls.length ? `${count(calls.length, "call")}, each a mark: ${duration(calls.reduce((sum, call) => sum + (call.duration || 0), 0))} together` : "");
    if (calls.length) this.draw(calls, from, all);
  }

  draw(calls, from, all) {
    const { calls: canvas } = this;
    const width = canvas.width = Math.max(200, canvas.clientWidth || 600);
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(canvas);
    const good = style.getPropertyValue("--accent");
    const bad = style.getPropertyValue("--bad");
    for (const call of calls) {
      pen.fillStyle = call.status === "ok" || call.status === "running" ? good : bad;
      pen.fillRect(((call.at - from) / all) * width, 2, Math.max(1, ((call.duration || 0) / 1000 / all) * width), 20);
    }
  }
}

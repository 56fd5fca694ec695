// What the model saw: each model call with its messages, its answer and what it cost.

import { Refused, get } from "./api.js";
import { long } from "./code.js";
import { el, fill } from "./dom.js";
import { count, duration, exact, money } from "./words.js";

const ROLES = { system: "Rules", user: "To the model", assistant: "The model before" };
const PURPOSES = { generate: "for a script", prefilter: "to choose actions", summarize: "to shorten a conversation", call: "asked by the script",
  learn: "to learn facts", outline: "for a plan" };
const MOST = 20;

const tokens = (usage) => [
  `${usage.input_tokens.toLocaleString()} in${usage.cached_tokens ? ` (${usage.cached_tokens.toLocaleString()} cached)` : ""}`,
  `${usage.output_tokens.toLocaleString()} out${usage.reasoning_tokens ? ` (${usage.reasoning_tokens.toLocaleString()} reasoning)` : ""}`,
].join(", ");

function message(one, isNew) {
  return el("li", { class: isNew ? "sent new" : "sent" }, el("h3", {}, ROLES[one.role] || one.role, isNew ? el("span", { class: "quiet" }, " · new in this call") : null),
    el("pre", { class: "words", tabindex: "0" }, long(one.text, 3000)));
}

function promptOf(prompt) {
  const head = [`model ${prompt.model.split("/").at(-1)}`, PURPOSES[prompt.purpose] || prompt.purpose, duration(prompt.duration_ms), prompt.answer === null || prompt.replayed ? "" : money(prompt.cost_usd),
    prompt.replayed ? "replayed: not asked again, and free" : prompt.answer === null ? "" : `${tokens(prompt.usage)} tokens`].filter(Boolean).join(" · ");
  const body = el("div", { class: "prompt-body" });
  const node = el("details", { class: "prompt", ontoggle: () => node.open && !body.childElementCount && draw() },
    el("summary", {}, el("span", { class: "call-name" }, `Model call ${prompt.number}`), " ", el("span", { class: "quiet", title: exact(prompt.at) }, head)), body);
  const draw = () => {
    const kept = prompt.messages;
    const same = kept ? kept.filter((one) => one.same) : [];
    const fresh = kept ? kept.filter((one) => !one.same) : [];
    fill(body,
      kept ? null : el("p", { class: "quiet" }, "The messages of this call are not kept, or are no longer kept."),
      same.length ? el("details", { class: "same" }, el("summary", {}, `${count(same.length, "message")} as in the previous call`), el("ol", {}, same.map((one) => message(one, false)))) : null,
      el("ol", {}, fresh.map((one) => message(one, prompt.number > 1 && same.length > 0))),
      prompt.tools.length ? el("p", { class: "quiet" }, `Functions: ${prompt.tools.join(", ")}`) : null,
      el("h3", {}, prompt.error ? "It failed" : "Answer"),
      el("pre", { class: "words", tabindex: "0" }, long(prompt.error || prompt.answer || "It has not answered yet.", 6000)),
      prompt.calls.length ? el("ul", {}, prompt.calls.map((call) => el("li", {}, el("code", {}, `${call.name} ${call.arguments}`)))) : null,
      prompt.reply_id ? el("p", { class: "quiet" }, "The provider’s id of this answer: ", el("code", {}, prompt.reply_id)) : null,
      prompt.finish_reason && prompt.finish_reason !== "stop" ? el("p", { class: "quiet" }, `It ended with “${prompt.finish_reason}”.`) : null);
  };
  return node;
}

export class Prompts {
  constructor(taskId) {
    this.place = `tasks/${encodeURIComponent(taskId)}/prompts`;
    this.list = el("div", { class: "prompts" });
    this.more = el("button", { type: "button", class: "link", hidden: true, onclick: () => this.load() }, "show more");
    this.node = el("details", { class: "seen", ontoggle: () => this.node.open && this.load() },
      el("summary", {}, el("h2", {}, "What the model saw")), this.list, this.more);
    this.shown = 0;
  }

  async load() {
    if (this.loading) return;
    this.loading = true;
    try {
      const found = await get(`${this.place}?limit=${MOST}&offset=${this.shown}`);
      if (!this.shown && !found.prompts.length) fill(this.list, el("p", { class: "quiet" }, "No model was asked yet."));
      else if (!this.shown) fill(this.list, found.prompts.map(promptOf));
      else this.list.append(...found.prompts.map(promptOf));
      this.shown += found.prompts.length;
      this.more.hidden = !found.more;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      fill(this.list, el("p", {}, error.message));
    } finally {
      this.loading = false;
    }
  }

  /** Open it, and go there. */
  show() {
    this.node.open = true;
    this.node.scrollIntoView({ block: "start", behavior: "instant" });
    this.node.firstChild.focus({ preventScroll: true });
  }

  /** The task has gone on: whoever looks at it again sees what is new. */
  grew() {
    if (this.node.open && this.more.hidden) this.load();
  }
}

// A question for a person: what will be done in plain sight, and the ways to answer.

import { get, post } from "./api.js";
import { long } from "./code.js";
import { el, fill, say, setText } from "./dom.js";
import { ago, effectClass, effectOf, exact, pretty, short, value } from "./words.js";

export const DONE = { approved: "approved", edited: "edited and approved", rejected: "rejected", expired: "expired", already_done: "it did happen" };

/** What happened to a request that nobody has decided. */
const EXPIRED = { sandbox_died: ": the sandbox of its script ended before anybody answered", given_up: ": its script stopped waiting for the call before anybody answered",
  timeout: ": nobody answered in time", changed: ": something else would be done now, so it is asked again" };

/** What a decision lets pass. */
function remembered(decided) {
  if (!decided.remember || decided.remember === "no") return "";
  const what = decided.covers === "action" ? "every call of this action is allowed" : "the same call is allowed";
  return `; ${what} ${decided.remember === "task" ? "in this task" : "until somebody revokes this"}`;
}

function sentence(question) {
  if (question.code) return `May this script run? It uses ${question.actions.join(", ")}.`;
  if (question.outcome_unknown && question.reason) return `${question.action}: ${question.reason}. Should delf make the call again?`;
  if (question.outcome_unknown) return `${question.action} was begun before its process died. Should delf make the call again?`;
  return `May the script call ${question.action}?`;
}

/** Where the values of an argument came from, a line for each origin. */
function origins(question, name) {
  const told = new Map();
  for (const [path, origin] of Object.entries(question.origins || {})) {
    if (path.split(/[.[]/, 1)[0] !== name) continue;
    const where = path.slice(name.length);
    const key = `${origin.trust} ${origin.text}`;
    if (!told.has(key)) told.set(key, { origin, paths: [] });
    if (where) told.get(key).paths.push(where);
  }
  return [...told.values()].map(({ origin, paths }) => {
    const shown = paths.slice(0, 5).join(", ") + (paths.length > 5 ? ` and ${paths.length - 5} more` : "");
    return el("p", { class: origin.trust === "outside" || origin.is_new ? "origin warn" : "origin quiet" }, `${shown ? `${shown}: ` : ""}${short(origin.text, 400)}`);
  });
}

/** What a person should look at before they approve, as `ApprovalRequest.caution` says it; the first sentence is strong. */
export function caution(question) {
  if (!question.flow) return null;
  const at = question.flow.indexOf(": ");
  const path = question.flow.slice(0, at);
  const origin = question.origins?.[path];
  if (origin?.trust !== "outside") return el("p", { class: "caution" }, el("strong", {}, "Careful: others’ words may be behind this call."), ` ${question.flow}`);
  const where = question.flow.slice(at + 2).split(";", 1)[0];
  return el("p", { class: "caution" }, el("strong", {}, `Careful: others wrote this ${path.split(/[.[]/, 1)[0]}${origin.is_new ? ", and it was never used before" : ""}.`),
    ` It is ${where}, not from the task.`);
}

/** A field of an argument: text as text, all else as JSON. */
class Field {
  constructor(name, given, check) {
    this.name = name;
    this.isText = typeof given === "string";
    this.before = this.isText ? given : pretty(given);
    const lines = Math.min(12, Math.max(1, this.before.split("\n").length));
    this.input = el("textarea", { id: `field-${crypto.randomUUID?.() ?? Math.random()}`, rows: lines,
      value: this.before, spellcheck: false, "aria-describedby": "", oninput: () => { this.mark(); check(); } });
    this.was = el("p", { class: "was quiet" });
    this.node = el("div", { class: "field" },
      el("label", { htmlFor: this.input.id }, name, this.isText ? null : el("span", { class: "quiet" }, " as JSON")), this.input, this.was);
    this.was.hidden = true;
  }

  get changed() { return this.input.value !== this.before; }

  get value() { return this.isText ? this.input.value : JSON.parse(this.input.value); }

  mark() {
    this.was.hidden = !this.changed;
    setText(this.was, this.changed ? `was: ${short(this.before, 300)}` : "");
    this.node.classList.toggle("changed", this.changed);
  }
}

/** Fields of a request that the card words and places itself, or that say nothing to a person. */
const PLACED = new Set(["request_id", "task_id", "task", "call_id", "action", "permission", "effect", "arguments",
  "defaults", "description", "digest", "action_digest", "shown_digest", "files_digest", "reason", "preview", "outcome_unknown",
  "changed", "code", "actions", "effects", "script", "because", "changes", "changes_before", "made_before", "line",
  "worker", "origins", "flow", "message", "at", "decided", "chapter", "asked_by", "rule", "votes", "escalated", "again"]);

/** Every other field by its name, so that a new one shows without a line here. */
function others(question) {
  return Object.entries(question)
    .filter(([name, item]) => !PLACED.has(name) && item !== null && item !== false && item !== "")
    .filter(([, item]) => typeof item !== "object" || Object.keys(item).length)
    .map(([name, item]) => el("p", {}, `${name.replaceAll("_", " ")}: ${typeof item === "string" ? item : pretty(item)}`));
}

export class Card {
  constructor(question, rights) {
    this.question = question;
    this.may = this.mayAtAll = rights.includes("decide");
    this.fields = new Map();
    this.editing = false;
    const [shape, words] = effectOf(question.effect);
    this.id = `ask-${question.request_id}`;
    this.effect = el("p", { class: `effect ${effectClass(question.effect)}` }, `${shape} ${words}`);
    this.body = el("div", { class: "ask-body" });
    this.extra = el("div", { class: "ask-extra" });
    this.problem = el("p", { class: "bad", role: "alert" });
    this.buttons = el("div", { class: "buttons" });
    this.outcome = el("p", { class: "outcome" });
    this.rule = el("p", { class: "quiet" });
    this.node = el("section", { class: `ask ${effectClass(question.effect)}`, id: this.id, tabindex: "-1", "aria-label": sentence(question), onkeydown: (event) => this.key(event) },
      el("div", { class: "ask-head" }, el("h3", {}, sentence(question)), this.effect),
      question.description ? el("p", { class: "quiet" }, `the script says: ${question.description}`) : null,
      caution(question),
      question.reason ? el("p", {}, `Why approval is needed: ${question.reason}`) : null,
      question.changed ? el("p", { class: "warn" }, "The call has changed since it was shown. This is the call that would be made now.") : null,
      question.again ? el("p", { class: "quiet" }, `This is asked again. The question before it expired${EXPIRED[question.again] || ""}.`) : null,
      others(question),
      this.body, this.extra, this.rule, this.problem, this.buttons, this.outcome);
    this.show();
    this.update();
    if (!question.decided) this.stands();
    if (!question.decided && this.may && Object.keys(question.rule || {}).length) this.ask();
  }

  /** Ask whether the reader may decide under the team's rule: the server knows. */
  async ask() {
    this.may = false;
    fill(this.buttons);
    this.update();
    try {
      const known = await get(`approvals/${this.question.request_id}`);
      this.may = this.mayAtAll && known.can_decide;
      this.whyNot = known.why_not;
    } catch (error) { this.whyNot = error.message; }
    this.update();
  }

  /** The rule in words, with who has approved so far. */
  ruled() {
    const { rule = {}, votes = [], escalated = [] } = this.question;
    const parts = [];
    if (rule.approvers) parts.push(`${rule.approvers.join(" or ")} may decide`);
    if (rule.two_of) parts.push(`two of ${rule.two_of.join(", ")} have to approve`);
    if (rule.four_eyes) parts.push(`${this.question.asked_by} asked for the task and may not approve`);
    if (escalated.length) parts.push(`nobody decided in time, so ${escalated.join(" or ")} may decide, too`);
    for (const vote of votes) parts.push(`${vote.by} has approved`);
    return parts.join("; ");
  }

  /** What is asked, as it was asked. */
  show() {
    const { question } = this;
    const parts = [];
    this.unseen = 0;
    if (question.code) parts.push(el("ul", { "aria-label": "what its actions do" }, question.actions.map((name) => {
      const [shape, words] = effectOf(question.effects?.[name] || question.effect);
      return el("li", { class: "quiet" }, el("code", {}, name), ` ${shape} ${words}`);
    })));
    if (question.code) parts.push(el("pre", { class: "value", tabindex: "0" }, this.part(question.code, 8000)));
    if (question.preview) parts.push(el("p", { class: "quiet" }, "What would happen"), el("pre", { class: "value", tabindex: "0" }, this.part(question.preview, 8000)));
    const row = ([name, item], note = "") =>
      [el("dt", {}, name), el("dd", {}, this.part(typeof item === "string" ? item : pretty(item)), note ? el("span", { class: "quiet" }, ` ${note}`) : origins(question, name))];
    const rows = [...Object.entries(question.arguments || {}).flatMap((one) => row(one)),
      ...Object.entries(question.defaults || {}).flatMap((one) => row(one, "left out by the script"))];
    if (rows.length) parts.push(el("div", { role: "group", "aria-label": "arguments" }, el("dl", { class: "fields" }, rows)));
    fill(this.body, parts);
  }

  /** A text of the question; what of it is not shown is counted. */
  part(text, most) {
    let before = 0;
    return long(text, most, (left) => {
      this.unseen += left - before;
      before = left;
      this.label();
    });
  }

  /** A yes says what of the question was not shown. */
  label() {
    if (!this.approve) return;
    const yes = this.question.outcome_unknown ? "Make it again" : "Approve";
    setText(this.approve, this.unseen ? `${yes}, ${this.unseen.toLocaleString()} characters unseen` : yes);
  }

  /** Where the task stood when it asked. */
  stands() {
    const { made_before: before, changes = [], changes_before: earlier = 0 } = this.question;
    if (before) this.extra.append(el("p", { class: "warn" }, `The same call was made before in this task (call ${before}).`));
    if (!changes.length) return;
    this.extra.append(el("details", {}, el("summary", {}, `What this task has changed so far: ${changes.length + earlier}`),
      el("ul", {}, earlier ? el("li", { class: "quiet" }, `… ${earlier} before these`) : null, changes.map((line) => el("li", {}, line)))));
  }

  update() {
    const { question } = this;
    const decided = question.decided;
    this.node.classList.toggle("decided", Boolean(decided));
    if (!decided) {
      const asked = question.escalated?.length || 0;
      if (this.asked !== undefined && this.asked !== asked) { this.asked = asked; this.ask(); return; } // more people may decide now
      this.asked = asked;
      if (!this.buttons.childElementCount) this.offer();
      setText(this.rule, this.ruled());
      setText(this.outcome, this.may ? "" : this.whyNot ? `You cannot decide this: ${this.whyNot}.` : "Your key has no right to decide.");
      return;
    }
    if (this.shownDecision) return;
    this.shownDecision = true;
    fill(this.buttons);
    fill(this.extra);
    setText(this.problem, "");
    if (this.editing) { this.editing = false; this.show(); }
    const how = DONE[decided.decision] || decided.decision;
    const why = decided.decision === "expired" ? EXPIRED[decided.source] || "" : "";
    const others = decided.others?.length ? ` and ${decided.others.join(", ")}` : "";
    const instead = decided.instead_of?.length ? `, in the place of ${decided.instead_of.join(", ")}` : "";
    const by = decided.decision === "expired" ? why : ` by ${decided.by}${others}${instead}${decided.via ? ` (${decided.via})` : ""}`;
    fill(this.outcome, el("strong", {}, `${how}${by}`), " ", el("time", { title: exact(decided.at) }, ago(decided.at)),
      decided.reason && !why ? `: ${short(decided.reason, 400)}` : "", remembered(decided));
    if (decided.arguments) {
      for (const [name, item] of Object.entries(decided.arguments)) {
        if (value(item) === value(question.arguments[name])) continue;
        this.outcome.append(el("span", { class: "edit" }, `${name} became ${short(value(item), 300)}`));
      }
    }
  }

  offer() {
    if (!this.may) return;
    const { question } = this;
    const button = (text, kind, act, more = {}) => el("button", { type: "button", class: kind, onclick: act, ...more }, text);
    this.approve = button("", "primary", () => {
      const [remember, covers] = (this.remember?.value || "no call").split(" ");
      this.send({ decision: "approve", remember, covers });
    });
    this.label();
    const nodes = [this.approve, button("Reject…", "", () => this.askReason())];
    if (!question.code && !question.outcome_unknown && !question.rule?.two_of) nodes.push(button("Edit…", "", () => this.edit()));
    if (question.outcome_unknown) nodes.push(button("It did happen…", "", () => this.askResult()));
    if (!question.outcome_unknown && !question.code && !Object.keys(question.rule || {}).length) {
      this.remember = el("select", { "aria-label": "Remember" },
        el("option", { value: "no call" }, "only this once"),
        el("option", { value: "task call" }, "the same call again in this task"),
        el("option", { value: "task action" }, `every ${question.action} in this task`),
        el("option", { value: "until_revoked call" }, "the same call until it is revoked"),
        el("option", { value: "until_revoked action" }, `every ${question.action} until it is revoked`));
      nodes.push(this.remember);
    }
    fill(this.buttons, nodes);
  }

  edit() {
    this.editing = true;
    for (const [name, item] of Object.entries(this.question.arguments)) this.fields.set(name, new Field(name, item, () => this.typed()));
    fill(this.body, [...this.fields.values()].map((field) => field.node));
    this.apply = el("button", { type: "button", class: "primary", onclick: () => this.sendEdit() }, "Approve as edited");
    fill(this.buttons, this.apply, el("button", { type: "button", onclick: () => this.back() }, "Back"));
    this.apply.disabled = true;
    [...this.fields.values()][0]?.input.focus();
  }

  back() {
    this.editing = false;
    setText(this.problem, "");
    fill(this.buttons);
    this.show();
    this.offer();
    this.approve?.focus();
  }

  edited() {
    const changed = {};
    for (const field of this.fields.values()) {
      if (!field.changed) continue;
      try { changed[field.name] = field.value; } catch (error) { throw new Error(`${field.name}: it is not JSON (${error.message})`); }
    }
    return changed;
  }

  /** Look at what was typed; the server checks the arguments when they are sent. */
  typed() {
    this.apply.disabled = true;
    let changed;
    try { changed = this.edited(); } catch (error) { setText(this.problem, error.message); return; }
    setText(this.problem, "");
    this.apply.disabled = !Object.keys(changed).length;
  }

  sendEdit() {
    this.send({ decision: "edit", arguments: this.edited() });
  }

  askReason() {
    const reason = el("textarea", { rows: 2, placeholder: "your reason; the script and the model can read it", "aria-label": "Reason" });
    const go = () => this.send({ decision: "reject", reason: reason.value.trim() || null });
    fill(this.buttons, reason, el("button", { type: "button", class: "danger", onclick: go }, "Reject"),
      el("button", { type: "button", onclick: () => { fill(this.buttons); this.offer(); this.approve?.focus(); } }, "Back"));
    reason.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go(); });
    reason.focus();
  }

  /** What an interrupted call returned, which the script gets in place of a call. */
  askResult() {
    const result = el("textarea", { rows: 2, placeholder: "the call's result, as JSON or a text; empty if it returns nothing", "aria-label": "Result" });
    const note = el("input", { type: "text", placeholder: "how you know that it happened; kept in the journal", "aria-label": "Note" });
    const go = () => {
      const text = result.value.trim();
      let given = text || null;
      try { given = text ? JSON.parse(text) : null; } catch { /* it is a text */ }
      this.send({ decision: "settle", result: given, reason: note.value.trim() || null });
    };
    fill(this.buttons, result, note, el("button", { type: "button", class: "primary", onclick: go }, "It did happen"),
      el("button", { type: "button", onclick: () => { fill(this.buttons); this.offer(); this.approve?.focus(); } }, "Back"));
    result.focus();
  }

  async send(answer) {
    for (const node of this.buttons.querySelectorAll("button, select, textarea")) node.disabled = true;
    setText(this.problem, "");
    try {
      const decided = await post(`approvals/${this.question.request_id}`, answer);
      say(`${DONE[decided.decision] || decided.decision}`);
      if (decided.is_final === false) await this.ask(); // another person has to, too
    } catch (error) {
      setText(this.problem, `${error.message}${error.hint ? ` — ${error.hint}` : ""}`);
      if (error.status !== 409) for (const node of this.buttons.querySelectorAll("button, select, textarea")) node.disabled = false;
    }
  }

  /** Letters answer while the card itself has the focus; Enter never approves from here. */
  key(event) {
    if (event.target !== this.node || event.ctrlKey || event.metaKey || event.altKey || !this.approve?.isConnected) return;
    if (event.key === "r") this.askReason();
    else if (event.key === "e" && !this.question.code && !this.question.outcome_unknown) this.edit();
    else if (event.key === "a") this.approve.focus();
    else return;
    event.preventDefault();
  }
}

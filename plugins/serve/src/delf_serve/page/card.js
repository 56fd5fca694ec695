// A question for a person: its facts as the server words them, and the ways to answer. A task and the inbox show the same.

import { get, post } from "./api.js";
import { long } from "./code.js";
import { DECISIONS, EXPIRIES } from "./decisions.js";
import { el, fill, say, setText } from "./dom.js";
import { ago, effectClass, exact, parsed, pretty, short, value } from "./words.js";

/** Whether another person has to approve a call once it is edited. */
const needsOthers = (rule) => Boolean(rule?.four_eyes || rule?.two_of);

/** Why nobody has decided a request, after a colon; empty if unknown. */
const expiryNote = (source) => (EXPIRIES[source] ? `: ${EXPIRIES[source]}` : "");

/** What a decision lets pass. */
function remembered(decided) {
  if (!decided.remember || decided.remember === "no") return "";
  const what = decided.covers === "action" ? "every call of this action is allowed" : "the same call is allowed";
  return `; ${what} ${decided.remember === "task" ? "in this task" : "until somebody revokes this"}`;
}

/** Facts that stand elsewhere on the card, each in a place of its own. */
const PLACED = new Set(["question", "effect"]);
/** Facts that are part of what would be done: they stand together, under the rest. */
const DONE_WITH = new Set(["argument", "option", "default", "origin", "code", "file", "preview"]);
/** Facts of a request that come after it. */
const REACTIONS = new Set(["comment", "assignee"]);
const WEIGHTS = { danger: "caution", caution: "warn", information: "quiet" };
const BAR_PADDING = 8; // of the buttons that stay in sight, as in style.css
const MOST = 4000;
const MOST_OF_A_BLOCK = 8000;
const MOST_OF_A_COMMENT = 4000;

/** What a fact is called, with its note. */
const heading = (fact) => `${fact.label}${fact.note ? ` (${fact.note})` : ""}`;

/** The value of an argument as people read it: a text as it is, and other values as JSON over as many lines as they need. */
function laidOut(fact, given) {
  if (typeof given === "string") return fact.text;
  try { return pretty(parsed(fact.text)); } catch { return fact.text; }
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

  get value() { return this.isText ? this.input.value : parsed(this.input.value); }

  mark() {
    this.was.hidden = !this.changed;
    setText(this.was, this.changed ? `was: ${short(this.before, 300)}` : "");
    this.node.classList.toggle("changed", this.changed);
  }
}

export class Card {
  /**
   * A request, from the events of its task or from the list of all that waits.
   *
   * `around` has the kinds of facts that already stand around the card, `level` is its heading's, `changed` is called when it is known who may decide,
   * `sent` when the reader has decided, and `more` makes further buttons.
   */
  constructor(question, rights, { around = [], level = "h3", changed = () => {}, sent = () => {}, more = () => [] } = {}) {
    this.question = question;
    this.rights = rights;
    this.around = new Set(around);
    this.tell = { changed, sent, more };
    this.fields = new Map();
    this.editing = false;
    this.id = `ask-${question.request_id}`;
    this.effect = el("p", { class: `effect ${effectClass(question.effect)}` });
    this.title = el(level, {});
    this.notes = el("div", { class: "ask-notes" });
    this.body = el("div", { class: "ask-body" });
    this.setting = el("div", { class: "ask-notes" });
    this.problem = el("p", { class: "bad", role: "alert" });
    this.buttons = el("div", { class: "buttons" });
    new ResizeObserver(() => this.shorten()).observe(this.buttons);
    this.outcome = el("p", { class: "outcome" });
    // No landmark: a hundred requests that sound alike are none.
    this.node = el("div", { role: "group", class: `ask ${effectClass(question.effect)}`, id: this.id, tabindex: "-1", onkeydown: (event) => this.key(event) },
      el("div", { class: "ask-head" }, this.title, this.effect), this.notes, this.body, this.setting, this.problem, this.buttons, this.outcome);
    this.know(question);
    this.update();
    if (!question.decided && this.may === null) this.ask();
  }

  /** The facts of the request; comments and the assignee come with the events of its task. */
  get facts() {
    const { facts = [], reactions } = this.question;
    if (!reactions) return facts;
    const isLast = (fact) => fact.kind === "expiry"; // where the inbox has it
    return [...facts.filter((fact) => !REACTIONS.has(fact.kind) && !isLast(fact)), ...reactions, ...facts.filter(isLast)];
  }

  /** Take what the server says of the request and of the reader; without a rule, the right to decide is all it takes. */
  know(known) {
    const isRuled = Object.keys(this.question.rule || {}).length > 0;
    const can = this.rights.includes("decide");
    // Whoever asked may answer a question, and a team's rule may exclude the reader: only the server knows.
    const isForServer = !this.question.decided && (can ? isRuled : this.question.is_question);
    if (known.can_decide !== undefined) { this.may = known.can_decide; this.mayReject = known.can_reject; }
    else if (isForServer) { this.may = null; this.mayReject = false; }
    else this.may = this.mayReject = can;
    this.mayTalk = known.can_talk ?? (can || this.rights.includes("run"));
    this.whyNot = known.why_not;
    if (known.facts) this.question.facts = known.facts;
    this.show();
  }

  /** Ask whether the reader may decide under the team's rule, and who has approved so far: the server knows. */
  async ask() {
    try {
      const known = await get(`approvals/${this.question.request_id}`);
      if (this.question.decided || this.editing) return;
      this.take(known);
    } catch (error) {
      this.whyNot = error.message;
      this.take({});
    }
  }

  /** Show what the server says now; a form stays, and its "Back" leads to the buttons as they are then. */
  take(known) {
    if (known.facts) this.know(known);
    if (!this.isWriting) {
      const hadFocus = this.buttons.contains(document.activeElement);
      fill(this.buttons);
      if (hadFocus) this.focusCard();
    }
    this.update();
    this.tell.changed();
  }

  /** What is asked, as it was asked. */
  show() {
    const { facts, question } = this;
    const of = (kind) => facts.find((fact) => fact.kind === kind);
    const [asked, effect] = [of("question"), of("effect")];
    setText(this.title, asked?.text ?? question.action);
    setText(this.effect, effect ? `${effect.note} ${effect.text}` : "");
    this.node.setAttribute("aria-label", this.title.textContent);
    this.unseen = 0;
    const visibleFacts = facts.filter((fact) => !PLACED.has(fact.kind) && !this.around.has(fact.kind));
    const notes = visibleFacts.filter((fact) => !DONE_WITH.has(fact.kind));
    const first = notes.filter((fact) => fact.weight !== "information").map((fact) => this.note(fact));
    if (question.again) first.push(el("p", { class: "quiet" }, `This is asked again. The question before it expired${expiryNote(question.again)}.`));
    fill(this.notes, first);
    fill(this.setting, notes.filter((fact) => fact.weight === "information").map((fact) => this.note(fact)));
    if (!this.editing) fill(this.body, this.done(visibleFacts.filter((fact) => DONE_WITH.has(fact.kind))));
    this.label();
  }

  /** A fact in a line, or under its heading where it is longer; what need not be seen is folded. */
  note(fact) {
    const isLong = fact.text.includes("\n");
    if (isLong && !fact.required) return el("details", {}, el("summary", {}, heading(fact)), el("pre", { class: "value", tabindex: "0" }, long(fact.text, MOST_OF_A_BLOCK)));
    if (isLong) return el("div", { class: WEIGHTS[fact.weight] }, el("p", {}, heading(fact)), el("pre", { class: "value", tabindex: "0" }, this.part(fact.text, MOST_OF_A_BLOCK)));
    const name = fact.weight === "information" ? `${heading(fact)}: ` : [el("strong", {}, `${heading(fact)}:`), " "];
    return el("p", { class: WEIGHTS[fact.weight], "data-fact": fact.kind }, name, this.part(fact.text, MOST));
  }

  /** What would be done: the arguments with their sources, the script, the files, the preview. */
  done(facts) {
    const parts = [];
    const rows = [];
    for (const fact of facts) {
      if (fact.kind === "option") {
        rows.push(el("dt", {}, fact.label), el("dd", {}, this.part(fact.text, MOST)));
      } else if (fact.kind === "argument" || fact.kind === "default") {
        const given = (fact.kind === "argument" ? this.question.arguments : this.question.defaults)?.[fact.about];
        rows.push(el("dt", {}, fact.label, fact.note ? el("span", { class: "quiet" }, ` (${fact.note})`) : null), el("dd", {}, this.part(laidOut(fact, given), MOST)));
      } else if (fact.kind === "origin" && rows.length) {
        rows.at(-1).append(el("p", { class: `origin ${fact.weight === "information" ? "quiet" : "warn"}` }, `${fact.label}: ${fact.text}`));
      } else if (fact.kind === "file") {
        parts.push(el("p", {}, `${heading(fact)}: `, el("strong", {}, fact.text)));
      } else {
        parts.push(el("div", {}, el("p", { class: "quiet" }, heading(fact)), el("pre", { class: "value", tabindex: "0" }, this.part(fact.text, MOST_OF_A_BLOCK))));
      }
    }
    const list = rows.length ? [el("div", { role: "group", "aria-label": this.question.is_question ? "options" : "arguments" }, el("dl", { class: "fields" }, rows))] : [];
    return [...list, ...parts];
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
    if (this.question.is_question) { setText(this.approve, this.unseen ? `Answer, ${this.unseen.toLocaleString()} characters unseen` : "Answer"); return; }
    const yes = this.question.outcome_unknown ? "Make it again" : "Approve";
    setText(this.approve, this.unseen ? `${yes}, ${this.unseen.toLocaleString()} characters unseen` : yes);
  }

  /** Whether a yes to several requests at once may be a yes to this one: nothing about it wants a look of its own. */
  get isPlain() {
    return !this.unseen && !this.question.code && !this.question.is_question && !this.facts.some((fact) => fact.required && fact.weight === "danger" && !PLACED.has(fact.kind));
  }

  /** Whether another person has to approve the call once it is edited. */
  get needsOthers() { return needsOthers(this.question.rule); }

  /** Whether a form is open, in which the reader may have written. */
  get isWriting() { return this.buttons.querySelector("textarea, input, select[aria-label='Assign to']") !== null; }

  /** On a phone the buttons stay in sight, of several rows the first alone: the facts need the room. */
  shorten() {
    const first = this.buttons.firstElementChild;
    const below = !first || this.isWriting ? 0 : this.buttons.offsetHeight - first.offsetHeight - 2 * BAR_PADDING;
    this.buttons.style.setProperty("--below", `${-Math.max(0, below)}px`);
  }

  /** Whether it waits for the reader. */
  get waits() { return !this.question.decided && this.may === true; }

  update() {
    const { question } = this;
    const decided = question.decided;
    this.node.classList.toggle("decided", Boolean(decided));
    if (!decided) {
      const votes = question.votes?.length || 0;
      if (this.votes !== undefined && this.votes !== votes) { this.votes = votes; this.ask(); return; } // others may decide now, or there is a vote
      this.votes = votes;
      if (this.reactions !== question.reactions) { this.reactions = question.reactions; this.show(); }
      if (!this.buttons.childElementCount) this.offer();
      const why = this.whyNot ? `You cannot ${question.is_question ? "answer" : "approve"} this: ${this.whyNot}.` : "You have no right to decide.";
      setText(this.outcome, this.may === false ? why : "");
      return;
    }
    if (this.reactions !== question.reactions) { this.reactions = question.reactions; this.show(); }
    if (this.shownDecision) return;
    this.shownDecision = true;
    fill(this.buttons);
    setText(this.problem, "");
    if (this.editing) { this.editing = false; this.show(); }
    const again = decided.decision === "edited" && this.needsOthers;
    const how = DECISIONS[decided.decision];
    const why = decided.decision === "expired" ? expiryNote(decided.source) : "";
    const others = decided.others?.length ? ` and ${decided.others.join(", ")}` : "";
    const by = decided.decision === "expired" ? why : ` by ${decided.by}${others}${decided.via ? ` (${decided.via})` : ""}`;
    fill(this.outcome, el("strong", {}, `${how}${by}`), " ", el("time", { title: exact(decided.at) }, ago(decided.at)),
      decided.reason && !why ? `: ${short(decided.reason, 400)}` : "", again ? "; another person has to approve it as it is now" : "", remembered(decided));
    if (decided.answer !== null && decided.answer !== undefined) this.outcome.append(el("span", { class: "edit" }, short(value(decided.answer), 2000)));
    if (decided.arguments) {
      for (const [name, item] of Object.entries(decided.arguments)) {
        if (value(item) === value(question.arguments[name])) continue;
        this.outcome.append(el("span", { class: "edit" }, `${name} became ${short(value(item), 300)}`));
      }
    }
  }

  /** Whether the reader may ask for changes: a model has to be there that can plan again. */
  get canAsk() { return this.mayReject && this.question.takes_changes === true; }

  get canEdit() { return this.may === true && !this.question.code && !this.question.outcome_unknown && !this.question.is_question; }

  offer() {
    const { question } = this;
    const button = (text, kind, act, more = {}) => el("button", { type: "button", class: kind, onclick: act, ...more }, text);
    const nodes = [];
    this.approve = this.remember = null;
    if (this.may && question.is_question) {
      const field = this.answerField();
      const go = () => { if (field.value.trim()) this.send({ decision: "answer", answer: field.value }); else field.focus(); };
      field.addEventListener("keydown", (event) => { if (event.key === "Enter" && (field.tagName === "INPUT" || event.ctrlKey || event.metaKey)) go(); });
      this.approve = button("", "primary", go);
      this.label();
      nodes.push(field, this.approve);
    } else if (this.may) {
      this.approve = button("", "primary", () => {
        // The values of the options are pairs: for how long, and for which calls.
        const [remember, covers] = (this.remember?.value || "no call").split(" ");
        this.send({ decision: "approve", remember, covers });
      });
      this.label();
      nodes.push(this.approve);
      if (question.outcome_unknown) nodes.push(button("It did happen…", "", () => this.askResult()));
    }
    if (this.mayReject) nodes.push(button(question.is_question ? "Answer nothing…" : "Reject…", "", () => this.askReason()));
    if (this.canEdit) nodes.push(button("Edit…", "", () => this.edit()));
    if (this.canAsk) nodes.push(button("Ask for changes…", "", () => this.askChanges()));
    if (this.mayTalk) nodes.push(button("Comment…", "", () => this.askComment()), button("Assign…", "", () => this.askAssignee()));
    nodes.push(...this.tell.more());
    if (this.may && !question.is_question && !question.outcome_unknown && !question.code && !Object.keys(question.rule || {}).length) {
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

  /** The field for the answer to a question: the options, yes and no, a number, or a text. */
  answerField() {
    const asked = this.question.arguments || {};
    const choices = asked.options?.length ? asked.options : asked.answer === "yes/no" ? ["yes", "no"] : [];
    if (choices.length) {
      return el("select", { "aria-label": "Answer" }, el("option", { value: "" }, "choose…"), choices.map((choice) => el("option", { value: choice }, choice)));
    }
    if (asked.answer === "number") return el("input", { type: "number", step: "any", "aria-label": "Answer", placeholder: "a number" });
    return el("textarea", { rows: 2, "aria-label": "Answer", placeholder: "your answer; the script gets it as it is" });
  }

  edit() {
    if (this.editing) return;
    this.editing = true;
    for (const [name, item] of Object.entries(this.question.arguments)) this.fields.set(name, new Field(name, item, () => this.typed()));
    fill(this.body, [...this.fields.values()].map((field) => field.node));
    this.apply = el("button", { type: "button", class: "primary", onclick: () => this.sendEdit() }, this.needsOthers ? "Edit, for another person to approve" : "Approve as edited");
    fill(this.buttons, this.apply, el("button", { type: "button", onclick: () => this.back() }, "Back"));
    this.apply.disabled = true;
    [...this.fields.values()][0]?.input.focus();
  }

  back() {
    this.editing = false;
    setText(this.problem, "");
    fill(this.buttons);
    this.show();
    this.leave();
  }

  /** Go back from a form to the buttons. */
  leave() {
    fill(this.buttons);
    setText(this.problem, "");
    this.offer();
    this.focusCard();
  }

  /** Focus the card, where letters answer, and no button: the next Enter must not approve what was not looked at. */
  focusCard() {
    this.node.closest("[tabindex]").focus();
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
    this.askText("Reason", "your reason; the script and the model can read it", "danger", "Reject", (reason) => this.send({ decision: "reject", reason: reason || null }));
  }

  askChanges() {
    this.askText("Changes", "what should change? Nothing is done, and the model plans again with it", "primary", "Ask for changes", (reason) => this.send({ decision: "request_changes", reason }), true);
  }

  askComment() {
    this.askText("Comment", "a comment for people; the model does not read it", "primary", "Comment", (text) => this.talk("comments", { text }, "commented"), true);
  }

  /** A form for a text, which Ctrl+Enter sends. */
  askText(name, placeholder, look, words, act, required = false) {
    const text = el("textarea", { rows: 2, placeholder, "aria-label": name, maxLength: name === "Comment" ? MOST_OF_A_COMMENT : 10_000 });
    const go = () => {
      const given = text.value.trim();
      if (given || !required) act(given);
      else { setText(this.problem, `${name}: write something first`); text.focus(); }
    };
    fill(this.buttons, text, el("button", { type: "button", class: look, onclick: go }, words), el("button", { type: "button", onclick: () => this.leave() }, "Back"));
    text.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go(); });
    text.focus();
  }

  /** Choose who looks at it, among those who may approve it. */
  async askAssignee() {
    let people;
    try { ({ people } = await get(`approvals/${this.question.request_id}/assignable`)); } catch (error) { setText(this.problem, error.message); return; }
    const now = this.facts.find((fact) => fact.kind === "assignee")?.text ?? "";
    const choice = el("select", { "aria-label": "Assign to" }, el("option", { value: "" }, "nobody"), people.map((name) => el("option", { value: name, selected: name === now }, name)));
    const go = () => this.talk("assignee", { person: choice.value || null }, choice.value ? `assigned to ${choice.value}` : "assigned to nobody");
    fill(this.buttons, choice, el("button", { type: "button", class: "primary", onclick: go }, "Assign"), el("button", { type: "button", onclick: () => this.leave() }, "Back"),
      people.length ? null : el("span", { class: "quiet" }, "Nobody else may approve this."));
    choice.focus();
  }

  /** Say something about the request, which stays open. */
  async talk(what, body, words) {
    const nodes = [...this.buttons.querySelectorAll("button, select, textarea")];
    for (const node of nodes) node.disabled = true;
    setText(this.problem, "");
    try {
      const known = await post(`approvals/${this.question.request_id}/${what}`, body);
      say(words);
      if (this.question.decided) return;
      this.know(known);
      if (nodes[0].isConnected) this.leave(); // else the reader has opened another form meanwhile
    } catch (error) {
      setText(this.problem, error.message);
      for (const node of nodes) node.disabled = false;
    }
  }

  /** What an interrupted call returned, which the script gets in place of a call. */
  askResult() {
    const result = el("textarea", { rows: 2, placeholder: "the call's result, as JSON or a text; empty if it returns nothing", "aria-label": "Result" });
    const note = el("input", { type: "text", placeholder: "how you know that it happened; kept in the journal", "aria-label": "Note" });
    const go = () => {
      const text = result.value.trim();
      let given = text || null;
      try { given = text ? parsed(text) : null; } catch { /* it is a text */ }
      this.send({ decision: "settle", result: given, reason: note.value.trim() || null });
    };
    fill(this.buttons, result, note, el("button", { type: "button", class: "primary", onclick: go }, "It did happen"),
      el("button", { type: "button", onclick: () => this.leave() }, "Back"));
    result.focus();
  }

  async send(answer) {
    for (const node of this.buttons.querySelectorAll("button, select, textarea")) node.disabled = true;
    setText(this.problem, "");
    try {
      const decided = await post(`approvals/${this.question.request_id}`, answer);
      say(decided.decision === "edited" && this.needsOthers ? "edited; another person has to approve it" : DECISIONS[decided.decision]);
      if (decided.is_final === false) await this.ask(); // another person has to, too
      this.tell.sent(decided.is_final !== false);
    } catch (error) {
      setText(this.problem, error.message);
      if (error.status !== 409) for (const node of this.buttons.querySelectorAll("button, select, textarea")) node.disabled = false;
    }
  }

  /** Letters answer while the card itself has the focus; Enter never approves from here. */
  key(event) {
    if (event.target !== this.node || event.ctrlKey || event.metaKey || event.altKey) return;
    if (this.press(event.key)) event.preventDefault();
  }

  /** Do what a letter stands for, and tell whether it stands for something. */
  press(letter) {
    if (this.question.decided) return false;
    if (letter === "r" && this.mayReject) this.askReason();
    else if (letter === "c" && this.canAsk) this.askChanges();
    else if (letter === "m" && this.mayTalk) this.askComment();
    else if (letter === "s" && this.mayTalk) this.askAssignee();
    else if (letter === "e" && this.canEdit) this.edit();
    else if (letter === "a" && this.approve?.isConnected) this.approve.focus();
    else return false;
    return true;
  }
}

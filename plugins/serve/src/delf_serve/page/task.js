// One task: its words, its answer, its scripts with what they did, and a slider to replay it.

import { Refused, Stream, get, post } from "./api.js";
import { Card } from "./card.js";
import { ChapterView, long, valueNodes } from "./code.js";
import { DECISIONS } from "./decisions.js";
import { el, fill, say, setText, takeAsFile } from "./dom.js";
import { filesOf } from "./files.js";
import { Prompts } from "./prompts.js";
import { AT_WORK, LIMIT_CODES, STATE } from "./states.js";
import { Story } from "./story.js";
import { answer } from "./text.js";
import { Thread } from "./thread.js";
import { Timeline } from "./timeline.js";
import { ago, count, duration, exact, money, shortId, size, stateOf } from "./words.js";

const TAIL = 8_000;
/** Of a long task so many characters and lines are its title, so that what was done is in sight. */
const TITLE = 240;
const TITLE_LINES = 3;
/** The first question that waits, whatever its id. */
export const FIRST = "first";
const PAID = new Set(["ModelReplied", "ChildFinished", "TaskFinished"]);

export class TaskView {
  constructor(taskId, session, { connected, again, gone }) {
    this.id = taskId;
    this.session = session;
    this.tell = { connected, again, gone };
    this.events = [];
    this.at = null; // the event up to which a replay shows; null for all
    this.make();
    this.reset();
    this.follow();
    this.clock = setInterval(() => this.tick(), 1000);
  }

  follow() {
    this.stream = new Stream(`tasks/${encodeURIComponent(this.id)}/events`, {
      message: (events) => this.take(events),
      broken: (over) => this.tell.connected(false, over),
      whole: () => this.tell.connected(true),
    }, this.events.at(-1)?.seq);
  }

  make() {
    this.state = el("span", { class: "state" });
    this.title = el("h1", { tabindex: "-1" });
    this.meta = el("p", { class: "meta" });
    this.figures = el("p", { class: "figures" });
    this.meter = el("div", { class: "meter", role: "img" }, el("span", {}));
    this.actions = el("div", { class: "buttons ways" });
    this.jump = el("button", { type: "button", class: "jump", hidden: true, onclick: () => this.goToQuestion() });
    this.error = el("div", { class: "failure", role: "alert" });
    this.warnings = el("ul", { class: "warnings" });
    this.answer = el("section", { class: "answer", "aria-label": "Answer" });
    this.files = el("ul", { class: "files", "aria-label": "Files" });
    this.story = el("div", { class: "chapters" });
    this.timeline = new Timeline();
    this.prompts = new Prompts(this.id);
    this.thread = new Thread(this.id, this.session.rights.includes("run"));
    this.replay = this.makeReplay();
    this.past = el("p", { class: "past-note", role: "status" });
    this.node = el("article", { class: "task" },
      el("div", { class: "top" }, el("a", { class: "back", href: "#/" }, "‹ Tasks"), this.state, this.figures, this.meter, this.past),
      this.thread.before, this.title, this.meta, this.actions, this.jump, this.error, this.answer, this.files, this.thread.next, this.warnings, this.story, this.timeline.node, this.prompts.node, this.replay);
  }

  makeReplay() {
    this.slider = el("input", { type: "range", min: 0, max: 0, value: 0, id: "replay", oninput: () => this.seek(Number(this.slider.value)) });
    this.moment = el("output", { htmlFor: "replay", class: "quiet" });
    this.forkModel = el("select", { "aria-label": "The model that continues", hidden: true },
      el("option", { value: "" }, "with the same model"), this.session.models.map((name) => el("option", { value: name }, `with ${name}`)));
    this.forkHere = el("button", { type: "button", hidden: true, onclick: () => this.fork() }, "Continue from here as a new task");
    this.play = el("button", { type: "button", onclick: () => this.toggle() }, "Play");
    return el("section", { class: "replay", "aria-label": "Replay", hidden: true },
      el("label", { htmlFor: "replay" }, "Replay"), this.play, this.slider, this.moment, this.forkHere, this.forkModel);
  }

  reset() {
    this.progress = new Story();
    this.chapters = [];
    this.cards = new Map();
    this.shownPrints = -1;
    fill(this.story);
  }

  take(events) {
    if (!events.length) return;
    this.events.push(...events);
    if (events.some((event) => PAID.has(event.type))) {
      this.askBudget();
      this.prompts.grew();
    }
    this.slider.max = this.events.length;
    if (this.at !== null) return; // a replay shows the events up to its own
    this.slider.value = this.events.length;
    for (const event of events) this.progress.apply(event);
    this.drawSoon();
    if (this.progress.over) this.stream.close();
  }

  /** Draw at once until there is a script, then once for all events of some moments: a task may have thousands. */
  drawSoon() {
    if (this.drawing) return;
    this.drawing = true;
    setTimeout(() => requestAnimationFrame(() => { this.drawing = false; if (!this.dropped) this.draw(); }), this.chapters.length ? 60 : 0);
  }

  draw() {
    const { progress } = this;
    if (this.isInterrupted && this.at === null && !progress.over) progress.state = STATE.INTERRUPTED;
    for (const [n, chapter] of progress.chapters.entries()) {
      let view = this.chapters[n];
      if (!view) {
        view = this.chapters[n] = new ChapterView(chapter, n + 1);
        this.story.append(view.node);
      }
      view.update();
    }
    const ways = `${progress.chapters.length > 0} ${progress.models.length > 0}`; // a script can be changed once it is there
    if (this.shownWays !== ways) {
      this.shownWays = ways;
      this.drawActions();
    }
    for (const question of progress.questions.values()) this.drawQuestion(question);
    this.drawHead();
    this.drawAnswer();
    this.thread.know(this.conversation, progress.startedAt);
    this.thread.update(progress.over && this.at === null);
    this.timeline.update(progress);
    this.replay.hidden = !(progress.over || this.at !== null);
    this.drawMoment();
  }

  drawHead() {
    const { progress } = this;
    const [shape, words] = stateOf(progress.state, this.waitsForYou);
    const replayed = this.at !== null;
    const state = `${progress.state} ${words}`;
    if (this.shownState !== state || this.shownReplayed !== replayed) {
      this.shownReplayed = replayed;
      if (this.shownState && !replayed) say(`The task is ${words}.`);
      this.shownState = state;
      this.node.dataset.state = progress.state;
      fill(this.state, el("span", { "aria-hidden": "true" }, shape), ` ${replayed ? `then: ${words}` : words}`);
      fill(this.past, replayed ? ["This is a replay: it shows how the task was, and does nothing. ",
        el("button", { type: "button", class: "link", onclick: () => this.leaveReplay() }, "Show how it is")] : []);
      this.drawActions();
    }
    if (this.shownTask !== progress.task) {
      this.shownTask = progress.task;
      const lines = progress.task.split("\n", TITLE_LINES).join("\n").length;
      fill(this.title, long(progress.task, Math.min(TITLE, lines)));
      document.title = `${progress.task.slice(0, 60)} · delf`;
    }
    this.drawFigures();
    this.drawMeta();
    this.drawQuestionsJump();
    if (progress.warnings.length !== this.warnings.childElementCount) {
      fill(this.warnings, progress.warnings.slice(-20).map((text) => el("li", {}, long(text, 500))));
    }
    const failed = progress.error && progress.state === STATE.FAILED ? progress.error : null;
    if (this.shownError !== failed) {
      this.shownError = failed;
      this.error.hidden = !failed;
      if (failed) fill(this.error, el("p", {}, el("strong", {}, "Why it failed "), long(failed, 2000)), progress.errorHint ? el("p", {}, long(progress.errorHint, 2000)) : null, el("p", { class: "quiet" }, progress.errorCode || ""));
    }
  }

  /** Whether the agent's budget is shown: not to those who see only some tasks. */
  get hasBudget() { return (this.session.budget?.limit_usd ?? null) !== null; }

  /** Which task it is, who asked for it, which model worked on it, and who decided what. */
  drawMeta() {
    const { progress } = this;
    const models = [...new Set(progress.models.map((one) => one.model.split("/").at(-1)))];
    const decided = new Map(); // what was decided → by whom, and the first of these
    for (const { request_id: id, decided: one } of progress.questions.values()) {
      if (!one || one.decision === "expired") continue;
      const how = DECISIONS[one.decision];
      const known = decided.get(how) || decided.set(how, { id, by: new Set() }).get(how);
      for (const name of [one.by, ...(one.others || [])]) known.by.add(name);
    }
    const parts = [["task ", el("code", { title: this.id }, shortId(this.id))]];
    if (progress.startedAt) parts.push([el("time", { title: exact(progress.startedAt) }, ago(progress.startedAt))]);
    if (progress.askedBy) parts.push([`asked by ${progress.askedBy}${progress.askedFrom ? ` from ${progress.askedFrom}` : ""}`]);
    for (const [decision, { id, by }] of decided) {
      parts.push([el("button", { type: "button", class: "link", onclick: () => this.goToQuestion(id) }, `${decision} by ${[...by].join(", ")}`)]);
    }
    if (progress.stoppedBy) parts.push([`stopped by ${progress.stoppedBy}`]);
    if (models.length) parts.push([`model: ${models.join(", ")}`]);
    if (progress.sandbox) parts.push([`sandbox: ${progress.sandbox}`]);
    if (progress.parent) parts.push([el("a", { href: `#/${progress.parent}` }, "part of another task")]);
    const nodes = parts.map((part, n) => el("span", {}, n ? " · " : "", part));
    const text = nodes.map((node) => node.textContent).join("");
    if (this.shownMeta !== text) { this.shownMeta = text; fill(this.meta, nodes); } // a link may have the focus
  }

  drawFigures() {
    const { progress } = this;
    const stands = progress.over || this.at !== null || progress.state === STATE.INTERRUPTED;
    const now = stands ? progress.lastAt : Date.now() / 1000;
    const spent = progress.startedAt ? duration((now - progress.startedAt - progress.idle) * 1000) : "";
    const budget = this.hasBudget ? this.session.budget : null;
    const left = budget ? `${money(budget.left_usd)} of the budget of ${money(budget.limit_usd)} left` : "";
    setText(this.figures, [spent, money(progress.cost), left, count(progress.calls.size, "call"), progress.changed ? `${progress.changed} changed something` : ""].filter(Boolean).join(" · "));
    this.meter.hidden = !budget;
    if (budget) {
      const share = Math.min(100, (budget.cost_usd / budget.limit_usd) * 100);
      this.meter.firstChild.style.width = `${share}%`;
      this.meter.setAttribute("aria-label", `${Math.round(share)} % of the agent's budget is spent`);
      this.meter.title = budget.tasks.map((one) => `${shortId(one.task_id)} ${money(one.cost_usd)}`).join("\n");
    }
  }

  /** Ask what is left of the budget, at most once at a time. */
  async askBudget() {
    if (!this.hasBudget || this.askingBudget) return;
    this.askingBudget = true;
    try {
      this.session.budget = await get("budget");
      if (!this.dropped) this.drawFigures();
    } catch (error) {
      if (!(error instanceof Refused)) throw error; // the figures stay as they were last known
    } finally {
      this.askingBudget = false;
    }
  }

  drawActions() {
    if (this.actions.querySelector(".own-script")) return; // what is being written stays
    const { progress } = this;
    if (this.at !== null) { fill(this.actions); return; } // what is replayed cannot be stopped
    const may = this.session.rights.includes("run");
    const button = (text, act, kind = "") => el("button", { type: "button", class: kind, onclick: act }, text);
    const nodes = [];
    if (may && AT_WORK.includes(progress.state)) nodes.push(button("Stop", () => this.act("cancel")));
    // A task that ended at its timeout or budget may go on.
    const goesOn = progress.state === STATE.FAILED && LIMIT_CODES.includes(progress.errorCode);
    if (may && (goesOn || this.isInterrupted)) nodes.push(button("Resume", () => this.act("resume"), "primary"));
    if (may && progress.over) {
      nodes.push(button("Run again", () => this.tell.again(progress.task, this.id)));
      if (this.session.models.length) nodes.push(this.withModel());
      if (progress.chapters.length) nodes.push(button("Change the script…", () => this.changeScript()));
    }
    if (progress.state === STATE.DONE && this.session.rights.includes("decide")) nodes.push(button("Keep as a routine", () => { location.hash = `#/routines/${this.id}`; }));
    if (progress.over) nodes.push(el("a", { class: "button", href: `#/compare/${this.id}` }, "Compare…"));
    if (progress.models.length) nodes.push(button("What the model saw", () => this.prompts.show()));
    fill(this.actions, nodes);
  }

  /** The same task by another model, of those that the server offers; with its files, its kind of answer and its conversation. */
  withModel() {
    const choose = el("select", { "aria-label": "Run again with another model", onchange: () => { if (choose.value) this.start(`tasks/${this.id}/again`, { llm: choose.value }); } },
      el("option", { value: "" }, "Run again with another model…"), this.session.models.map((name) => el("option", { value: name }, name)));
    return choose;
  }

  /** A new task in which another script runs in place of the last one; what was done before it is not done again. */
  changeScript() {
    const words = el("textarea", { rows: 12, "aria-label": "The script", spellcheck: false });
    words.value = this.progress.chapters.at(-1).code;
    const form = el("form", { class: "own-script", "aria-label": "Another script", onsubmit: (event) => { event.preventDefault(); this.start(`tasks/${this.id}/fork`, { script: words.value }); } },
      words, el("p", { class: "quiet" }, "It replaces the last script, in a new task. Its calls need the same approvals as always."),
      el("div", { class: "buttons" }, el("button", { type: "submit", class: "primary" }, "Run this script"), el("button", { type: "button", onclick: () => { fill(this.actions); this.drawActions(); } }, "Cancel")));
    fill(this.actions, form);
    words.focus();
  }

  async start(path, order) {
    try {
      const made = await post(path, order);
      location.hash = `#/${made.task_id}`;
    } catch (error) {
      fill(this.error, el("p", {}, error.message));
      this.error.hidden = false;
    }
  }

  /** Whether its process is gone; an event after the journal was asked says that another one goes on. */
  get isInterrupted() { return this.record?.state === STATE.INTERRUPTED && this.record.events >= this.progress.seq; }

  /** What the journal says of it, beside its events: whether its process is gone. */
  know(record) {
    this.record = record;
    this.conversation ??= record.conversation_id;
    if (!this.progress.seq) { // its events have not come yet
      Object.assign(this.progress, { task: record.task, state: record.state });
      this.drawHead();
      return;
    }
    if (this.at !== null || this.progress.over) return;
    if (record.events < this.progress.seq) return; // an answer that was on its way for long
    if (record.state === STATE.INTERRUPTED || this.progress.state === STATE.INTERRUPTED) this.progress.state = record.state;
    this.drawHead();
    this.drawActions();
  }

  async act(what) {
    try {
      await post(`tasks/${this.id}/${what}`);
      if (what === "resume") {
        this.progress.state = STATE.RUNNING;
        this.record = null;
        if (this.stream.closed) this.follow(); // the task had ended
        this.draw();
      }
    } catch (error) {
      fill(this.error, el("p", {}, error.message));
      this.error.hidden = false;
    }
  }

  drawQuestion(question) {
    let card = this.cards.get(question.request_id);
    if (card && card.question.at !== question.at) { // asked again under its name, as after the death of a sandbox
      const again = this.cardOf(question);
      card.node.replaceWith(again.node);
      this.cards.set(question.request_id, card = again);
    }
    if (!card) {
      card = this.cardOf(question);
      this.cards.set(question.request_id, card);
      const view = this.chapters.find((one) => one.chapter === question.chapter);
      if (view) view.place(question, card.node);
      else this.story.prepend(card.node);
      if (this.wanted === FIRST && !question.decided && this.at === null) this.wanted = question.request_id;
      // Only when the other questions are drawn, too: they would move this one.
      if (this.wanted === question.request_id) setTimeout(() => this.goToQuestion(question.request_id), 50);
    }
    card.update();
  }

  cardOf(question) {
    return new Card(question, this.at === null ? this.session.rights : [], { around: ["task", "line"], level: question.chapter ? "h3" : "h2", changed: () => this.drawHead() });
  }

  /** The questions that wait for the reader, as far as that is known. */
  get mine() { return this.progress.waiting.filter((question) => this.cards.get(question.request_id)?.waits); }

  get waitsForYou() {
    const isAsked = this.progress.waiting.some((question) => (this.cards.get(question.request_id)?.may ?? null) === null);
    return this.mine.length > 0 || (isAsked && Boolean(this.record?.waits_for_you));
  }

  drawQuestionsJump() {
    const waiting = this.at === null ? this.progress.waiting : [];
    const { mine } = this;
    const some = mine.length ? mine : waiting;
    this.jump.hidden = !some.length;
    setText(this.jump, some.length ? `${mine.length ? "◆" : "◇"} ${count(some.length, "request waits", "requests wait")} for ${mine.length ? "you" : "others"}: go to ${some.length === 1 ? "it" : "the first"}` : "");
  }

  goToQuestion(name = (this.mine[0] ?? this.progress.waiting[0])?.request_id) {
    this.wanted = name;
    const node = name && this.cards.get(name)?.node;
    if (!node || this.dropped) return;
    if (!node.isConnected || !node.offsetHeight) { setTimeout(() => this.goToQuestion(name), 50); return; }
    const tall = node.offsetHeight > this.node.parentNode.clientHeight * 0.7;
    node.scrollIntoView({ block: tall ? "start" : "center", behavior: "instant" });
    node.focus({ preventScroll: true });
  }

  drawAnswer() {
    const { progress } = this;
    const ready = progress.answer !== null;
    if (this.shownPrints === progress.printed && this.shownReady === ready && this.shownOver === progress.over) return;
    this.shownPrints = progress.printed;
    this.shownReady = ready;
    this.shownOver = progress.over;
    this.answer.hidden = !progress.printed && !ready;
    if (ready) {
      const isData = progress.value !== null && progress.value !== undefined;
      fill(this.answer, el("h2", {}, "Answer"), progress.isProse && !isData ? el("p", { class: "quiet" }, "answered without tools") : null, ...(isData ? valueNodes(progress.value) : answer(progress.answer)), !isData && progress.answer.length > 20_000 ? this.takeButton(progress.answer, "answer.txt") : null,
        this.printsApart(isData));
    } else {
      this.livePrints ??= el("span", {});
      this.live ??= el("pre", { class: "prints live", tabindex: "0", role: "region", "aria-label": "Prints" }, this.livePrints);
      setText(this.livePrints, progress.tail(TAIL));
      if (this.live.parentNode !== this.answer) fill(this.answer, this.liveHead ??= el("h2", {}), this.printedNote ??= el("p", { class: "quiet" }), this.live);
      setText(this.liveHead, progress.over ? "Prints until it ended" : "Prints so far");
      fill(this.printedNote, progress.printed > TAIL ? [`the last part of ${size(progress.printed)} of prints `, this.takeButton(() => progress.tail(1e9), "prints.txt")] : []);
    }
    const files = [...progress.files];
    if (files.length !== this.files.childElementCount) fill(this.files, filesOf(this.id, files));
  }

  /** What the scripts printed, folded, where the answer is something else. */
  printsApart(isData) {
    const { progress } = this;
    if (!progress.printed || (!isData && progress.prints.join("").trim() === progress.answer.trim())) return null;
    const scripts = progress.chapters.filter((chapter) => chapter.prints.length);
    const box = el("div", { class: "prints-of" });
    const drawn = () => scripts.map((chapter) => {
      const text = chapter.prints.join("");
      return el("section", { "aria-label": `Prints of script ${chapter.attempt}` }, el("h3", {}, `Script ${chapter.attempt} `, el("span", { class: "quiet" }, size(text.length))),
        el("pre", { class: "prints", tabindex: "0" }, text.slice(-TAIL)), text.length > TAIL ? el("p", { class: "quiet" }, `the last part of ${size(text.length)} `, this.takeButton(text, `prints-${chapter.attempt}.txt`)) : null);
    });
    const node = el("details", { class: "part prints-apart", ontoggle: () => node.open && !box.childElementCount && fill(box, drawn()) },
      el("summary", {}, el("h2", {}, "Prints of the scripts"), " ", el("span", { class: "quiet" }, `${size(progress.printed)}`)), box);
    return node;
  }

  takeButton(text, name) {
    return el("button", { type: "button", class: "link", onclick: () => takeAsFile(name, typeof text === "string" ? text : text()) }, "save as a file");
  }

  // -- replay ----------------------------------------------------------------------------

  seek(n) {
    const end = n >= this.events.length;
    const from = this.at ?? this.events.length;
    this.at = end ? null : n;
    if (n < from || this.progress.seq === 0) {
      this.reset();
      this.shownState = undefined;
      for (const event of this.events.slice(0, n)) this.progress.apply(event);
    } else {
      for (const event of this.events.slice(from, n)) this.progress.apply(event);
    }
    this.node.classList.toggle("past", this.at !== null);
    this.draw();
  }

  leaveReplay() {
    this.pause();
    this.seek(this.events.length);
    this.slider.value = this.events.length;
    this.title.focus();
  }

  drawMoment() {
    const { progress } = this;
    const total = this.events.length;
    const shown = this.at ?? total;
    const ms = progress.lastAt && progress.startedAt ? duration((progress.lastAt - progress.startedAt - progress.idle) * 1000) : "";
    setText(this.moment, `event ${shown} of ${total}${ms ? ` · ${ms}` : ""}`);
    this.forkHere.hidden = !(this.at && this.session.rights.includes("run"));
    this.forkModel.hidden = this.forkHere.hidden || !this.session.models.length;
    this.slider.setAttribute("aria-valuetext", `event ${shown} of ${total}`);
  }

  /** A new task that has been what this one was up to the event that is shown. */
  fork() {
    this.pause();
    const order = { at: this.events[this.at - 1].seq };
    if (this.forkModel.value) order.llm = this.forkModel.value;
    this.start(`tasks/${this.id}/fork`, order);
  }

  toggle() {
    if (this.playing) { this.pause(); return; }
    if (this.at === null) { this.seek(0); this.slider.value = 0; }
    setText(this.play, "Pause");
    const step = Math.max(1, Math.ceil(this.events.length / 200));
    this.playing = setInterval(() => {
      const next = Math.min(this.events.length, (this.at ?? this.events.length) + step);
      this.seek(next);
      this.slider.value = next;
      if (this.at === null) this.pause();
    }, 100);
  }

  pause() {
    clearInterval(this.playing);
    this.playing = null;
    setText(this.play, "Play");
  }

  tick() {
    if (!this.progress.over && this.at === null) this.drawFigures();
  }

  drop() {
    this.dropped = true;
    clearInterval(this.clock);
    this.pause();
    this.stream.drop();
  }
}

/** What is shown where a task cannot be. */
export function missing(taskId, error) {
  return el("article", { class: "task empty" }, el("a", { class: "back", href: "#/" }, "‹ Tasks"),
    el("h1", { tabindex: "-1" }, error.status === 404 ? "There is no such task" : "The task cannot be shown"),
    el("p", {}, error.message), el("p", { class: "quiet" }, taskId.slice(0, 60)));
}


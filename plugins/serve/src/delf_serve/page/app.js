// The page: who looks, which task is open, and whether what is shown is fresh.

import { MOST_BREAKS, Refused, Stream, get, login, logout, pause, session } from "./api.js";
import { CompareView } from "./compare.js";
import { Composer } from "./composer.js";
import { el, fill, setText } from "./dom.js";
import { conditions } from "./filters.js";
import { EvaluationsView } from "./evals.js";
import { FiguresView } from "./figures.js";
import { InboxView, Waiting } from "./inbox.js";
import { List } from "./list.js";
import { RememberedView } from "./remembered.js";
import { RoutinesView } from "./routines.js";
import { SchedulesView } from "./schedules.js";
import { PeopleView } from "./people.js";
import { SessionsView } from "./sessions.js";
import { FIRST, TaskView, missing } from "./task.js";
import { ConversationsView } from "./thread.js";
import { decoded } from "./words.js";

const detail = document.getElementById("detail");
const connection = document.getElementById("connection");

const OTHERS = { schedules: ["schedules", SchedulesView], people: ["people", PeopleView], sessions: ["sessions", SessionsView], conversations: ["conversations", ConversationsView], compare: ["two tasks side by side", CompareView], figures: ["costs and figures", FiguresView], evals: ["evaluations", EvaluationsView] };

const FOLLOW_MS = 1000; // from a change of a task to the next look at what follows from tasks

const PLACES = [["figures", "costs and figures"], ["conversations", "conversations"], ["routines", "routines"], ["schedules", "schedules"], ["evals", "evaluations"], ["remembered", "remembered"]];

const BACK = () => el("a", { class: "back", href: "#/" }, "‹ Tasks");

/** Say how it stands with the server; a button where a person has to act. */
function tell(text, words = "", act = null) {
  fill(connection, text, words ? [" ", el("button", { type: "button", class: "link", onclick: act }, words)] : []);
}

class Page {
  constructor(who) {
    this.who = who;
    const may = who.rights.includes("run");
    this.composer = new Composer({ started: (taskId) => { location.hash = `#/${taskId}`; }, budgets: () => this.askBudgets() });
    this.composer.showBudgets(who.budgets);
    this.list = new List({ composer: may ? this.composer.node : null, failed: (error) => this.broke(error) });
    fill(document.getElementById("list"), this.list.nodes);
    const managed = who.rights.includes("people") && who.scope === "all" && who.login ? [["people", "people"]] : [];
    const places = [...PLACES, ...managed].flatMap(([name, words]) => [" · ", el("a", { href: `#/${name}` }, words)]);
    this.waiting = new Waiting(who);
    // Each view sets the title; the number of requests that wait is put before it again.
    this.titleObserver = new MutationObserver(() => this.waiting.entitle());
    this.titleObserver.observe(document.querySelector("title"), { childList: true });
    fill(document.getElementById("who"), this.waiting.node, ...places, who.model ? el("span", { class: "of-model" }, ` · model: ${who.model}`) : "", who.login ? [` · ${who.name}${who.scope === "all" ? "" : `, sees ${who.scope} tasks`} · `, el("a", { href: "#/sessions" }, "sessions"), " · ", el("button", { type: "button", class: "link", onclick: () => this.leave() }, "log out")] : "");
    this.lost = new Map(); // what has no connection → whether it is not tried any more
    window.ononline = () => this.retry();
    window.onhashchange = () => this.go();
    document.onvisibilitychange = () => this.heed();
    window.addEventListener("delf:wait", this.heedWait = ({ detail }) => this.waits(detail));
    this.list.load();
    this.follow();
    this.go();
  }

  /** Ask what is left of the budgets for this month, if there are any. */
  async askBudgets() {
    if (!this.who.budgets.length) return;
    try {
      this.composer.showBudgets((await session()).budgets);
    } catch (error) {
      if (!(error instanceof Refused)) throw error; // the streams say that the server is gone
    }
  }

  /** Follow the tasks; once the stream is open, load what it does not repeat: the list and what waits. */
  follow() {
    this.changes = new Stream("events", {
      change: (task) => this.change(task),
      broken: (over) => this.connected("list", false, over),
      whole: () => {
        this.lost.delete("ask");
        this.connected("list", true);
        this.list.load().then(() => this.list.mark(this.taskId));
        this.waiting.look();
        this.openInbox?.load();
      },
    });
  }

  /** The inbox, if it is the view that is open. */
  get openInbox() { return this.view instanceof InboxView ? this.view : null; }

  change(task) {
    this.list.change(task);
    this.waiting.lookSoon();
    this.openInbox?.load();
    this.soon ??= setTimeout(() => { this.soon = null; this.view?.taskChanged?.(); }, FOLLOW_MS);
    if (task.task_id === this.taskId) this.view?.know?.(task);
  }

  connected(what, well, over = false) {
    if (well) this.lost.delete(what); else this.lost.set(what, over);
    const broken = this.lost.size > 0;
    const was = document.body.classList.contains("stale");
    document.body.classList.toggle("stale", broken);
    if (!broken) { if (was) this.mended(); return; }
    if ([...this.lost.values()].some(Boolean)) tell("The server cannot be reached. Grey parts may be out of date.", "Try again", () => this.retry());
    else tell("The connection is lost. Grey parts may be out of date. Trying again…");
    // The stream may have broken off because the session is over.
    if (what === "list") session().catch((error) => { if (error.status === 401) window.dispatchEvent(new Event("delf:login")); });
  }

  retry() {
    tell("Trying again…");
    this.changes.retry();
    this.view?.stream?.retry();
  }

  /** The connection is there again: what it may have missed is loaded, and a restart reported. */
  async mended() {
    tell("");
    let known;
    try { known = await session(); } catch { return; } // the streams say so, or the form to log in does
    const restarted = known.server !== this.who.server;
    Object.assign(this.who, known);
    if (!restarted) return;
    tell("The server was restarted. The page has loaded everything again.");
    this.noted = true;
    if (this.openInbox) this.openInbox.load();
    else if (this.view?.know) get(`tasks/${encodeURIComponent(this.taskId)}`).then((task) => this.view?.know?.(task)).catch((error) => this.broke(error));
    else if (!detail.contains(document.activeElement)) { this.taskId = null; this.go(); }
  }

  /** The server has asked to come back in some seconds; 0 when it has answered. */
  waits(seconds) {
    if (seconds) setText(connection, `The server asks to wait for ${seconds} s; the page may be out of date.`);
    else if (this.waited && !this.lost.size) setText(connection, "");
    this.waited = seconds > 0;
  }

  broke(error) {
    if (error.status === 0) this.connected("ask", false);
    else { setText(connection, error.message); this.lost.delete("ask"); }
  }

  async go() {
    if (this.noted && this.taskId !== null) { this.noted = false; tell(""); }
    const [, first = "", asked = ""] = location.hash.split("/").map(decoded);
    if (first === "search") this.list.choose(conditions());
    else if (!first) history.replaceState(null, "", this.list.address);
    const taskId = first === "search" ? "" : first;
    if (taskId === this.taskId && this.view && !(taskId in OTHERS)) { if (asked) this.view.goToQuestion?.(asked); return; }
    this.view?.drop();
    this.view = null;
    this.lost.delete("task");
    this.taskId = taskId;
    document.body.classList.toggle("one", Boolean(taskId));
    this.list.mark(taskId);
    if (!taskId) { this.welcome(); return; }
    if (taskId in OTHERS) { this.other(...OTHERS[taskId]); return; }
    if (taskId === "inbox") { this.inbox(); return; }
    if (taskId === "remembered") { this.remembered(); return; }
    if (taskId === "routines") { this.routines(asked); return; }
    try {
      const known = await get(`tasks/${encodeURIComponent(taskId)}`);
      if (this.taskId !== taskId) return;
      this.open(known, asked);
    } catch (error) {
      fill(detail, missing(taskId, error));
    }
  }

  open(known, asked) {
    this.taskId = known.task_id;
    this.list.mark(known.task_id);
    this.view = new TaskView(known.task_id, this.who, {
      connected: (well, over) => this.connected("task", well, over),
      again: (task, id) => this.composer.put(task, id),
    });
    this.view.know(known);
    const isPhone = matchMedia("(max-width: 800px)").matches;
    this.view.wanted = asked || (isPhone && known.waits_for_you ? FIRST : "");
    fill(detail, this.view.node);
    detail.scrollTop = 0;
    if (isPhone) this.view.title.focus();
  }

  welcome() {
    document.title = "delf";
    const steps = ["A model writes a short script for your task.", "The script runs in a sandbox and calls your tools; you see each line and what it did.",
      "Before a call changes something, delf asks you here."];
    fill(detail, el("article", { class: "task empty" }, el("h1", {}, "Say what to do, in plain words"), el("ol", {}, steps.map((text) => el("li", {}, text)))));
  }

  other(name, View) {
    document.title = `delf: ${name}`;
    this.view = new View(this.who);
    fill(detail, BACK(), this.view.node);
  }

  inbox() {
    document.title = "delf: inbox";
    this.view = new InboxView(this.who);
    fill(detail, BACK(), this.view.node);
    this.view.title.focus({ preventScroll: true });
  }

  remembered() {
    document.title = "delf: remembered decisions";
    this.view = new RememberedView(this.who.rights);
    fill(detail, BACK(), this.view.node);
  }

  routines(wanted) {
    document.title = "delf: routines";
    this.view = new RoutinesView(this.who.rights, { wanted, started: (taskId) => { location.hash = `#/${taskId}`; } });
    fill(detail, BACK(), this.view.node);
  }

  /** A page that nobody sees holds no connections for long: browsers have few for a server. */
  heed() {
    clearTimeout(this.sleep);
    if (document.hidden) {
      this.sleep = setTimeout(() => { this.changes.drop(); this.asleep = true; }, 60_000);
    } else if (this.asleep) {
      this.asleep = false;
      this.follow();
    }
  }

  async leave() {
    await logout();
    location.reload();
  }

  drop() {
    window.removeEventListener("delf:wait", this.heedWait);
    this.waiting.drop();
    this.titleObserver.disconnect();
    this.view?.drop();
    this.changes.drop();
  }
}

let page = null;

function askKey(problem = "", byProvider = false) {
  const draft = page?.composer.words.value;
  page?.drop();
  page = null;
  document.body.classList.remove("stale");
  document.body.classList.add("one"); // on a phone, the form is all that is seen
  setText(connection, "");
  const key = el("input", { type: "password", id: "key", autocomplete: "current-password", required: true });
  const problemText = el("p", { class: "bad", role: "alert" }, problem);
  const form = el("form", { class: "login", onsubmit: async (event) => {
    event.preventDefault();
    try {
      const who = await login(key.value);
      fill(detail);
      page = new Page(who);
      if (draft) page.composer.put(draft);
    } catch (error) { setText(problemText, error.message); key.select(); }
  } }, el("h1", {}, "Log in"), el("label", { htmlFor: "key" }, "API key"), key, problemText, el("button", { type: "submit", class: "primary" }, "Log in"),
  byProvider ? el("a", { class: "button", href: "login/oidc" }, "Log in with your organisation") : null);
  fill(document.getElementById("list"));
  fill(document.getElementById("who"));
  fill(detail, form);
  key.focus();
}

async function begin(tries = 0) {
  try {
    page = new Page(await session());
  } catch (error) {
    if (error.status === 401) { askKey("", error.hint.includes("login/oidc")); return; }
    if (tries >= MOST_BREAKS) { tell(`${error.message}.`, "Try again", () => begin()); return; }
    tell(`${error.message}. Trying again…`);
    setTimeout(() => begin(tries + 1), pause(tries));
    return;
  }
  tell("");
}

/** The session is over: ask how one logs in here, and let them. */
window.addEventListener("delf:login", async () => {
  try {
    await session();
  } catch (error) {
    if (page && error.status === 401) askKey("The session is over. Log in again.", error.hint.includes("login/oidc"));
  }
});
begin();

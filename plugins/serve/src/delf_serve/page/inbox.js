// All that waits for the reader, in one list: looked at, chosen and decided with the keyboard or the mouse.

import { get, post } from "./api.js";
import { Card } from "./card.js";
import { arrange, breathe, el, fill, say, setText } from "./dom.js";
import { ago, count, effectOf, exact, isFinal, short } from "./words.js";

const KEYS = [["j", "next request"], ["k", "previous request"], ["x", "choose the request"], ["a", "go to the Approve button"],
  ["r", "reject, with a reason"], ["c", "ask for changes"], ["e", "edit it"], ["m", "comment"], ["s", "assign it to somebody"], ["o", "open its task"], ["?", "show or hide these keys"]];

const AT_ONCE = 40;
const RESTS = 5; // the share of loading in time is at most one in six

/** What makes requests alike: the same action, asked for by the same person. */
const kind = (one) => `${one.action}\n${one.asked_by}`;

/** A request in the list: the card as its task shows it, with a box to choose it. */
class Row {
  constructor(one, view) {
    this.one = one;
    this.box = el("input", { type: "checkbox", "aria-label": `Choose ${one.action}`, onchange: () => view.chosenChanged() });
    const like = () => [el("button", { type: "button", onclick: () => view.chooseLike(this) }, "Choose all like this")];
    this.card = new Card(one, view.rights, { around: ["task", "asker"], level: "h2", more: like, sent: (isClosed) => view.answered([this], isClosed ? [this] : []) });
    this.card.node.removeAttribute("tabindex"); // the row has the focus
    this.assigned = el("strong", {});
    this.me = view.name;
    this.mark(one);
    this.node = el("li", { class: "inbox-row", tabindex: "-1", "aria-label": this.card.node.getAttribute("aria-label") },
      el("div", { class: "inbox-head" }, this.box, this.assigned, el("span", { class: "quiet" }, `asked by ${one.asked_by}${one.project ? ` in ${one.project}` : ""} · `, el("time", { title: exact(one.since) }, ago(one.since)), " · task: ",
        el("a", { href: `#/${one.task_id}/${one.request_id}` }, short(one.task, 200)))),
      this.card.node);
  }

  /** Take the facts and what the reader may do as they are now; a text in a form stays. */
  renew(one) {
    const changes = (of) => JSON.stringify([of.facts, of.can_decide, of.can_reject, of.can_talk, of.why_not]);
    if (changes(one) === changes(this.one)) return;
    this.one = one;
    this.mark(one);
    if (!this.card.editing) this.card.take(one);
  }

  mark(one) {
    setText(this.assigned, one.assignee === this.me ? "Assigned to you. " : "");
  }
}

export class InboxView {
  constructor({ name, rights }) {
    this.name = name;
    this.rights = rights;
    this.may = rights.includes("decide");
    this.rows = []; // those that wait for the reader, then those that they may only reject
    this.decided = new Set(); // ids; an answer that was on its way may still have them
    this.title = el("h1", { tabindex: "-1" }, "Waiting for you");
    this.shown = el("p", { class: "quiet", role: "status" });
    this.keys = el("dl", { class: "keys", hidden: true }, KEYS.map(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)]).flat());
    this.many = el("div", { class: "buttons many", hidden: true });
    this.list = el("ul", { class: "inbox", "aria-label": "Requests that wait for you" });
    this.othersTitle = el("h2", { hidden: true }, "Waiting for others: you may reject");
    this.others = el("ul", { class: "inbox", "aria-label": "Requests that wait for others" });
    this.node = el("article", { class: "task" }, this.title, this.shown, this.keys, this.many, this.list, this.othersTitle, this.others);
    this.heed = (event) => this.key(event);
    document.addEventListener("keydown", this.heed);
    this.load();
  }

  /** Load again; rows that are still there stay as they are, with what is written in them. */
  async load() {
    if (this.loading) { this.isOld = true; return; }
    this.loading = true;
    try {
      do {
        this.isOld = false;
        const began = performance.now();
        await this.loadOnce();
        // A long inbox is not loaded all the time while many tasks change.
        if (this.isOld) await new Promise((done) => setTimeout(done, RESTS * (performance.now() - began)));
      } while (this.isOld && !this.dropped);
    } catch (error) { setText(this.shown, error.message); } finally { this.loading = false; }
  }

  async loadOnce() {
    const { approvals, more } = await get("approvals?mine=true&rejectable=true&limit=200");
    const made = new Map(this.rows.map((row) => [row.one.request_id, row]));
    for (const [n, one] of approvals.entries()) {
      if (n % AT_ONCE === AT_ONCE - 1) await breathe();
      if (this.dropped) return;
      if (made.has(one.request_id)) made.get(one.request_id).renew(one);
      else made.set(one.request_id, new Row(one, this));
    }
    this.rows = approvals.filter((one) => !this.decided.has(one.request_id)).map((one) => made.get(one.request_id));
    const ours = new Set(approvals.filter((one) => one.can_decide).map((one) => one.request_id));
    const [yours, theirs] = [this.rows.filter((row) => ours.has(row.one.request_id)), this.rows.filter((row) => !ours.has(row.one.request_id))];
    arrange(this.list, yours.map((row) => row.node));
    arrange(this.others, theirs.map((row) => row.node));
    this.othersTitle.hidden = !theirs.length;
    setText(this.shown, yours.length ? `${count(yours.length, "request")}${more ? " and more" : ""}. Press ? for keys.`
      : this.may ? "Nothing waits for you." : "You have no right to decide.");
    this.chosenChanged();
  }

  get chosen() { return this.rows.filter((row) => row.box.checked); }

  chooseLike(row) {
    for (const one of this.rows) if (kind(one.one) === kind(row.one)) one.box.checked = true;
    this.chosenChanged();
    this.many.querySelector("button")?.focus();
  }

  chosenChanged() {
    const chosen = this.chosen;
    this.many.hidden = !chosen.length;
    if (!chosen.length) return;
    const names = [...new Set(chosen.map((row) => row.one.action))].map((name) => short(name, 60)).join(", ");
    const final = chosen.filter((row) => isFinal(row.one.effect));
    const plain = chosen.filter((row) => row.card.isPlain && row.card.may); // the others want a look of their own
    const alone = chosen.length - plain.length;
    fill(this.many, plain.length ? el("button", { type: "button", class: "primary", onclick: () => this.decide(plain, { decision: "approve" }) }, `Approve ${plain.length}`) : null,
      el("button", { type: "button", class: "danger", onclick: () => this.decide(chosen, { decision: "reject", reason: null }) }, `Reject ${chosen.length}`),
      el("span", { class: final.length || alone ? "bad" : "quiet" }, names, final.length ? `; ${final.length} ${effectOf(final[0].one.effect)[1]}` : "", alone ? `; ${count(alone, "request has", "requests have")} to be approved one by one` : ""));
  }

  /** Decide some, one after another; what is refused says why, and stays. */
  async decide(rows, answer) {
    const [done, closed] = [[], []];
    for (const row of rows) {
      const nodes = [...row.card.buttons.querySelectorAll("button")];
      for (const node of nodes) node.disabled = true;
      try {
        const decided = await post(`approvals/${row.one.request_id}`, answer);
        done.push(row);
        if (decided.is_final !== false) closed.push(row);
      } catch (error) {
        setText(row.card.problem, error.message);
        for (const node of nodes) node.disabled = false;
      }
    }
    say(`${count(done.length, "request")} decided`);
    this.answered(done, closed);
  }

  /** Take out what the reader has decided; where another person has to approve, too, the reader may still reject. */
  answered(rows, closed) {
    for (const row of rows) row.box.checked = false;
    for (const row of closed) {
      this.decided.add(row.one.request_id);
      row.node.remove();
    }
    this.rows = this.rows.filter((row) => !closed.includes(row));
    this.chosenChanged();
    window.dispatchEvent(new Event("delf:inbox"));
    (this.rows.find((row) => !rows.includes(row))?.node || this.title).focus();
    if (!this.rows.length || closed.length < rows.length) this.load();
  }

  key(event) {
    const typing = event.target.closest?.("textarea, select, input:not([type=checkbox])");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const at = this.rows.findIndex((row) => row.node.contains(document.activeElement));
    const row = this.rows[at];
    if (event.key === "j") this.rows[Math.min(at + 1, this.rows.length - 1)]?.node.focus();
    else if (event.key === "k") this.rows[Math.max(at - 1, 0)]?.node.focus();
    else if (event.key === "?") this.keys.hidden = !this.keys.hidden;
    else if (!row) return;
    else if (event.key === "x") { row.box.checked = !row.box.checked; this.chosenChanged(); }
    else if (event.key === "o") location.hash = `#/${row.one.task_id}/${row.one.request_id}`;
    else if (!row.card.press(event.key)) return;
    event.preventDefault();
  }

  drop() {
    this.dropped = true;
    document.removeEventListener("keydown", this.heed);
  }
}

/** How many wait for the reader: in the title of the page, in its bar, and as a notification. */
export class Waiting {
  constructor(who) {
    this.who = who;
    const may = this.may = who.rights.includes("decide");
    this.number = null;
    this.link = el("a", { href: "#/inbox" }, "inbox");
    this.ask = el("button", { type: "button", class: "link", hidden: true, onclick: () => this.askLeave() }, "tell me");
    this.ask.title = "Let the browser notify you when a request waits";
    this.node = el("span", {}, this.link, " ", this.ask);
    this.ask.hidden = !may || !("Notification" in window) || Notification.permission !== "default";
    this.heed = () => this.lookSoon();
    window.addEventListener("delf:inbox", this.heed);
  }

  async askLeave() {
    await Notification.requestPermission();
    this.ask.hidden = true;
  }

  lookSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), 300);
  }

  async look() {
    if (!this.may) return;
    let found;
    try { found = await get("waiting"); } catch { return; } // the page says that the connection is lost
    const before = this.number;
    this.number = found.count;
    setText(this.link, this.number ? `inbox (${this.number})` : "inbox");
    this.entitle();
    const isNew = this.who.browser_notices !== false && before !== null && this.number > before;
    if (isNew && document.hidden && "Notification" in window && Notification.permission === "granted") {
      new Notification(`delf: ${count(this.number, "request waits", "requests wait")} for you`, { body: `${found.asked_by}: ${found.action}`, tag: "delf" });
    }
  }

  /** The number stands before the title, whatever that becomes. */
  entitle() {
    const bare = document.title.replace(/^\(\d+\) /, "");
    const title = this.number ? `(${this.number}) ${bare}` : bare;
    if (document.title !== title) document.title = title;
  }

  drop() {
    clearTimeout(this.timer);
    window.removeEventListener("delf:inbox", this.heed);
  }
}

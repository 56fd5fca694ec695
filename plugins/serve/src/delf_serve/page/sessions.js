// The reader's sessions: where they are logged in, since when, and the way to end each.

import { get, post, remove } from "./api.js";
import { el, fill, say, setText } from "./dom.js";
import { ago, exact } from "./words.js";

const NOTICES = { asked: "A request waits that I may decide", reminded: "It still waits after some time", ended: "A task of mine has ended" };
const WAYS = { key: "by a key", oidc: "by the organisation's login" };

/** What a browser calls itself, in a word or two. */
function browserOf(text) {
  const found = /(Edg|OPR|Firefox|Chrome|Safari)[A-Za-z]*\/(\d+)/.exec(text);
  const name = { Edg: "Edge", OPR: "Opera" }[found?.[1]] || found?.[1];
  const system = /(Windows|Android|iPhone|iPad|Mac OS X|Linux)/.exec(text)?.[1];
  return [name ? `${name} ${found[2]}` : text.slice(0, 40) || "a browser that tells no name", system].filter(Boolean).join(", ");
}

export class SessionsView {
  constructor(who) {
    this.who = who;
    this.problem = el("p", { class: "bad", role: "alert" });
    this.rows = el("ul", { class: "remembered", "aria-label": "Sessions" });
    this.title = el("h1", { tabindex: "-1" }, "Where you are logged in");
    const summary = `${who.name}: ${who.rights.join(", ") || "no rights"}; sees ${who.scope} tasks${who.teams.length ? `; teams ${who.teams.join(", ")}` : ""}`;
    this.notices = el("fieldset", { class: "notices", hidden: true });
    this.node = el("article", { class: "task" }, this.title, el("p", { class: "quiet" }, summary), this.problem, this.rows, this.notices);
    this.load();
    this.loadNotices();
  }

  async load() {
    try {
      const { sessions } = await get("sessions");
      fill(this.rows, sessions.length ? sessions.map((one) => this.row(one)) : el("li", { class: "quiet" }, "You have no sessions: your key is sent with each request."));
    } catch (error) { setText(this.problem, error.message); }
  }

  /** The mails that the reader gets; a key of the settings is of no person who could get any. */
  async loadNotices() {
    try {
      this.showNotices(await get("notices"));
    } catch (error) { if (error.status !== 404) setText(this.problem, error.message); }
  }

  showNotices({ notices, mail, works }) {
    const box = (choice, words) => el("p", {}, el("label", {}, el("input", { type: "checkbox", name: choice, checked: notices.includes(choice), onchange: () => this.choose() }), ` ${words}`));
    const why = !works ? "This server sends no mails." : mail ? `They are sent to ${mail}.` : "No mail address of yours is known: whoever runs the server can add it.";
    fill(this.notices, el("legend", {}, "Mails to you"), Object.entries(NOTICES).map(([choice, words]) => box(choice, words)), el("p", { class: "quiet" }, why));
    this.notices.hidden = false;
  }

  async choose() {
    const chosen = [...this.notices.querySelectorAll("input:checked")].map((input) => input.name);
    setText(this.problem, "");
    try {
      await post("notices", { notices: chosen });
      say("Your choice is kept.");
    } catch (error) {
      setText(this.problem, error.message);
      await this.loadNotices(); // as they are
    }
  }

  row(one) {
    const what = browserOf(one.browser);
    const end = el("button", { type: "button", class: "danger", "aria-label": `End the session in ${what} from ${one.client}`, onclick: () => this.end(one, end) }, "End");
    return el("li", { class: "ask decided" }, el("h2", {}, what, one.is_this ? el("span", { class: "quiet" }, " this session") : null),
      el("p", { class: "quiet", title: one.browser }, `from ${one.client}, ${WAYS[one.way] || one.way}, since `, el("time", { title: exact(one.began) }, ago(one.began)), `, until ${exact(one.until)} at most`),
      one.is_this ? el("p", { class: "quiet" }, "“log out” ends it.") : el("div", { class: "buttons" }, end));
  }

  async end(one, button) {
    button.disabled = true;
    setText(this.problem, "");
    try {
      await remove(`sessions/${one.id}`);
      say("The session is ended.");
    } catch (error) { setText(this.problem, error.message); }
    await this.load();
    this.title.focus();
  }

  /** Nothing is followed. */
  drop() {}
}

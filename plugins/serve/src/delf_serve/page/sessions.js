// The reader's sessions: where they are logged in, since when, and the way to end each.

import { get, remove } from "./api.js";
import { el, fill, say, setText } from "./dom.js";
import { ago, exact } from "./words.js";

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
    const told = `${who.name}: ${who.rights.join(", ") || "no rights"}; sees ${who.scope} tasks${who.teams.length ? `; teams ${who.teams.join(", ")}` : ""}`;
    this.node = el("article", { class: "task" }, this.title, el("p", { class: "quiet" }, told), this.problem, this.rows);
    this.load();
  }

  async load() {
    try {
      const { sessions } = await get("sessions");
      fill(this.rows, sessions.length ? sessions.map((one) => this.row(one)) : el("li", { class: "quiet" }, "You have no sessions: your key is sent with each request."));
    } catch (error) { setText(this.problem, error.message); }
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

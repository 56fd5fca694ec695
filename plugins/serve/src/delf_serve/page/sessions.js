// The reader's sessions: where they are logged in, since when, and the way to end each.

import { all, get, post, remove } from "./api.js";
import { el, fill, say, setText } from "./dom.js";
import { ago, exact } from "./words.js";

const NOTICES = { asked: "A request waits that I may decide", reminded: "It still waits after some time", ended: "A task of mine has ended", assigned: "A request is assigned to me", commented: "Somebody comments on a request that I asked for, am assigned to, or talked about" };
const NOTICE_WAYS = { mail: "by mail", slack: "as a direct message in Slack", webhook: "by my webhook", browser: "in this browser, while the page is open" };
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
      const sessions = await all("sessions", "sessions");
      fill(this.rows, sessions.length ? sessions.map((one) => this.row(one)) : el("li", { class: "quiet" }, "You have no sessions: your key is sent with each request."));
    } catch (error) { setText(this.problem, error.message); }
  }

  /** The notices that the reader gets; a key of the settings is of no person who could get any. */
  async loadNotices() {
    try {
      this.showNotices(await get("notices"));
    } catch (error) { if (error.status !== 404) setText(this.problem, error.message); }
  }

  showNotices({ notices, ways, mail, webhook, webhook_secret: secret, works, reaches }) {
    const box = (group, choice, words, chosen, more = {}) => el("p", {}, el("label", {}, el("input", { type: "checkbox", name: group, value: choice, checked: chosen.includes(choice), onchange: () => this.choose(), ...more }), ` ${words}`));
    const missing = { mail: "no mail address of yours is known: whoever runs the server can add it", slack: "no mail address of yours is known, by which Slack finds you", webhook: "give its address below" };
    const about = { mail: `to ${mail}`, slack: `to ${mail}` };
    const way = ([name, words]) => box("way", name, `${words}${!works.includes(name) ? ": this server has no such way" : !reaches.includes(name) ? `: ${missing[name]}` : about[name] ? ` (${about[name]})` : ""}`, ways, { disabled: !works.includes(name) });
    this.address = el("input", { type: "url", id: "webhook", value: webhook, placeholder: "https://", maxLength: 2000 });
    const ofWebhook = works.includes("webhook") ? [el("p", {}, el("label", { htmlFor: "webhook" }, "Address of my webhook "), this.address, " ", el("button", { type: "button", onclick: () => this.choose(this.address.value.trim()) }, "Keep address")),
      secret ? el("p", { role: "status" }, "The key that signs its messages, which is shown only now: ", el("code", {}, secret)) : null] : [];
    fill(this.notices, el("legend", {}, "Notices to you"), Object.entries(NOTICES).map(([choice, words]) => box("notice", choice, words, notices)),
      el("p", { class: "quiet" }, "You get them:"), Object.entries(NOTICE_WAYS).map(way), ...ofWebhook);
    this.notices.hidden = false;
  }

  async choose(webhook = undefined) {
    const chosen = (group) => [...this.notices.querySelectorAll(`input[name=${group}]:checked`)].map((input) => input.value);
    setText(this.problem, "");
    try {
      const known = await post("notices", { notices: chosen("notice"), ways: chosen("way"), ...(webhook === undefined ? {} : { webhook }) });
      this.who.browser_notices = known.ways.includes("browser");
      if (this.who.browser_notices && "Notification" in window && Notification.permission === "default") await Notification.requestPermission();
      say("Your choice is kept.");
      if (webhook !== undefined) this.showNotices(known);
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

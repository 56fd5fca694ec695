// Conversations: the history before a task, how it continues, and a list of them all.

import { Refused, get, post, remove } from "./api.js";
import { long } from "./code.js";
import { el, fill, say, setText } from "./dom.js";
import { answer } from "./text.js";
import { ago, count, decoded, exact, short, shortId } from "./words.js";

const PAGE = 100;
const MOST = 1000;
const ROLES = { user: "asked", assistant: "answered" };

const place = (id) => `conversations/${encodeURIComponent(id)}`;

/** Whether the reader may go on with it: the name of another person's has its user before a mark. */
export const isOwn = (id) => !id.includes("|");

/** The messages of a conversation, the oldest first; `more` where there are further ones. */
async function messagesOf(id) {
  const messages = [];
  for (let more = true; more && messages.length < MOST;) {
    const found = await get(`${place(id)}?limit=${PAGE}&after=${messages.at(-1)?.position ?? 0}`);
    messages.push(...found.messages);
    more = found.more && found.messages.length > 0;
    if (!more) return { messages, more };
  }
  return { messages, more: true };
}

function messageItem(one) {
  const task = one.task_id ? [" in ", el("a", { href: `#/${one.task_id}` }, `task ${shortId(one.task_id)}`)] : [];
  return el("li", { class: `message-line ${one.role}` },
    el("p", { class: "quiet" }, ROLES[one.role] || one.role, " ", el("time", { title: exact(one.at) }, ago(one.at)), task),
    one.role === "assistant" ? answer(one.content, 4000) : el("p", { class: "words" }, long(one.content, 2000)));
}

const thread = (messages) => el("ol", { class: "thread" }, messages.map(messageItem));

/** A form that goes on with a conversation, as a new task. */
function goOn(id, started) {
  const words = el("textarea", { rows: 2, required: true, "aria-label": "Go on in this conversation", placeholder: "Go on in this conversation",
    onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit(); } } });
  const problem = el("p", { class: "bad", role: "alert" });
  const button = el("button", { type: "submit" }, "Go on");
  const form = el("form", { class: "go-on", "aria-label": "Go on", onsubmit: async (event) => {
    event.preventDefault();
    const task = words.value.trim();
    if (!task) { words.focus(); return; }
    button.disabled = true;
    setText(problem, "");
    try {
      started((await post("run", { task, conversation_id: id })).task_id);
    } catch (error) { setText(problem, error.message); } finally { button.disabled = false; }
  } }, words, el("div", { class: "buttons" }, button, el("span", { class: "quiet" }, "a new task that knows this conversation")), problem);
  return form;
}

/** The conversation around a task: the history, the way to continue, and the continuation. */
export class Thread {
  constructor(taskId, may) {
    this.taskId = taskId;
    this.may = may;
    this.id = null;
    this.before = el("details", { class: "before", hidden: true });
    this.next = el("div", { class: "after", hidden: true });
    this.after = el("p", { class: "quiet" });
  }

  /** The conversation is known, and when the task began: the messages before that are what it knew. */
  async know(id, began) {
    if (!id || !began || this.id === id) return;
    this.id = id;
    try {
      const { messages, more } = await messagesOf(id);
      const before = messages.filter((one) => one.at < began && one.task_id !== this.taskId);
      const later = messages.filter((one) => one.at >= began && one.role === "user" && one.task_id && one.task_id !== this.taskId);
      this.before.hidden = !before.length;
      if (before.length) {
        const body = el("div", {});
        fill(this.before, el("summary", {}, `${count(before.length, "message")}${more ? " and more" : ""} before this one `), body,
          el("p", {}, el("a", { href: `#/conversations/${encodeURIComponent(id)}` }, "the whole conversation")));
        this.before.ontoggle = () => this.before.open && !body.childElementCount && fill(body, thread(before));
      }
      fill(this.after, later.length ? ["It went on with ", ...later.flatMap((one, n) => [n ? ", " : "", el("a", { href: `#/${one.task_id}` }, `“${short(one.content, 60)}”`)])] : []);
    } catch (error) {
      if (!(error instanceof Refused)) throw error; // the conversation is empty, or the page shows that the server is away
    }
  }

  /** Show the way on, once the task is over. */
  update(over) {
    const shown = over && Boolean(this.id);
    this.next.hidden = !shown;
    if (shown && !this.next.childElementCount) {
      fill(this.next, this.after, this.may && isOwn(this.id) ? goOn(this.id, (taskId) => { location.hash = `#/${taskId}`; }) : null);
    }
  }
}

/** All conversations, or one of them: `#/conversations/ID`. */
export class ConversationsView {
  constructor(who) {
    this.rights = who.rights;
    const [, , id = ""] = location.hash.split("/");
    this.problem = el("p", { class: "bad", role: "alert" });
    this.body = el("div", { class: "conversations" });
    this.more = el("button", { type: "button", class: "link", hidden: true, onclick: () => this.list() }, "more conversations");
    this.title = el("h1", { tabindex: "-1" }, "Conversations");
    this.node = el("article", { class: "task" }, this.title, this.problem, this.body, this.more);
    this.shown = 0;
    if (id) this.one(decoded(id));
    else this.list();
  }

  async list() {
    try {
      const { conversations, more } = await get(`conversations?limit=${PAGE}&offset=${this.shown}`);
      if (!this.shown && !conversations.length) fill(this.body, el("p", { class: "quiet" }, "There are no conversations yet."));
      this.body.append(...conversations.map((one) => el("a", { class: "row", href: `#/conversations/${encodeURIComponent(one.conversation_id)}` },
        el("span", { class: "row-words" }, short(one.title || one.conversation_id, 160)),
        el("span", { class: "row-line" }, count(one.messages, "message"), el("time", { title: exact(one.updated_at) }, ago(one.updated_at))))));
      this.shown += conversations.length;
      this.more.hidden = !more;
    } catch (error) { setText(this.problem, error.message); }
  }

  async one(id) {
    const back = el("a", { href: "#/conversations" }, "‹ Conversations");
    try {
      const { messages, more } = await messagesOf(id);
      setText(this.title, short(messages[0]?.content || id, 120));
      document.title = `${short(messages[0]?.content || id, 60)} · delf`;
      fill(this.body, back, thread(messages), more ? el("p", { class: "quiet" }, `the first ${count(messages.length, "message")}`) : null,
        this.rights.includes("run") && isOwn(id) ? goOn(id, (taskId) => { location.hash = `#/${taskId}`; }) : null,
        this.rights.includes("delete") ? el("div", { class: "buttons" }, this.forget(id)) : null);
    } catch (error) { fill(this.body, back); setText(this.problem, error.message); }
  }

  /** A button that asks again before it forgets. */
  forget(id) {
    let sure = false;
    const button = el("button", { type: "button", class: "danger", onclick: async () => {
      if (!sure) { sure = true; setText(button, "Delete its messages forever"); return; }
      try {
        await remove(place(id));
        say("The conversation is deleted.");
        location.hash = "#/conversations";
      } catch (error) { setText(this.problem, error.message); }
    } }, "Forget…");
    return button;
  }

  /** Nothing is followed. */
  drop() {}
}

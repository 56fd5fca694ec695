// "I am away": who decides in the reader's place, until when, and the way to take that back.

import { get, post, remove } from "./api.js";
import { el, fill, say, setText } from "./dom.js";

const day = (at) => new Date(at * 1000).toLocaleDateString(undefined, { weekday: "short", day: "numeric", month: "long", year: "numeric" });
/** A day as a field of dates has it. */
const field = (date) => `${date.getFullYear()}-${String(date.getMonth() + 1).padStart(2, "0")}-${String(date.getDate()).padStart(2, "0")}`;
const inDays = (days) => { const date = new Date(); date.setDate(date.getDate() + days); return field(date); };

export class AwayPart {
  constructor(who) {
    this.may = who.rights.includes("decide");
    this.problem = el("p", { class: "bad", role: "alert" });
    this.title = el("h2", { tabindex: "-1" }, "While you are away");
    this.place = el("div", {});
    this.node = el("section", { "aria-label": "While you are away", hidden: true }, this.title, this.problem, this.place);
    this.load();
  }

  async load() {
    try { this.show(await get("away")); } catch (error) { setText(this.problem, error.message); this.node.hidden = false; }
  }

  show(known) {
    const others = known.stands_in_for.map((one) => el("p", {}, `You decide in the place of ${one.name} until ${day(one.until)}.`));
    this.node.hidden = !this.may || !(known.delegate || known.candidates.length || others.length);
    fill(this.place, others, known.delegate ? this.away(known) : known.candidates.length ? this.form(known) : null);
  }

  away(known) {
    const back = el("button", { type: "button", onclick: () => this.change(back, () => remove("away"), "You decide again.") }, "I am back");
    return [el("p", {}, `${known.delegate} decides in your place until ${day(known.until)}.`), el("div", { class: "buttons" }, back)];
  }

  form(known) {
    const who = el("select", { id: "away-who", required: true }, known.candidates.map((name) => el("option", { value: name }, name)));
    const until = el("input", { id: "away-until", type: "date", required: true, min: inDays(0), max: inDays(365), value: inDays(14) });
    const send = el("button", { type: "submit" }, "I am away");
    const submit = (event) => {
      event.preventDefault();
      const end = new Date(`${until.value}T23:59:59`).getTime() / 1000;
      this.change(send, () => post("away", { delegate: who.value, until: end }), `${who.value} decides in your place.`);
    };
    return el("form", { "aria-label": "I am away", onsubmit: submit },
      el("p", { class: "quiet" }, "Another person decides in your place, but not about your own tasks."),
      el("p", { class: "field" }, el("label", { htmlFor: "away-who" }, "Who decides"), " ", who),
      el("p", { class: "field" }, el("label", { htmlFor: "away-until" }, "Until the end of"), " ", until),
      el("div", { class: "buttons" }, send));
  }

  async change(button, work, words) {
    button.disabled = true;
    setText(this.problem, "");
    try {
      await work();
      say(words);
      await this.load();
      this.title.focus();
    } catch (error) {
      setText(this.problem, error.message);
      button.disabled = false;
    }
  }
}

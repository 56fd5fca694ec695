// Figures: tasks, cost, tokens and waiting time by day, person, connection and model. Charts are drawn here.

import { address, get } from "./api.js";
import { el, fill, setText } from "./dom.js";
import { Filters, conditions, query } from "./filters.js";
import { table } from "./text.js";
import { count, duration, money } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 96;
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const whole = (n) => n.toLocaleString();
const waited = (seconds) => (seconds ? duration(seconds * 1000) : "0 s");
const tokens = (one) => one.input_tokens + one.output_tokens;
/** A cost that leaves out answers without a known price says so. */
const costOf = (one) => (one.unpriced ? `${money(one.cost_usd)} and more` : money(one.cost_usd));

/** Charts by day: what each draws, and how its numbers are written. */
const CHARTS = [
  { title: "Cost", of: (one) => one.cost_usd, text: money, more: (one) => one.unpriced },
  { title: "Tokens", of: tokens, text: whole },
  { title: "Tasks", of: (one) => one.tasks, bad: (one) => one.failed, text: whole, badly: "failed" },
  { title: "Waiting for answers", of: (one) => one.waited_seconds, text: waited },
];
const COLUMNS = {
  person: ["who asked", ["tasks", "tasks", whole], ["failed", "failed", whole], ["questions", "questions", whole], ["waited", "waited_seconds", waited], ["tokens", tokens, whole], ["cost", (one) => one, costOf]],
  connection: ["connection", ["tasks", "tasks", whole], ["calls", "calls", whole], ["failed calls", "failed_calls", whole], ["questions", "questions", whole], ["waited", "waited_seconds", waited]],
  model: ["model", ["tasks", "tasks", whole], ["calls", "calls", whole], ["failed calls", "failed_calls", whole], ["tokens", tokens, whole], ["cost", (one) => one, costOf]],
};
const HEADS = { person: "By person", connection: "By connection", model: "By model" };

function shape(name, given) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(given)) node.setAttribute(key, value);
  return node;
}

/** All days from the first to the last, those without tasks, too. */
function filled(days) {
  if (!days.length) return [];
  const known = new Map(days.map((one) => [one.group, one]));
  const found = [];
  const end = new Date(`${days.at(-1).group}T12:00:00Z`);
  for (const at = new Date(`${days[0].group}T12:00:00Z`); at <= end; at.setUTCDate(at.getUTCDate() + 1)) {
    const group = at.toISOString().slice(0, 10);
    found.push(known.get(group) || { group, tasks: 0, failed: 0, cost_usd: 0, input_tokens: 0, output_tokens: 0, waited_seconds: 0 });
  }
  return found;
}

function chart({ title, of, text, bad, badly, more = () => 0 }, days) {
  const most = Math.max(...days.map(of), 0);
  const total = days.reduce((sum, one) => sum + of(one), 0);
  const andMore = (some) => (some.some(more) ? " and more" : "");
  const picture = shape("svg", { viewBox: `0 0 ${Math.max(days.length, 7) * 10} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title} by day: ${text(total)} in all, at most ${text(most)} on a day` });
  days.forEach((one, n) => {
    const bar = (value, kind) => {
      const height = most ? Math.max((value / most) * (HEIGHT - 2), value ? 1 : 0) : 0;
      const node = shape("rect", { x: n * 10 + 1, y: HEIGHT - height, width: 8, height, class: kind });
      const shown = shape("title", {});
      shown.textContent = `${one.group}: ${text(of(one))}${andMore([one])}${bad && bad(one) ? `, ${bad(one)} ${badly}` : ""}`;
      node.append(shown);
      return node;
    };
    picture.append(bar(of(one), "bar-all"));
    if (bad && bad(one)) picture.append(bar(bad(one), "bar-bad"));
  });
  return el("section", { class: "chart", "aria-label": `${title} by day` }, el("h2", {}, title, " ", el("span", { class: "quiet" }, `${text(total)}${andMore(days)}`)), picture,
    el("p", { class: "axis quiet" }, el("span", {}, days[0].group), el("span", {}, `at most ${text(most)} a day`), el("span", {}, days.at(-1).group)));
}

export class FiguresView {
  constructor() {
    this.problem = el("p", { class: "bad", role: "alert" });
    this.total = el("p", { class: "total" });
    this.charts = el("div", { class: "charts" });
    this.tables = el("div", { class: "tables" });
    this.title = el("h1", { tabindex: "-1" }, "Costs and figures");
    this.filters = new Filters("figures", ["days", "person", "connection", "model"], () => this.narrowed());
    const given = conditions();
    if (location.hash.split("/").length < 3) given.set("days", "7");
    this.filters.set(given);
    this.node = el("article", { class: "task wide" }, this.title, el("div", { class: "filters" }, ...Object.values(this.filters.inputs), this.filters.keeper, this.filters.views), this.problem, this.total, this.charts, this.tables);
    this.load();
  }

  link(by, words) {
    return el("a", { href: address(`figures?${query(this.filters.given, { by, zone, format: "csv" })}`), download: `delf-${by}.csv` }, words);
  }

  narrowed() {
    history.replaceState(null, "", this.filters.address);
    this.load();
  }

  async load() {
    const mine = this.asking = {};
    setText(this.problem, "");
    try {
      const ask = async (by) => (await get(`figures?${query(this.filters.given, { by, zone })}`)).figures;
      const days = await ask("day");
      if (mine !== this.asking) return;
      this.days(filled(days));
      const parts = [];
      for (const by of Object.keys(COLUMNS)) {
        const found = await ask(by);
        if (mine !== this.asking) return;
        this.filters.offer(by, found.map((one) => one.group));
        if (found.length) parts.push(this.table(by, found));
      }
      fill(this.tables, parts);
    } catch (error) { setText(this.problem, error.message); }
  }

  days(days) {
    if (!days.length) {
      setText(this.total, "No task matches.");
      fill(this.charts);
      return;
    }
    const sum = (of) => days.reduce((all, one) => all + (of(one) || 0), 0);
    const unpriced = sum((one) => one.unpriced);
    const period = this.filters.inputs.days.selectedOptions[0].textContent;
    fill(this.total, el("strong", {}, money(sum((one) => one.cost_usd))), unpriced ? ` and ${count(unpriced, "answer")} without a known price` : "",
      ` for ${count(sum((one) => one.tasks), "task")} of ${period}, ${whole(sum((one) => one.failed))} failed · ${whole(sum(tokens))} tokens · ${count(sum((one) => one.questions), "question")} · `, this.link("day", "CSV by day"));
    fill(this.charts, CHARTS.map((one) => chart(one, days)));
  }

  table(by, found) {
    const [name, ...columns] = COLUMNS[by];
    const read = (one, of) => (typeof of === "string" ? one[of] : of(one));
    const sorted = [...found].sort((a, b) => b.cost_usd - a.cost_usd || b.calls - a.calls || b.tasks - a.tasks);
    const rows = sorted.map((one) => [one.group || "not known", ...columns.map(([, of, text]) => text(read(one, of)))]);
    return el("section", { "aria-label": HEADS[by] }, el("h2", {}, HEADS[by], " ", this.link(by, "CSV")), table([name, ...columns.map(([head]) => head)], rows, [false, ...columns.map(() => true)], `Table ${HEADS[by].toLowerCase()}`));
  }

  /** Nothing is followed. */
  drop() {}
}

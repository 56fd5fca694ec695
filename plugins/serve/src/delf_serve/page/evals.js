// Evaluations: the data sets of the project, and the report of a run, compared with the run before.

import { all, get } from "./api.js";
import { long, valueNodes } from "./code.js";
import { el, fill, setText } from "./dom.js";
import { table } from "./text.js";
import { count, duration, money } from "./words.js";

const NONE = "There is no data set yet. A data set checks tasks over models and prompts: delf evals add TASK";

const letter = (n) => (n < 26 ? String.fromCharCode(65 + n) : String(n + 1));

/** One case under one variant: why it failed, its answer, scripts and calls. */
function caseNode(one) {
  const problems = [one.error, ...one.checks.filter((check) => check.passed === false).map((check) => `${check.name}${check.reason ? `: ${check.reason}` : ""}`)].filter(Boolean);
  const scores = one.checks.filter((check) => check.passed === null).map((check) => el("p", { class: "quiet" }, `${check.name}: ${check.value}`));
  const shown = (title, data) => (data === null ? null : [el("p", { class: "quiet" }, title), typeof data === "string" ? long(data, 2000) : valueNodes(data)]);
  return el("details", { open: !one.passed }, el("summary", {}, `${one.name}: `, el("span", { class: one.passed ? "" : "bad" }, one.passed ? "passed" : "FAILED"), ` · ${duration(one.duration_ms)} · ${one.cost_usd === null ? "cost unknown" : money(one.cost_usd)}`),
    el("p", {}, long(one.task, 500)), problems.map((text) => el("p", { class: "bad" }, text)), scores, shown("Answer", one.answer), shown("Expected", one.expected),
    one.scripts.map((code) => el("pre", { tabindex: "0" }, code)),
    one.calls.length ? el("ul", {}, one.calls.map((call) => el("li", {}, el("code", {}, `${call.action}(${call.arguments})`), ` ${call.status}`))) : null);
}

function reportNodes(report) {
  const many = report.variants.length > 1;
  const [head, ...rows] = report.table;
  return [
    el("p", { class: "quiet" }, report.at),
    ...report.summary.map((line) => el("p", {}, line)),
    ...table(head, rows, head.map(() => false), `Report of ${report.dataset}`),
    ...report.variants.map((variant, n) => el("section", { "aria-label": variant.name }, many ? el("h2", {}, `${letter(n)}  ${variant.name}`) : null, variant.cases.map(caseNode))),
  ];
}

export class EvaluationsView {
  constructor() {
    this.problem = el("p", { class: "bad", role: "alert" });
    this.rows = el("div", { class: "routines" });
    this.node = el("article", { class: "task" }, el("h1", { tabindex: "-1" }, "Evaluations"), this.problem, this.rows);
    this.load();
  }

  async load() {
    try {
      const evaluations = await all("evals", "evaluations");
      fill(this.rows, evaluations.length ? evaluations.map((one) => this.row(one)) : el("p", { class: "quiet" }, NONE));
    } catch (error) { setText(this.problem, error.message); }
  }

  row(one) {
    const shown = el("div", {});
    const choice = el("select", { "aria-label": `Run of ${one.name}`, onchange: () => this.show(one.name, choice.value, shown) },
      Array.from({ length: Math.min(one.runs, 50) }, (_, n) => el("option", { value: String(n + 1) }, n ? `${count(n, "run")} before` : "last run")));
    const body = el("details", { ontoggle: () => { if (body.open && one.runs) this.show(one.name, choice.value, shown); } }, el("summary", {}, el("strong", {}, one.name), el("span", { class: "quiet" }, ` ${count(one.runs, "run")}`)), one.runs ? choice : el("p", { class: "quiet" }, `delf evals run ${one.name}`), shown);
    return el("section", { class: "ask decided", "aria-label": one.name }, body);
  }

  async show(name, run, node) {
    const mine = node.asking = {};
    setText(this.problem, "");
    try {
      const { report } = await get(`evals/${encodeURIComponent(name)}?run=${run}`);
      if (mine === node.asking) fill(node, reportNodes(report));
    } catch (error) { setText(this.problem, error.message); }
  }

  /** Nothing is followed. */
  drop() {}
}

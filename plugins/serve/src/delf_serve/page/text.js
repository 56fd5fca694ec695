// An answer: paragraphs as they are, and tables where lines have bars between cells.

import { el } from "./dom.js";
import { size } from "./words.js";

const RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MOST_ROWS = 200;

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

/** A table of rows below a head; `right` says of each column if it stands at the right, `name` names the table. */
export function table(head, rows, right = [], name = "Table") {
  const side = (n) => (right[n] ? "num" : null);
  const shown = rows.slice(0, MOST_ROWS);
  const body = el("table", {},
    el("thead", {}, el("tr", {}, head.map((cell, n) => el("th", { scope: "col", class: side(n) }, cell)))),
    el("tbody", {}, shown.map((row) => el("tr", {}, head.map((_, n) => el("td", { class: side(n) }, row[n] ?? ""))))));
  const parts = [el("div", { class: "table", tabindex: "0", role: "region", "aria-label": name }, body)];
  if (rows.length > shown.length) parts.push(el("p", { class: "quiet" }, `${shown.length} of ${rows.length.toLocaleString()} rows shown`));
  return parts;
}

/** A text with its tables as tables. */
export function answer(text, most = 20_000) {
  const parts = [];
  const lines = text.slice(0, most).split("\n");
  let plain = [];
  const flush = () => {
    const words = plain.join("\n").trim();
    if (words) parts.push(el("p", { class: "words" }, words));
    plain = [];
  };
  for (let n = 0; n < lines.length; n += 1) {
    if (lines[n].includes("|") && n + 1 < lines.length && RULE.test(lines[n + 1]) && lines[n + 1].includes("-")) {
      flush();
      const head = cells(lines[n]);
      const right = cells(lines[n + 1]).map((rule) => rule.endsWith(":"));
      const rows = [];
      for (n += 2; n < lines.length && lines[n].includes("|"); n += 1) rows.push(cells(lines[n]));
      n -= 1;
      parts.push(...table(head, rows, right));
    } else plain.push(lines[n]);
  }
  flush();
  if (text.length > most) parts.push(el("p", { class: "quiet" }, `the first ${size(most)} of ${size(text.length)}`));
  return parts;
}

/** Rows of separated values, by the rule that quotes may hold separators. */
export function separated(text) {
  const first = text.slice(0, text.indexOf("\n") + 1 || undefined);
  const mark = ["\t", ";", ","].reduce((best, one) => (first.split(one).length > first.split(best).length ? one : best), ",");
  const rows = [[]];
  let cell = "";
  let quoted = false;
  for (let n = 0; n < text.length && rows.length <= 1001; n += 1) {
    const letter = text[n];
    if (quoted) {
      if (letter === '"' && text[n + 1] === '"') { cell += '"'; n += 1; } else if (letter === '"') quoted = false;
      else cell += letter;
    } else if (letter === '"' && cell === "") quoted = true;
    else if (letter === mark) { rows.at(-1).push(cell); cell = ""; } else if (letter === "\n") {
      rows.at(-1).push(cell.replace(/\r$/, "")); cell = ""; rows.push([]);
    } else cell += letter;
  }
  if (cell || rows.at(-1).length) rows.at(-1).push(cell); else rows.pop();
  return rows;
}

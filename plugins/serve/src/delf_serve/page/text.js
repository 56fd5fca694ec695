// An answer: markdown, made of elements and never of markup, so that nothing in it can do anything.

import { el } from "./dom.js";
import { size } from "./words.js";

const RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MOST_ROWS = 200;

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

// Digits with their groups, decimals and a unit; a text that begins with a nought is a number's name, such as a postcode.
const NUMBER = /^[-+−(]?[$€£¥]?\s?(0|[1-9]\d*|[1-9]\d{0,2}([,.'’ \u00a0\u202f]\d{3})+)([.,]\d+)?(e[-+]?\d+)?\)?(\s?[%$€£¥]|\s(ms|s|min|h|B|kB|MB|GB|[A-Z]{3}))?$/i;
const NOTHING = /^(|[-–—]|null|none|nan|n\/a|cost unknown)$/i;

/** Whether a column has numbers and nothing else, so that their digits stand one below the other. */
function isNumeric(cells) {
  const filled = cells.map((cell) => String(cell ?? "").trim()).filter((text) => !NOTHING.test(text));
  return filled.length > 0 && filled.every((text) => NUMBER.test(text));
}

/** A table of rows below a head; `right` says of each column if it stands at the right, and where it does not, its numbers do.
 * A named one is a landmark; others may be alike. */
export function table(head, rows, right = [], name = "") {
  const shown = rows.slice(0, MOST_ROWS);
  const sides = head.map((_, n) => ((right[n] ?? isNumeric(shown.map((row) => row[n]))) ? "num" : null));
  const side = (n) => sides[n];
  const body = el("table", {},
    el("thead", {}, el("tr", {}, head.map((cell, n) => el("th", { scope: "col", class: side(n) }, cell)))),
    el("tbody", {}, shown.map((row) => el("tr", {}, head.map((_, n) => el("td", { class: side(n) }, row[n] ?? ""))))));
  const parts = [el("div", { class: "table", tabindex: "0", role: name ? "region" : "group", "aria-label": name || `Table of ${head.join(", ")}` }, body)];
  if (rows.length > shown.length) parts.push(el("p", { class: "quiet" }, `${shown.length} of ${rows.length.toLocaleString()} rows shown`));
  return parts;
}

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|(?<![\w*])\*([^*\s][^*]*)\*(?!\w)|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/g;
const HEAD = /^(#{1,6})\s+(.+)$/;
const ITEM = /^\s*([-*+]|\d{1,9}[.)])\s+(.+)$/;
const FENCE = /^```/;

/** A line with its marks: code, bold, italics, and links whose address is shown. */
function inline(line) {
  const parts = [];
  let at = 0;
  for (const found of line.matchAll(INLINE)) {
    parts.push(line.slice(at, found.index));
    const [, code, bold, slanted, words, url] = found;
    if (code) parts.push(el("code", {}, code));
    else if (bold) parts.push(el("strong", {}, bold));
    else if (slanted) parts.push(el("em", {}, slanted));
    else parts.push(el("a", { href: url, rel: "noopener noreferrer nofollow", target: "_blank", title: url }, words));
    at = found.index + found[0].length;
  }
  return [...parts, line.slice(at)].filter((part) => part !== "");
}

/** Lines without tables: headings, lists, code, and paragraphs as they are. */
function blocks(lines) {
  const parts = [];
  let plain = [];
  const flush = () => {
    const words = plain.join("\n").trim();
    if (words) parts.push(el("p", { class: "words" }, inline(words)));
    plain = [];
  };
  for (let n = 0; n < lines.length; n += 1) {
    const head = HEAD.exec(lines[n]);
    if (FENCE.test(lines[n])) {
      flush();
      const end = lines.findIndex((line, m) => m > n && FENCE.test(line));
      const code = lines.slice(n + 1, end < 0 ? lines.length : end);
      parts.push(el("pre", { class: "value", tabindex: "0" }, code.join("\n")));
      n = end < 0 ? lines.length : end;
    } else if (head) {
      flush();
      parts.push(el(`h${Math.min(6, head[1].length + 2)}`, {}, inline(head[2])));
    } else if (ITEM.test(lines[n])) {
      flush();
      const numbered = /^\d/.test(ITEM.exec(lines[n])[1]);
      const items = [];
      for (; n < lines.length && ITEM.test(lines[n]); n += 1) items.push(el("li", {}, inline(ITEM.exec(lines[n])[2])));
      n -= 1;
      parts.push(el(numbered ? "ol" : "ul", { class: "marked" }, items));
    } else plain.push(lines[n]);
  }
  flush();
  return parts;
}

/** A text with its marks, and its tables as tables. */
export function answer(text, most = 20_000) {
  const parts = [];
  const lines = text.slice(0, most).split("\n");
  let plain = [];
  const flush = () => {
    parts.push(...blocks(plain));
    plain = [];
  };
  for (let n = 0; n < lines.length; n += 1) {
    if (lines[n].includes("|") && n + 1 < lines.length && RULE.test(lines[n + 1]) && lines[n + 1].includes("-")) {
      flush();
      const head = cells(lines[n]);
      const right = cells(lines[n + 1]).map((rule) => (rule.endsWith(":") ? !rule.startsWith(":") : rule.startsWith(":") ? false : undefined));
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

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

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|(?<![\w*])\*([^*\s][^*]*)\*(?!\w)|\[([^\]]+)\]\((https?:\/\/(?:[^\s()]|\([^\s()]*\))+)\)/g;
const HEAD = /^(#{1,6})\s+(.+)$/;
const ITEM = /^\s*([-*+]|\d{1,9}[.)])\s+(.+)$/;
// A line of code such as ```x``` opens no block.
const FENCE = /^(\s*)(`{3,}(?=[^`]*$)|~{3,})/;
const FENCE_END = /^\s*(`{3,}|~{3,})\s*$/;

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

/** A block of code from a line on; null where none begins. Each kind of block has its nodes and its last line. */
function codeAt(lines, n) {
  const opening = FENCE.exec(lines[n]);
  if (!opening) return null;
  const [, indent, marks] = opening;
  const closes = (line) => {
    const found = FENCE_END.exec(line)?.[1];
    return found !== undefined && found[0] === marks[0] && found.length >= marks.length;
  };
  let end = n + 1;
  while (end < lines.length && !closes(lines[end])) end += 1;
  const code = lines.slice(n + 1, end).map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line));
  return { nodes: [el("pre", { class: "value", tabindex: "0" }, code.join("\n"))], end };
}

function tableAt(lines, n) {
  const rule = lines[n + 1] ?? "";
  if (!lines[n].includes("|") || !RULE.test(rule) || !rule.includes("-")) return null;
  const head = cells(lines[n]);
  const right = cells(rule).map((side) => (side.endsWith(":") ? !side.startsWith(":") : side.startsWith(":") ? false : undefined));
  const rows = [];
  let end = n + 1;
  while (lines[end + 1]?.includes("|")) {
    end += 1;
    rows.push(cells(lines[end]));
  }
  return { nodes: table(head, rows, right), end };
}

function headingAt(lines, n) {
  const head = HEAD.exec(lines[n]);
  return head && { nodes: [el(`h${Math.min(6, head[1].length + 2)}`, {}, inline(head[2]))], end: n };
}

/** The number of a list's item; NaN where the item has a dash or another sign. */
const numberOf = (line) => parseInt(ITEM.exec(line)[1], 10);

/** A list of items of one kind. Below a block that stands between its items, a list goes on with its number. */
function listAt(lines, n) {
  if (!ITEM.test(lines[n])) return null;
  const first = numberOf(lines[n]);
  const isNumbered = !Number.isNaN(first);
  const goesOn = (line) => line !== undefined && ITEM.test(line) && Number.isNaN(numberOf(line)) !== isNumbered;
  const items = [];
  let end = n - 1;
  while (goesOn(lines[end + 1])) {
    end += 1;
    items.push(el("li", {}, inline(ITEM.exec(lines[end])[2])));
  }
  return { nodes: [isNumbered ? el("ol", { class: "marked", start: first }, items) : el("ul", { class: "marked" }, items)], end };
}

/** A text with its marks, and its tables as tables. */
export function answer(text, most = 20_000) {
  const parts = [];
  const lines = text.slice(0, most).split("\n");
  let plain = [];
  const flush = () => {
    const words = plain.join("\n").trim();
    if (words) parts.push(el("p", { class: "words" }, inline(words)));
    plain = [];
  };
  for (let n = 0; n < lines.length; n += 1) {
    const block = codeAt(lines, n) || tableAt(lines, n) || headingAt(lines, n) || listAt(lines, n);
    if (block) {
      flush();
      parts.push(...block.nodes);
      n = block.end;
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

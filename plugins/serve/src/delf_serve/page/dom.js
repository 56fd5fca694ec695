// Elements are made here and nowhere else: whatever comes from a task is text, and never markup.

import { visible } from "./visible.js";

/** The properties that a form sets back to when it is reset. */
const DEFAULTS = { value: "defaultValue", checked: "defaultChecked", selected: "defaultSelected" };

const shown = (children) => children.flat().filter((child) => child !== null && child !== undefined)
  .map((child) => (typeof child === "string" ? visible(child) : child));

/** An element with properties, attributes (data-*, aria-*, role …), listeners (onclick …), children. */
export function el(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && !name.includes("-") && typeof value !== "object") {
      if (DEFAULTS[name] in node) node[DEFAULTS[name]] = value;
      node[name] = value;
    }
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...shown(children));
  return node;
}

/** Replace what is in a node, unless it is the same already. */
export function fill(node, ...children) {
  node.replaceChildren(...shown(children));
  return node;
}

/** Make these the children of a node, in this order; those that are there already stay untouched. */
export function arrange(node, children) {
  const wanted = new Set(children);
  for (const child of [...node.children]) if (!wanted.has(child)) child.remove();
  children.forEach((child, n) => { if (node.children[n] !== child) node.insertBefore(child, node.children[n] ?? null); });
}

/** Set a text, unless it is there already: nothing is laid out again for nothing. */
export function setText(node, given) {
  const text = visible(String(given ?? ""));
  if (node.textContent !== text) node.textContent = text;
}

/** Let the page draw, and heed its reader, before a long work goes on. */
export const breathe = () => new Promise((done) => { setTimeout(done); });

/** Say something to those who listen to the page. */
export function say(text) {
  const place = document.getElementById("announcement");
  place.textContent = "";
  setTimeout(() => { place.textContent = text; }, 50);
}

/** A text as a file of the person's own. */
export function takeAsFile(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

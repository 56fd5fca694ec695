// The files of a task: opened on the page where that is safe, taken in any case.

import { address } from "./api.js";
import { el, fill } from "./dom.js";
import { separated, table } from "./text.js";
import { size } from "./words.js";

const PICTURES = /\.(png|jpe?g|gif|webp|avif)$/i;
const TABLES = /\.(csv|tsv)$/i;
const TEXTS = /\.(txt|md|json|jsonl|log|html?|xml|svg|ya?ml|py|sql|toml)$/i;
const MOST = 500_000;

async function opened(path, name) {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    return [el("p", { class: "bad" }, problem.detail || `status ${answer.status}`)];
  }
  if (PICTURES.test(name)) {
    const url = URL.createObjectURL(await answer.blob());
    return [el("img", { src: url, alt: name, onload: () => URL.revokeObjectURL(url) })];
  }
  const text = (await answer.text()).slice(0, MOST);
  if (TABLES.test(name)) {
    const [head = [], ...rows] = separated(text);
    return table(head, rows);
  }
  return [el("pre", { class: "value", tabindex: "0" }, text.slice(0, 50_000))];
}

/** A list of files. */
export function filesOf(taskId, files) {
  return [...files].map(([name, bytes]) => {
    const path = address(`tasks/${taskId}/files/${name.split("/").map(encodeURIComponent).join("/")}`);
    const place = el("div", { class: "file-body" });
    const take = el("a", { href: path, download: name }, "take");
    const known = [PICTURES, TABLES, TEXTS].some((kind) => kind.test(name));
    const label = [el("span", { class: "file-name" }, name), " ", el("span", { class: "quiet" }, size(bytes)), " "];
    if (!known) return el("li", { class: "file" }, label, take);
    const box = el("details", { class: "file-box", ontoggle: async () => {
      if (box.open && !place.childElementCount) fill(place, await opened(path, name));
    } }, el("summary", {}, label), place);
    return el("li", { class: "file" }, box, take);
  });
}

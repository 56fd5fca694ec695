// The API for people, made of its OpenAPI document: operations, what they take, and what they answer.

import { get } from "./api.js";
import { el, fill, setText } from "./dom.js";
import { decoded } from "./words.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const place = document.getElementById("docs");

/** The kind of a schema in a few words; names of other schemas lead to them. */
function kind(schema, depth = 0) {
  if (!schema || depth > 6) return ["anything"];
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return [el("a", { href: `#schema-${name}` }, name)];
  }
  for (const word of ["anyOf", "oneOf"]) {
    if (schema[word]) return schema[word].flatMap((one, n) => (n ? [" or ", ...kind(one, depth + 1)] : kind(one, depth + 1)));
  }
  if (schema.contentSchema) return ["stream of ", ...kind(schema.contentSchema, depth + 1)];
  if (schema.const !== undefined) return [JSON.stringify(schema.const)];
  if (schema.enum) return [schema.enum.map((one) => JSON.stringify(one)).join(" | ")];
  if (schema.type === "array") return ["list of ", ...kind(schema.items, depth + 1)];
  if (schema.type === "null") return ["null"];
  return [schema.format === "binary" ? "bytes" : schema.type || "anything"];
}

function fields(rows, label) {
  if (!rows.length) return null;
  const line = ({ name, needed, schema, text, where }) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, name), needed ? " *" : null),
    el("td", {}, kind(schema), where ? ` in the ${where}` : null),
    el("td", {}, text || "", schema.default !== undefined && schema.default !== null ? ` Default: ${JSON.stringify(schema.default)}.` : null));
  const head = el("thead", {}, el("tr", {}, ["name", "kind", "what it is"].map((text) => el("th", { scope: "col" }, text))));
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": label }, el("table", {}, head, el("tbody", {}, rows.map(line))));
}

function fieldsOf(schema, label) {
  const needed = new Set(schema.required || []);
  return fields(Object.entries(schema.properties || {}).map(([name, own]) =>
    ({ name, needed: needed.has(name), schema: own, text: own.description })), label);
}

function example(path, method, operation, { server, keyed }) {
  const parts = ["curl"];
  if (method !== "get") parts.push(`-X ${method.toUpperCase()}`);
  if (Object.keys(operation.responses["200"]?.content || {}).includes("text/event-stream")) parts.push("-N");
  if (keyed && (!operation.security || operation.security.length)) parts.push('-H "Authorization: Bearer $KEY"');
  const [type] = Object.keys(operation.requestBody?.content || {});
  if (type === "application/json") parts.push("-H 'Content-Type: application/json' -d '{…}'");
  else if (type) parts.push("--data-binary @file");
  const needed = (operation.parameters || []).filter((one) => one.in === "query" && one.required).map((one) => `${one.name}=…`);
  const address = `${server}${path}${needed.length ? `?${needed.join("&")}` : ""}`;
  return [...parts, `'${address}'`].join(" ");
}

function operationOf(path, method, operation, about) {
  const id = `op-${operation.operationId}`;
  const given = (operation.parameters || []).map((one) => ({ name: one.name, needed: one.required, schema: one.schema, text: one.description, where: one.in }));
  const body = Object.entries(operation.requestBody?.content || {});
  const answers = Object.entries(operation.responses).map(([status, answer]) => {
    const content = Object.entries(answer.content || {});
    return el("li", {}, el("strong", {}, status), ` ${answer.description} `, content.flatMap(([type, { schema }]) => [...kind(schema), el("span", { class: "quiet" }, ` ${type}`)]));
  });
  return el("details", { class: "operation", id },
    el("summary", {}, el("span", { class: `method ${method}` }, method.toUpperCase()), " ", el("code", {}, path), " ", el("span", { class: "quiet" }, operation.summary)),
    el("pre", { class: "value", tabindex: "0", "aria-label": "example" }, example(path, method, operation, about)),
    given.length ? [el("h3", {}, "Parameters"), fields(given, `parameters of ${operation.operationId}`)] : null,
    body.length ? [el("h3", {}, "Body"), el("p", {}, body.flatMap(([type, { schema }]) => [...kind(schema), el("span", { class: "quiet" }, ` ${type}`)]))] : null,
    el("h3", {}, "Answers"), el("ul", { class: "answers" }, answers));
}

function schemaOf(name, schema) {
  const rest = schema.properties ? null : el("p", {}, kind(schema));
  return el("details", { class: "operation", id: `schema-${name}` },
    el("summary", {}, el("code", {}, name), " ", el("span", { class: "quiet" }, (schema.description || "").split("\n")[0])),
    schema.description?.includes("\n") ? el("p", { class: "words" }, schema.description) : null, fieldsOf(schema, `fields of ${name}`), rest);
}

/** Open what the address points at: a summary may be closed. */
function goThere() {
  const node = location.hash.length > 1 && document.getElementById(decoded(location.hash.slice(1)));
  if (!node || node === place) return;
  node.open = true;
  node.scrollIntoView({ block: "start", behavior: "instant" });
}

async function begin() {
  let spec;
  try {
    spec = await get("openapi.json");
  } catch (error) {
    fill(place, el("h1", {}, "The API cannot be shown"), el("p", {}, error.message));
    return;
  }
  const about = { server: new URL(spec.servers[0].url, location.href).href.replace(/\/$/, ""), keyed: Boolean(spec.security) };
  const operations = Object.entries(spec.paths).flatMap(([path, own]) =>
    METHODS.filter((method) => own[method]).map((method) => operationOf(path, method, own[method], about)));
  fill(place, el("h1", {}, "The API"), el("p", {}, spec.info.summary), spec.security ? el("p", { class: "quiet" }, "A key is sent as Authorization: Bearer KEY, or as X-API-Key: KEY.") : null,
    el("h2", {}, "Operations"), operations, el("h2", {}, "What is sent"), Object.entries(spec.components.schemas).sort(([a], [b]) => a.localeCompare(b)).map(([name, own]) => schemaOf(name, own)));
  setText(document.getElementById("connection"), "");
  goThere();
}

window.addEventListener("hashchange", goThere);
begin();

// The page of `dslint show`: how many values are written, inferred and without effect, and a table of them to filter and sort.

import { h } from "./dom";
import type { Key, ShowReport } from "./reports";
import { sortable } from "./table";

const GROUPS: [title: string, origins: Key["origin"][]][] = [
  ["Written", ["written"]],
  ["Inferred", ["filled", "derived", "mapped"]],
  ["Without effect", ["dropped", "refused"]],
  ["Default", ["default"]],
];

/** What is chosen stays chosen while the config is edited. */
const chosen = { title: "", words: "" };

export function effectiveView(report: ShowReport, goTo: (line: number, column: number) => void): Node[] {
  const list = h("div");
  const groups = [["All", GROUPS.flatMap(([, origins]) => origins)], ...GROUPS] as typeof GROUPS;
  const chips = groups.map(([title, origins]) => {
    const count = report.keys.filter((key) => origins.includes(key.origin)).length;
    return h("button", { type: "button", "aria-pressed": "false", disabled: count === 0, onclick: () => choose(title) }, title, h("span", { class: "count" }, String(count)));
  });
  const words = h("input", { type: "search", placeholder: "Find a key", "aria-label": "Find a key", value: chosen.words, oninput: () => choose(chosen.title, words.value) });
  function choose(title: string, text: string = chosen.words): void {
    Object.assign(chosen, { title, words: text });
    const index = Math.max(0, groups.findIndex((group) => group[0] === title));
    const origins = groups[index]?.[1] ?? [];
    chips.forEach((chip, at) => chip.setAttribute("aria-pressed", String(at === index)));
    list.replaceChildren(table(report.keys.filter((key) => origins.includes(key.origin) && nameOf(key).includes(text.trim())), goTo));
  }
  choose(chosen.title);
  return [h("div", { class: "filter" }, ...chips, words), list];
}

function table(keys: Key[], goTo: (line: number, column: number) => void): HTMLElement {
  return sortable(
    "The config that DeepSpeed uses",
    [
      { title: "Key", by: nameOf, cell: (key) => keyCell(key, goTo) },
      { title: "Value", by: valueOf, cell: (key) => h("code", {}, valueOf(key)) },
      { title: "Origin", by: (key) => key.origin, cell: (key) => h("span", {}, h("span", { class: "origin" }, key.origin), key.note ? ` ${key.note}` : "") },
    ],
    keys,
    (key) => (key.origin === "dropped" || key.origin === "refused" ? "lost" : key.origin === "default" ? "faint" : ""),
  );
}

function nameOf(key: Key): string {
  return key.path.join(".");
}

function keyCell(key: Key, goTo: (line: number, column: number) => void): Node {
  const { line, column } = key;
  if (line === null || column === null) return h("span", { class: "key" }, nameOf(key));
  return h("button", { type: "button", class: "key", title: `Line ${line}`, onclick: () => goTo(line, column) }, nameOf(key));
}

/** The value as in a config; a question mark if it is unknown. */
function valueOf(key: Key): string {
  if (!key.known) return key.written ?? "?";
  return key.origin === "written" && key.written !== null ? key.written : JSON.stringify(key.value);
}

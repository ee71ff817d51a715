// What the outputs of commands share: links to rules, the command line, charts.

import { h } from "./dom";

/** The page of a rule, next to the playground on the site. */
export function rulePage(code: string): string {
  return `../rules/${code}.html`;
}

/** The command that prints the same on the visitor's machine, to copy. */
export function commandLine(words: string[]): HTMLElement {
  const text = ["dslint", ...words].map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
  const copy = h("button", { type: "button", class: "quiet", "aria-label": "Copy the command", onclick: () => void copied() }, "Copy");
  async function copied(): Promise<void> {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  }
  return h("div", { class: "command" }, h("code", { tabindex: 0 }, text), copy);
}

/** A chart as it was drawn. Its styles stay inside, and its colours follow the page rather than the system. */
export function chart(svg: string): HTMLElement {
  const host = h("div", { class: "chart", tabindex: 0, role: "group", "aria-label": "Chart" });
  const drawn = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  drawn.removeAttribute("width");
  drawn.removeAttribute("height");
  const style = h(
    "style",
    {},
    `svg{width:100%;height:auto;min-width:36rem;background:transparent!important}text{fill:var(--text)!important}.soft{fill:var(--dim)!important}
     .line{stroke:var(--line)!important}.range{stroke:var(--text)!important}.limit{stroke:var(--error)!important}.over{fill:var(--error)!important}
     .sum,.over{stroke:var(--page)!important}`,
  );
  host.attachShadow({ mode: "open" }).append(document.importNode(drawn, true), style);
  return host;
}

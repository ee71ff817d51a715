// The tabs of the results, as WAI-ARIA describes them: arrow keys move, Home and End go to the ends.

import { h } from "./dom";
import { TABS, type Tab } from "./state";

const TITLES: Record<Tab, string> = {
  check: "Check",
  show: "Effective config",
  estimate: "Estimate",
  fit: "Fit",
  diagnose: "Diagnose",
  upgrade: "Upgrade",
};

export class TabList {
  private readonly buttons = new Map<Tab, HTMLButtonElement>();

  constructor(
    private readonly list: HTMLElement,
    private readonly panel: HTMLElement,
    private readonly onSelect: (tab: Tab) => void,
  ) {
    for (const tab of TABS) {
      const button = h("button", { type: "button", role: "tab", id: `tab-${tab}`, "aria-controls": panel.id, onclick: () => onSelect(tab) }, TITLES[tab]);
      button.addEventListener("keydown", (event) => this.move(event, tab));
      this.buttons.set(tab, button);
    }
    list.append(...this.buttons.values());
  }

  /** Show which tab is selected. */
  select(selected: Tab): void {
    for (const [tab, button] of this.buttons) {
      button.setAttribute("aria-selected", String(tab === selected));
      button.tabIndex = tab === selected ? 0 : -1;
      if (tab === selected) this.reveal(button);
    }
    this.panel.setAttribute("aria-labelledby", `tab-${selected}`);
  }

  /** Show how many findings there are beside the title of the check. */
  count(number: number): void {
    const button = this.buttons.get("check");
    button?.replaceChildren(TITLES.check, number > 0 ? h("span", { class: "count" }, String(number)) : "");
  }

  /** Scroll the list, not the page, to a tab that is cut off. */
  private reveal(button: HTMLButtonElement): void {
    const left = button.offsetLeft - this.list.offsetLeft;
    const hidden = left + button.offsetWidth - this.list.clientWidth;
    this.list.scrollLeft = Math.min(left, Math.max(this.list.scrollLeft, hidden));
  }

  private move(event: KeyboardEvent, tab: Tab): void {
    const at = TABS.indexOf(tab);
    const step = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: TABS.length - 1 }[event.key];
    const next = step === undefined ? undefined : TABS[(step + TABS.length) % TABS.length];
    if (next === undefined) return;
    event.preventDefault();
    this.onSelect(next);
    this.buttons.get(next)?.focus();
  }
}

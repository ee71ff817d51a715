// What is asked of the worker for a tab: the words of the command that prints the same in a terminal.

import menus from "menus";
import type { Request } from "./answers";
import { activeFile, asOptions, type State } from "./state";

const LOG = "job.log";
const CHART = "chart.svg";

/** The words of the command for the tab, as they are shown; null where the log is empty. */
export function commandOf(state: State): string[] | null {
  const config = activeFile(state).name;
  const facts = asOptions(state.facts);
  const { sweep: swept = "", ...workload } = state.workload;
  switch (state.tab) {
    case "check":
      return ["check", ...state.files.map((file) => file.name), ...facts];
    case "show":
      return ["show", config, ...facts];
    case "estimate":
      return ["estimate", config, ...facts, ...asOptions({ ...workload, sweep: swept })];
    case "fit":
      return ["fit", config, ...facts, ...asOptions(workload)];
    case "diagnose":
      return state.log.trim() === "" ? null : ["diagnose", LOG];
    case "upgrade":
      return ["check", ...state.files.map((file) => file.name), ...asOptions({ ...state.facts, deepspeed: upgradeOf(state) })];
  }
}

/** The two releases of an upgrade, `A..B`: from the oldest to the newest where none is chosen. */
export function upgradeOf(state: State): string {
  const { from, to } = state.upgrade;
  return `${from || menus.releases.at(-1)}..${to || menus.releases[0]}`;
}

/** The request for the findings and for the tab. */
export function requestOf(state: State): Request {
  const files = Object.fromEntries(state.files.map((file) => [file.name, file.text]));
  const request: Request = { files, facts: state.facts };
  if (state.tab === "upgrade") return { ...request, upgrade: upgradeOf(state) };
  const words = state.tab === "check" ? null : commandOf(state);
  if (words === null) return request;
  const drawn = state.tab === "estimate" ? ["--plot", CHART] : [];
  const input: Record<string, string> = state.tab === "diagnose" ? { [LOG]: state.log } : {};
  return { ...request, run: [...words, ...drawn, "--output-format", "json"], input };
}

/** The request to apply all safe fixes. */
export function fixRequest(state: State): Request {
  const names = state.files.map((file) => file.name);
  return { ...requestOf({ ...state, tab: "check" }), fix: ["check", "--fix", "--fix-only", ...names, ...asOptions(state.facts)] };
}

/** The request to explain the key at a place of the file in the editor. */
export function hoverRequest(state: State, offset: number): Request {
  return { ...requestOf({ ...state, tab: "check" }), hover: [activeFile(state).name, offset] };
}

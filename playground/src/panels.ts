// The panel of the selected tab: its controls, which stay, and its results, which every answer replaces.

import menus from "menus";
import type { Answer, Output } from "./answers";
import { field, h, menu, numberField } from "./dom";
import { type FindingActions, findingsView } from "./findings";
import { chart, commandLine, terminal } from "./output";
import { commandOf, upgradeOf } from "./requests";
import type { State } from "./state";

export interface PanelActions extends FindingActions {
  fixAll(): void;
  changed(): void;
}

const SWEEPS: [string, string][] = [
  ["", "one value"],
  ["stage=0..3", "ZeRO stages 0 to 3"],
  ["world-size=1..64", "1 to 64 GPUs"],
  ["micro-batch=1,2,4,8", "micro batch sizes 1 to 8"],
];

/** The controls of the tab. */
export function controls(state: State, actions: PanelActions): Node[] {
  const set = (name: string) => (value: string) => {
    state.workload[name] = value;
    actions.changed();
  };
  const workload = (name: string) => state.workload[name] ?? "";
  switch (state.tab) {
    case "estimate":
    case "fit":
      return [
        h(
          "form",
          { class: "fields", "aria-label": "Workload", onsubmit: (event) => event.preventDefault() },
          numberField("Sequence length", workload("sequence-length"), set("sequence-length")),
          numberField("Micro batch", workload("micro-batch"), set("micro-batch")),
          menu("Checkpointing", workload("activation-checkpointing"), [["", "none"], ["1", "every layer"], ["2", "every 2nd layer"]], set("activation-checkpointing")),
          numberField("LoRA rank", workload("lora-rank"), set("lora-rank")),
          menu("Optimizer", workload("optimizer"), [["", "of the config"], ...menus.optimizers], set("optimizer")),
          state.tab === "estimate" && menu("Compare", workload("sweep"), SWEEPS, set("sweep")),
        ),
      ];
    case "diagnose":
      return [logField(state, actions)];
    case "upgrade": {
      const [from = "", to = ""] = upgradeOf(state).split("..");
      const choose = (end: "from" | "to") => (release: string) => {
        state.upgrade[end] = release;
        actions.changed();
      };
      return [
        h(
          "form",
          { class: "fields", "aria-label": "Upgrade", onsubmit: (event) => event.preventDefault() },
          menu("From DeepSpeed", from, menus.releases, choose("from")),
          menu("To DeepSpeed", to, menus.releases, choose("to")),
        ),
      ];
    }
    default:
      return [];
  }
}

function logField(state: State, actions: PanelActions): HTMLElement {
  const area = h("textarea", {
    rows: 10,
    spellcheck: "false",
    placeholder: "Paste or drop the output of the job here.",
    oninput: () => {
      state.log = area.value;
      actions.changed();
    },
  });
  area.value = state.log;
  return field("The log of the job", area, "wide");
}

/** The results of the tab. */
export function results(state: State, answer: Answer, actions: PanelActions): Node[] {
  const words = commandOf(state);
  const command = words && commandLine(words);
  const view = state.tab === "check" ? checked(answer, actions) : state.tab === "upgrade" ? upgraded(answer, actions) : printed(answer.output);
  return command ? [...view, command] : view;
}

function checked(answer: Answer, actions: PanelActions): Node[] {
  const safe = answer.check.marks.filter((finding) => finding.fix?.applicability === "safe").length;
  const [verdict, ...rest] = findingsView(answer.check, actions);
  const fixAll = h("button", { type: "button", class: "primary", id: "fix-all", onclick: () => actions.fixAll() }, `Fix all that are safe (${safe})`);
  return [h("div", { class: "summary" }, verdict, safe > 0 && fixAll), ...rest];
}

/** The first paragraph of an estimate, which says whether the training fits; empty for other outputs. */
function verdictOf(text: string): string {
  const [first = ""] = text.replaceAll(/\x1b\[[\d;]*m/g, "").split("\n\n");
  return /^(?:Fits|Likely fits|Unlikely to fit|Does not fit)\b/.test(first) ? first.replaceAll(/\s+/g, " ") : "";
}

function kindOf(verdict: string): string {
  return verdict.startsWith("Fits") ? "good" : verdict.startsWith("Does not fit") ? "bad" : "unsure";
}

function upgraded(answer: Answer, actions: PanelActions): Node[] {
  return answer.upgrade ? findingsView(answer.upgrade, actions) : [];
}

function printed(output: Output | undefined): Node[] {
  if (!output) return [];
  const parts: Node[] = [];
  const verdict = verdictOf(output.text);
  if (verdict !== "") parts.push(h("p", { class: `answer ${kindOf(verdict)}` }, verdict));
  if (output.chart !== null) parts.push(chart(output.chart));
  if (output.errors !== "") parts.push(h("p", { class: output.text === "" ? "problem" : "remark" }, output.errors.replaceAll(/^dslint: /gm, "").trim()));
  if (output.text !== "") parts.push(terminal(output.text));
  return parts;
}

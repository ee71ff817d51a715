// The panel of the selected tab: its controls, which stay, and its results, which every answer replaces.

import menus from "menus";
import type { Answer, Output } from "./answers";
import { diagnosisAnswer, diagnosisView } from "./diagnosis";
import { field, h, menu, numberField } from "./dom";
import { type FindingActions, findingsView } from "./findings";
import { effectiveView } from "./effective";
import { answerOf, estimateView, fitView, sweepView } from "./memory";
import { commandLine } from "./output";
import type { DiagnosisReport, EstimateReport, FitReport, ShowReport, SweepReport } from "./reports";
import { commandOf, upgradeOf } from "./requests";
import type { State } from "./state";

export interface PanelActions extends FindingActions {
  fixAll(): void;
  goToPlace(line: number, column: number): void;
  /** Apply a unified diff to the file in the editor. */
  apply(diff: string): void;
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
        foldable(
          "Workload",
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
  const open = state.log === ""; // else the diagnosis comes first
  return h("details", { class: "more", open }, h("summary", {}, "Log"), field("The log of the job", area, "wide bare"));
}

/** Show a line of the log in the field that holds it. */
function showLine(log: string, line: number): void {
  const area = document.querySelector<HTMLTextAreaElement>("#panel textarea");
  const fold = area?.closest("details");
  if (!area || !fold) return;
  const lines = log.split("\n");
  const sizeOf = (text: string) => text.replaceAll(/\r\n?/g, "\n").length; // a field has other line ends
  const start = sizeOf(lines.slice(0, line - 1).map((one) => `${one}\n`).join(""));
  fold.open = true;
  area.blur(); // a field scrolls to its selection when it gets the focus
  area.setSelectionRange(start, start + sizeOf((lines[line - 1] ?? "").replace(/\r$/, "")));
  area.focus();
}

/** Controls that are folded on a phone, where the answer comes first. */
function foldable(title: string, ...fields: (Node | false)[]): HTMLElement {
  const open = !matchMedia("(max-width: 800px)").matches;
  const form = h("form", { class: "fields", "aria-label": title, onsubmit: (event) => event.preventDefault() }, ...fields);
  return h("details", { class: "foldable", open }, h("summary", {}, title), form);
}

/** The results of the tab. */
export function results(state: State, answer: Answer, actions: PanelActions): Node[] {
  const words = commandOf(state);
  const command = words && commandLine(words);
  const view = viewOf(state, answer, actions);
  return command ? [...view, command] : view;
}

function viewOf(state: State, answer: Answer, actions: PanelActions): Node[] {
  switch (state.tab) {
    case "check":
      return checked(answer, actions);
    case "upgrade":
      return upgraded(answer, actions);
    default:
      return reported(state, answer.output, actions);
  }
}

function checked(answer: Answer, actions: PanelActions): Node[] {
  const safe = answer.check.marks.filter((finding) => finding.fix?.applicability === "safe").length;
  const [verdict, ...rest] = findingsView(answer.check, actions);
  const fixAll = h("button", { type: "button", class: "primary", id: "fix-all", onclick: () => actions.fixAll() }, `Fix all that are safe (${safe})`);
  return [h("div", { class: "summary" }, verdict, safe > 0 && fixAll), ...rest];
}

function upgraded(answer: Answer, actions: PanelActions): Node[] {
  return answer.upgrade ? findingsView(answer.upgrade, actions) : [];
}

/** A report of a command as a page; what it could not do otherwise. */
function reported(state: State, output: Output | undefined, actions: PanelActions): Node[] {
  if (!output) return [];
  if (output.text === "") return [problem(output)];
  const report: unknown = JSON.parse(output.text);
  const remark = output.errors === "" ? [] : [h("p", { class: "remark" }, wordsOf(output.errors))];
  if (state.tab === "show") return [...effectiveView(report as ShowReport, actions.goToPlace), ...remark];
  if (state.tab === "diagnose") return [...remark, ...diagnosisView(report as DiagnosisReport, (line) => showLine(state.log, line))];
  if (state.tab === "fit") return [...fitView(report as FitReport, actions.apply), ...remark];
  const estimate = report as EstimateReport | SweepReport;
  return [...("points" in estimate ? sweepView(estimate, output.chart) : estimateView(estimate, output.chart)), ...remark];
}

/** What comes above the controls: the answer of an estimate, or of a diagnosis. */
export function answer(state: State, output: Output | undefined): Node[] {
  if (!["estimate", "fit", "diagnose"].includes(state.tab) || !output?.text) return [];
  const report: unknown = JSON.parse(output.text);
  const found = state.tab === "diagnose" ? diagnosisAnswer(report as DiagnosisReport) : answerOf(report as EstimateReport | SweepReport | FitReport);
  return found ? [found] : [];
}

function problem(output: Output): HTMLElement {
  return h("p", { class: "problem" }, wordsOf(output.errors));
}

function wordsOf(errors: string): string {
  return errors.replaceAll(/^dslint: /gm, "").trim();
}

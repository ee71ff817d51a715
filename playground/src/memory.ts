// The pages of `dslint estimate` and `dslint fit`: the verdict, figures and bars, tables to sort, and diffs to apply.

import { h, sentence } from "./dom";
import { chart } from "./output";
import { change, duration, type Estimate, type EstimateReport, type FitReport, gib, type SweepReport, type Verdict, type Way } from "./reports";
import { sortable } from "./table";

const HUES: Record<Verdict, string> = { fits: "good", "likely fits": "unsure", "unlikely to fit": "bad", "does not fit": "bad", "not judged": "unsure" };
const ALLOWANCE = "context and fragmentation";

/** The sentence that most people came for. */
export function answerOf(report: EstimateReport | SweepReport | FitReport): HTMLElement | null {
  if ("points" in report) return sweepAnswer(report);
  const verdict = "now" in report ? report.now.verdict : report.verdict;
  return h("p", { class: `answer ${verdict ? HUES[verdict] : "good"}` }, report.answer);
}

/** At which values it fits; nothing if there is no limit to compare with. */
function sweepAnswer({ sweep, limit, points }: SweepReport): HTMLElement | null {
  if (limit === null) return null;
  const at = (verdict: Verdict) => points.filter((point) => point.verdict === verdict).map((point) => point.value.toLocaleString("en")).join(", ");
  const parts = (["fits", "likely fits"] as const).filter((verdict) => at(verdict) !== "").map((verdict) => `${verdict} at ${sweep} ${at(verdict)}`);
  const words = parts.join("; ") || "does not fit at any of these values";
  return h("p", { class: `answer ${at("fits") ? "good" : at("likely fits") ? "unsure" : "bad"}` }, `${words.charAt(0).toUpperCase()}${words.slice(1)}.`);
}

export function estimateView(report: EstimateReport, picture: string | null): Node[] {
  const { model, device, limit, step, host } = report;
  const width = `${report.world_size.toLocaleString("en")} GPUs, ZeRO stage ${report.stage}`;
  const batch = `${report.micro_batch} × ${report.accumulation} samples of ${report.tokens.toLocaleString("en")} tokens per GPU and step`;
  const steady = report.steady.total + report.allowance.expected;
  const range = (sizes: { low: number; high: number }) => `${gib(sizes.low)} to ${gib(sizes.high)}`;
  return [
    h("p", { class: "remark" }, `${model.name}: ${model.parameters.toLocaleString("en")} parameters; ${width}; ${batch}`),
    h(
      "dl",
      { class: "figures" },
      ...figure("Peak of a GPU", `${gib(device.expected)} GiB`, `${range(device)}, in ${report.phase}`),
      ...figure("Between steps", `${gib(steady)} GiB`, "of a GPU"),
      ...figure("Host memory", `${gib(host.machine_between_steps.expected)} GiB`, `${range(host.machine_between_steps)}, of a machine between steps`),
      ...(step ? figure("Time of a step", duration(step.seconds), `${duration(step.low)} to ${duration(step.high)}`) : []),
      ...(step ? figure("Speed", `${Math.round(step.tokens_per_second).toLocaleString("en")}`, "tokens per second") : []),
      ...figure("Checkpoint", `${gib(report.checkpoint)} GiB`, "on disk"),
    ),
    ...(limit === null ? [] : [gauge(report, limit)]),
    ...(picture === null ? [] : [chart(picture)]),
    partsTable(report),
    notes("Assumptions", report.assumed, true),
    notes("Accuracy", report.reasons, false),
  ];
}

/** A figure with what it is, and what there is to say of it, for a list of definitions. */
function figure(name: string, value: string, more: string): HTMLElement[] {
  return [h("div", {}, h("dt", {}, name), h("dd", {}, h("b", {}, value), h("span", {}, more)))];
}

/** The range of the peak beside the limit. */
function gauge(report: Estimate, limit: number): HTMLElement {
  const most = 1.05 * Math.max(limit, report.device.high);
  const at = (size: number) => `${(100 * size) / most}%`;
  const { low, expected, high } = report.device;
  return h(
    "div",
    { class: "gauge", role: "img", "aria-label": `The peak is ${gib(low)} to ${gib(high)} GiB, the limit ${gib(limit)} GiB.` },
    h("span", { class: expected > limit ? "bar over" : "bar", style: `width:${at(expected)}` }),
    h("span", { class: "span", style: `left:${at(low)};width:${at(high - low)}` }),
    h("span", { class: "limit", style: `left:${at(limit)}` }, h("i", {}, `${gib(limit)} GiB`)),
  );
}

function partsTable(report: Estimate): HTMLElement {
  const moments: [string, Record<string, number>][] = [["steady", report.steady.parts], ...Object.entries(report.phases).map(([name, { parts }]) => [name, parts] as [string, Record<string, number>])];
  const names = [...new Set(moments.flatMap(([, parts]) => Object.keys(parts)))];
  const rows = [...names.map((name) => ({ name, sizes: moments.map(([, parts]) => parts[name] ?? 0) })), { name: ALLOWANCE, sizes: moments.map(() => report.allowance.expected) }];
  return sortable<(typeof rows)[number]>(
    "Memory of a GPU by part, in GiB",
    [
      { title: "Part", by: (row) => row.name, cell: (row) => row.name },
      ...moments.map(([title], index) => ({
        title,
        by: (row: (typeof rows)[number]) => -(row.sizes[index] ?? 0),
        cell: (row: (typeof rows)[number]) => (row.sizes[index] ? gib(row.sizes[index]) : "–"),
        number: true,
      })),
    ],
    rows,
  );
}

export function sweepView(report: SweepReport, picture: string | null): Node[] {
  const table = sortable(
    "Estimates, in GiB",
    [
      { title: report.sweep, by: (row) => row.value, cell: (row) => row.value.toLocaleString("en"), number: true },
      { title: "Peak", by: (row) => row.device.expected, cell: (row) => gib(row.device.expected), number: true },
      { title: "Range", by: (row) => row.device.high, cell: (row) => `${gib(row.device.low)} to ${gib(row.device.high)}`, number: true },
      { title: "Phase", by: (row) => row.phase, cell: (row) => row.phase },
      { title: "Host", by: (row) => row.host.machine_between_steps.expected, cell: (row) => gib(row.host.machine_between_steps.expected), number: true },
      { title: "Verdict", by: (row) => row.verdict ?? "", cell: (row) => row.verdict ?? "" },
    ],
    report.points,
    (row) => (row.verdict ? HUES[row.verdict] : ""),
  );
  return [...(picture === null ? [] : [chart(picture)]), table, notes("Assumptions", report.points[0]?.assumed ?? [], true)];
}

export function fitView(report: FitReport, apply: (diff: string) => void): Node[] {
  const most = Math.max(report.limit, report.now.device.expected);
  const singles = sortable(
    "Each change on its own",
    [
      { title: "Change", by: (way) => nameOf(way), cell: (way) => nameOf(way) },
      { title: "Peak, GiB", by: (way) => way.device.expected, cell: (way) => bar(way, report.limit, most), number: true },
      { title: "Saves", by: (way) => -way.saves, cell: (way) => gib(way.saves), number: true },
      { title: "Host", by: (way) => way.host_machine.expected, cell: (way) => (way.host_node ? gib(way.host_machine.expected) : "–"), number: true },
      { title: "Step", by: (way) => way.slower, cell: (way) => change(way.slower), number: true },
    ],
    report.singles,
    (way) => HUES[way.verdict],
  );
  return [
    ...report.advice.map((words) => h("p", { class: "advice" }, ...sentence(words))),
    h("ol", { class: "ways" }, ...report.ways.slice(0, 6).map((way) => h("li", {}, card(way, report, apply)))),
    ...(report.singles.length > 0 ? [singles] : []),
    h("p", { class: "remark" }, `${report.tried} variants were tried. * changes training, not only its speed.`),
  ];
}

function nameOf(way: Way): string {
  return way.changes.join(", ") + (way.trains_otherwise ? " *" : "");
}

function bar(way: Way, limit: number, most: number): HTMLElement {
  const share = (size: number) => `${Math.min(100, (100 * size) / most)}%`;
  return h("span", { class: "in-cell" }, h("i", { style: `width:${share(way.device.expected)}`, class: way.device.expected > limit ? "over" : "" }), h("b", {}, gib(way.device.expected)));
}

function card(way: Way, report: FitReport, apply: (diff: string) => void): HTMLElement {
  const rows: [string, string][] = [
    ["peak", `${gib(way.device.expected)} GiB (${gib(way.device.low)} to ${gib(way.device.high)}), ${gib(way.saves)} less`],
    ["step", change(way.slower)],
    ...(way.host_node === report.now.host_node ? [] : [["host", `${gib(way.host_machine.expected)} GiB per machine`] as [string, string]]),
    ...way.costs.map((words) => ["cost", words] as [string, string]),
    ...way.program.map((words) => ["program", words] as [string, string]),
    ...way.notes.map((words) => ["note", words] as [string, string]),
  ];
  return h(
    "article",
    { class: "way" },
    h("h3", {}, nameOf(way), h("span", { class: `badge ${HUES[way.verdict]}` }, way.verdict)),
    h("dl", {}, ...rows.flatMap(([label, words]) => [h("dt", {}, label), h("dd", {}, ...sentence(words))])),
    way.diff !== "" && diffView(way.diff),
    way.diff !== "" && h("p", { class: "actions" }, h("button", { type: "button", class: "fix", onclick: () => apply(way.diff) }, "Apply to the config")),
  );
}

/** A unified diff without its heads. */
export function diffView(diff: string): HTMLElement {
  const kinds: Record<string, string> = { "+": "added", "-": "removed" };
  const lines = diff.split("\n").filter((line) => !/^(?:---|\+\+\+|@@)/.test(line));
  return h("pre", { class: "diff", tabindex: 0, role: "region", "aria-label": "Change of the config" }, ...lines.map((line) => h("span", { class: kinds[line[0] ?? ""] ?? "" }, `${line}\n`)));
}

/** The text with a unified diff applied; null if it is not the text that the diff is about. */
export function patched(text: string, diff: string): string | null {
  const lines = text.split("\n");
  let shift = 0;
  for (const hunk of diff.split(/^(?=@@ )/m).slice(1)) {
    const [head = "", ...body] = hunk.replace(/\n$/, "").split("\n");
    const start = Number(/^@@ -(\d+)/.exec(head)?.[1]) - 1 + shift;
    const before = body.filter((line) => !line.startsWith("+")).map((line) => line.slice(1));
    const after = body.filter((line) => !line.startsWith("-")).map((line) => line.slice(1));
    if (before.some((line, index) => lines[start + index] !== line)) return null;
    lines.splice(start, before.length, ...after);
    shift += after.length - before.length;
  }
  return lines.join("\n");
}

function notes(title: string, sentences: string[], open: boolean): HTMLElement {
  return h("details", { class: "more", open: open && sentences.length > 0 }, h("summary", {}, title), h("ul", {}, ...sentences.map((words) => h("li", {}, ...sentence(words)))));
}

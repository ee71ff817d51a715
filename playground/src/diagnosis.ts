// The page of `dslint diagnose`: the cause with its evidence and what to do first, then what else the log tells, and what ran folded.

import { h, sentence } from "./dom";
import { diffView } from "./memory";
import { rulePage } from "./output";
import type { Cause, DiagnosisReport, Job, LogLine } from "./reports";
import { sortable } from "./table";

/** Shows a line of the log. */
type GoTo = (line: number) => void;

const HUES: Record<Job["outcome"]["end"], string> = { finished: "good", unfinished: "unsure", unknown: "unsure", failed: "bad", killed: "bad", hung: "bad" };
const LONGEST = 480; // characters of a line of the log

/** The sentence that most people came for. */
export function diagnosisAnswer({ jobs }: DiagnosisReport): HTMLElement | null {
  const [job] = jobs;
  return jobs.length === 1 && job ? h("p", { class: `answer ${HUES[job.outcome.end]}` }, ...sentence(verdict(job))) : null;
}

export function diagnosisView({ jobs }: DiagnosisReport, goTo: GoTo): Node[] {
  const [job] = jobs;
  if (jobs.length === 1 && job) return jobView(job, goTo);
  return [
    h("p", { class: "remark" }, `${jobs.length} jobs in this log`),
    ...jobs.map((one, index) =>
      h("details", { class: "job", open: index === jobs.length - 1 }, h("summary", {}, `Job ${index + 1}, ${one.outcome.end}: `, ...sentence(verdict(one))), ...jobView(one, goTo)),
    ),
  ];
}

function verdict({ outcome, causes: [first] }: Job): string {
  return first ? `${first.certain ? "" : "Most likely: "}${first.title}` : outcome.sentence;
}

function jobView(job: Job, goTo: GoTo): Node[] {
  const [first, ...others] = job.causes;
  return [
    ...(first ? explained(first, job.outcome.sentence, goTo) : evidence(job.outcome.evidence ? [job.outcome.evidence] : [], goTo)),
    ...job.unread.map((words) => h("p", { class: "remark" }, `${words}.`)),
    ...section("Also possible", others.map((cause) => card(cause, goTo))),
    ...section("Also in the log", job.notices.map((cause) => card(cause, goTo))),
    ...section("Rules on the config of this job", job.findings.map(found)),
    memory(job, goTo),
    ran(job, goTo),
  ].filter((node) => node !== null);
}

/** The first cause: the lines that show it, why, and what to do in order. */
function explained(cause: Cause, outcome: string, goTo: GoTo): Node[] {
  return [
    ...evidence(cause.evidence, goTo),
    ...[[outcome, cause.where].filter(Boolean).join(" "), ...cause.why].map((words) => h("p", { class: "why" }, ...sentence(words))),
    ...(cause.advice.length > 0 ? [h("h3", {}, "What to do"), h("ol", { class: "todo" }, ...cause.advice.map((words) => h("li", {}, ...sentence(words), carriedOut(cause, words))))] : []),
    ...ruleLinks(cause),
  ];
}

/** Another cause, or something else in the log, as a card. */
function card(cause: Cause, goTo: GoTo): HTMLElement {
  return h(
    "article",
    { class: "finding warning" },
    h("h4", {}, ...sentence(cause.title)),
    ...[...(cause.where ? [cause.where] : []), ...cause.why].map((words) => h("p", {}, ...sentence(words))),
    cause.advice.length > 0 && h("dl", {}, ...cause.advice.flatMap((words) => [h("dt", {}, "help"), h("dd", {}, ...sentence(words), carriedOut(cause, words))])),
    ...evidence(cause.evidence, goTo),
    ...ruleLinks(cause),
  );
}

function carriedOut(cause: Cause, advice: string): HTMLElement | null {
  return cause.changes !== null && cause.changed_by === advice ? diffView(cause.changes) : null;
}

function ruleLinks(cause: Cause): Node[] {
  if (cause.rules.length === 0) return [];
  return [h("p", { class: "dim" }, "Rules: ", ...cause.rules.flatMap((code, index) => [index > 0 ? ", " : "", h("a", { href: rulePage(code), target: "_blank" }, code)]))];
}

function evidence(lines: LogLine[], goTo: GoTo): Node[] {
  return lines.map((shown) => h("blockquote", { class: "log" }, place(shown.line, goTo), h("code", {}, clipped(shown.text.trim()))));
}

/** A line of the log, from its useful part on if it is very long. */
function clipped(text: string): string {
  if (text.length <= LONGEST) return text;
  const useful = text.search(/\b(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b|out of memory|error:/i);
  const start = useful > LONGEST / 4 ? useful : 0;
  const end = start + LONGEST;
  return `${start > 0 ? "…" : ""}${text.slice(start, end)}${end < text.length ? "…" : ""}`;
}

function place(line: number | null, goTo: GoTo): HTMLElement | null {
  return line === null ? null : h("button", { type: "button", class: "key", onclick: () => goTo(line) }, `line ${line}`);
}

function found({ code, name, severity, message, help }: Job["findings"][number]): HTMLElement {
  return h(
    "article",
    { class: `finding ${severity}` },
    h("h4", {}, h("span", { class: "severity" }, severity), " ", h("a", { href: rulePage(code), target: "_blank", class: "code" }, code), " ", h("span", { class: "name" }, name)),
    h("p", {}, ...sentence(message)),
    help !== null && h("dl", {}, h("dt", {}, "help"), h("dd", {}, ...sentence(help))),
  );
}

function section(title: string, cards: HTMLElement[]): Node[] {
  return cards.length === 0 ? [] : [h("h3", {}, title), h("ol", { class: "findings" }, ...cards.map((one) => h("li", {}, one)))];
}

/** The memory that the log reports, beside the estimate; columns without a figure are left out. */
function memory({ memory: moments, not_estimated }: Job, goTo: GoTo): HTMLElement | null {
  if (moments.length === 0) return null;
  const columns = ([["Held", "allocated_gib"], ["Peak", "peak_gib"], ["Reserved", "reserved_gib"], ["Estimated", "estimated_gib"], ["Host", "host_gib"]] as const).filter(([, key]) => moments.some((moment) => moment[key] !== null));
  const table = sortable<(typeof moments)[number]>(
    "Memory of a rank, in GiB",
    [
      { title: "Moment", by: (moment) => moment.label, cell: (moment) => moment.label },
      ...columns.map(([title, key]) => ({
        title,
        by: (moment: (typeof moments)[number]) => -(moment[key] ?? 0),
        cell: (moment: (typeof moments)[number]) => moment[key]?.toFixed(2) ?? "–",
        number: true,
      })),
      { title: "Place", by: (moment) => moment.line ?? 0, cell: (moment) => place(moment.line, goTo) ?? "" },
    ],
    moments,
  );
  return h("div", {}, table, not_estimated !== null && h("p", { class: "remark" }, not_estimated));
}

function ran({ ran: rows }: Job, goTo: GoTo): HTMLElement | null {
  if (rows.length === 0) return null;
  const table = sortable<(typeof rows)[number]>(
    "What the log tells of the job",
    [
      { title: "Fact", by: (row) => row.name, cell: (row) => row.name },
      { title: "Value", by: (row) => row.value, cell: (row) => row.value },
      { title: "Place", by: (row) => row.line ?? 0, cell: (row) => place(row.line, goTo) ?? "" },
    ],
    rows,
  );
  return h("details", { class: "more" }, h("summary", {}, "What ran"), table);
}

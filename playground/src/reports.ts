// The JSON outputs of `dslint show`, `estimate`, `fit` and `diagnose`: what the page shows of them. Sizes are in bytes, times in seconds.

export interface Sizes {
  low: number;
  expected: number;
  high: number;
}

export interface Moment {
  total: number;
  parts: Record<string, number>;
}

export interface Estimate {
  answer: string;
  model: { name: string; parameters: number; trained: number };
  world_size: number;
  stage: number;
  micro_batch: number;
  accumulation: number;
  tokens: number;
  device: Sizes;
  allowance: Sizes;
  verdict: Verdict | null;
  phase: string;
  steady: Moment;
  phases: Record<string, Moment>;
  host: { machine_between_steps: Sizes };
  checkpoint: number;
  reasons: string[];
  assumed: string[];
}

export type Verdict = "fits" | "likely fits" | "unlikely to fit" | "does not fit" | "not judged";

export interface EstimateReport extends Estimate {
  limit: number | null;
  step: { seconds: number; low: number; high: number; tokens_per_second: number } | null;
}

export interface SweepReport {
  sweep: string;
  limit: number | null;
  points: (Estimate & { value: number })[];
}

export interface Way {
  changes: string[];
  program: string[];
  notes: string[];
  trains_otherwise: boolean;
  fits: boolean;
  verdict: Verdict;
  device: Sizes;
  saves: number;
  host_machine: Sizes;
  host_node: number;
  slower: number;
  costs: string[];
  diff: string;
}

export interface FitReport {
  limit: number;
  fits: boolean;
  answer: string;
  advice: string[];
  now: Way;
  ways: Way[];
  singles: Way[];
  tried: number;
}

export interface Key {
  path: (string | number)[];
  value: unknown;
  known: boolean;
  origin: "written" | "default" | "filled" | "derived" | "mapped" | "dropped" | "refused";
  note: string | null;
  written: string | null;
  line: number | null;
  column: number | null;
}

export interface ShowReport {
  keys: Key[];
}

/** A line of the log. */
export interface LogLine {
  line: number | null;
  text: string;
}

export interface Cause {
  title: string;
  why: string[];
  advice: string[];
  changes: string | null;
  changed_by: string | null;
  certain: boolean;
  where: string | null;
  rules: string[];
  evidence: LogLine[];
}

export interface Job {
  outcome: { end: "finished" | "failed" | "killed" | "hung" | "unfinished" | "unknown"; sentence: string; evidence: LogLine | null };
  causes: Cause[];
  notices: Cause[];
  ran: { name: string; value: string; line: number | null }[];
  memory: {
    label: string;
    allocated_gib: number | null;
    peak_gib: number | null;
    reserved_gib: number | null;
    host_gib: number | null;
    estimated_gib: number | null;
    line: number | null;
  }[];
  not_estimated: string | null;
  unread: string[];
  findings: { code: string; name: string; severity: "error" | "warning" | "info"; message: string; help: string | null }[];
}

export interface DiagnosisReport {
  jobs: Job[];
}

const GIB = 2 ** 30;

/** Bytes in GiB, with three significant digits below 10 and one decimal above, as the command prints them. */
export function gib(size: number): string {
  const value = size / GIB;
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function duration(seconds: number): string {
  return seconds >= 1 ? `${seconds.toFixed(1)} s` : `${Math.round(1000 * seconds)} ms`;
}

/** A share of change: `+15 %`, or `=` if it is none. */
export function change(share: number): string {
  const percent = Math.round(100 * share);
  return percent === 0 ? "=" : `${percent > 0 ? "+" : "−"}${Math.abs(percent).toLocaleString("en")} %`;
}

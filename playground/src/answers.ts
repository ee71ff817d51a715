// What the page asks of the worker, and what bridge.py answers.

export interface Request {
  files: Record<string, string>;
  facts: Record<string, string>;
  run?: string[];
  input?: Record<string, string>;
  upgrade?: string;
  fix?: string[];
  hover?: [name: string, offset: number];
}

export interface Change {
  from: number;
  to: number;
  insert: string;
}

export interface Finding {
  path: string;
  code: string;
  name: string;
  severity: "error" | "warning" | "info";
  message: string;
  remarks: [label: string, text: string][];
  range: { from: number; to: number; line: number; column: number } | null;
  fix: { title: string; applicability: "safe" | "unsafe" | "display"; changes: Change[] } | null;
}

export interface Check {
  error?: string;
  verdict: string;
  notes: string[];
  findings: Finding[];
  marks: Finding[];
}

export interface Output {
  text: string;
  errors: string;
  code: number;
  chart: string | null;
}

export interface Answer {
  check: Check;
  upgrade?: Check;
  output?: Output;
  texts?: Record<string, string>;
  key?: AboutKey | null;
}

/** What there is to say of the key at a place, in Markdown. */
export interface AboutKey {
  from: number;
  to: number;
  paragraphs: string[];
}

export interface Progress {
  loaded: number;
  total: number;
}

export type FromWorker = { progress: Progress } | { ready: true } | { id: number; answer: Answer } | { id: number; failed: string } | { broken: string };

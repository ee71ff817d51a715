// What a pasted text is: the name that says so, or the log of a job.

/** Lines that jobs print and people do not write. */
const OF_A_LOG = [
  /^Traceback \(most recent call last\):/m,
  /^\[?(?:rank|default)\d+\]?:/m,
  /^\[\d{4}-\d{2}-\d{2}[ T][\d:,.]+\] \[(?:INFO|WARNING|ERROR)\]/m,
  /\b(?:CUDA out of memory|torch\.distributed\.elastic|NCCL (?:WARN|INFO))\b/,
  /^(?:\w+\.)*\w*(?:Error|Exception): \S/m,
];

/** The line of a shell that starts a training. */
const LAUNCH = /^[ \t]*(?:\w+=\S+ +)*(?:deepspeed|torchrun|accelerate +launch|srun|mpirun|llamafactory-cli|axolotl|swift) +\S/m;

/** Keys that tell whose file a YAML text is. */
const FRAMEWORK_FILES: [RegExp, string][] = [
  [/^(?:distributed_type|compute_environment|deepspeed_config) *:/m, "accelerate.yaml"],
  [/^(?:base_model|datasets) *:/m, "axolotl.yaml"],
];

/** The name for a text; null for the log of a job. */
export function nameOf(text: string): string | null {
  const start = text.trimStart();
  if (start.startsWith("{") || /^(?:\/\/|\/\*)/.test(start)) return jsonName(start);
  if (/^#!.*\b(?:ba|z|k|da)?sh\b/.test(start) || /^#SBATCH /m.test(text)) return "run.sh";
  if (OF_A_LOG.some((line) => line.test(text)) && !/^(?:import|from) \w/.test(start)) return null;
  if (/^#!.*\bpython/.test(start) || /^(?:from [\w.]+ import |import [\w.]+|def \w+\(|class \w+|if __name__ ==)/m.test(text)) return "train.py";
  if (LAUNCH.test(text)) return "run.sh";
  const framework = FRAMEWORK_FILES.find(([key]) => key.test(text));
  if (framework) return framework[1];
  return /^[\w-]+ *:(?:[ \t]|$)/m.test(text) ? "train.yaml" : "ds_config.json";
}

function jsonName(text: string): string {
  if (text.includes('"model_type"') && text.includes('"hidden_size"')) return "config.json";
  const isHjson = /(?:^|\s)(?:\/\/|\/\*|#)/.test(text) || /^\{\s*\w/.test(text);
  return isHjson ? "ds_config.hjson" : "ds_config.json";
}

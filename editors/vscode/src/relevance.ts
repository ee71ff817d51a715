// Whether a text concerns DeepSpeed: the server starts with the first one that does, and not with every JSON file.
import * as vscode from "vscode";

export const SELECTOR = [
  ...["json", "jsonc", "hjson", "yaml", "python", "shellscript", "makefile"].flatMap((language) =>
    ["file", "untitled"].map((scheme) => ({ scheme, language })),
  ),
  { scheme: "file", pattern: "**/*.{hjson,slurm,sbatch,pbs,lsf,qsub,sge,job}" },
];

const WORDS = /deepspeed|zero_optimization|train_micro_batch_size_per_gpu|ds_config|zero_stage|accelerate launch|llamafactory-cli|axolotl train/i;

/** Whether the server can say something about a document. */
export function concerns(document: vscode.TextDocument): boolean {
  return vscode.languages.match(SELECTOR, document) > 0 && (WORDS.test(document.fileName) || WORDS.test(document.getText()));
}

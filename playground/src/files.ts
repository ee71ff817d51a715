// The files of the input: the name of the one in the editor, which can be changed, a button for each other, and what can be added.

import { h, menu } from "./dom";
import { activeFile, addFile, safeName, type State } from "./state";

const STARTERS: [title: string, name: string, text: string][] = [
  ["DeepSpeed config (JSON)", "ds_config.json", "{\n  \"train_micro_batch_size_per_gpu\": 4\n}\n"],
  ["DeepSpeed config (HJSON)", "ds_config.hjson", "{\n  train_micro_batch_size_per_gpu: 4\n}\n"],
  ["Training arguments (YAML)", "train.yaml", "deepspeed: ds_config.json\nper_device_train_batch_size: 4\n"],
  ["Accelerate config (YAML)", "accelerate.yaml", "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"],
  ["Program (Python)", "train.py", "import deepspeed\n\nengine, *_ = deepspeed.initialize(model=model, config=\"ds_config.json\")\n"],
  ["Model (config.json)", "config.json", "{\n  \"model_type\": \"llama\"\n}\n"],
];

/** Draw the list of files; `onChange` is called when it changes, or another file is selected. */
export function fileList(bar: HTMLElement, state: State, onChange: () => void): void {
  const redraw = () => fileList(bar, state, onChange);
  const open = (index: number) => {
    state.active = index;
    redraw();
    onChange();
  };
  const name = h("input", {
    type: "text",
    "aria-label": "Name of the file in the editor; its ending says what it is",
    size: Math.min(Math.max(activeFile(state).name.length, 8), 24),
    spellcheck: "false",
    value: activeFile(state).name,
    onchange: () => rename(),
  });
  const entries = state.files.map((file, index) => (index === state.active ? name : h("button", { type: "button", onclick: () => open(index) }, file.name)));
  const rename = () => {
    const wanted = safeName(name.value);
    const file = state.files[state.active];
    if (file && !state.files.some((one) => one.name === wanted)) file.name = wanted;
    redraw();
    onChange();
  };
  const remove = h("button", { type: "button", class: "quiet", "aria-label": `Remove ${activeFile(state).name}`, onclick: () => removed() }, "Remove");
  const removed = () => {
    state.files.splice(state.active, 1);
    open(Math.max(0, state.active - 1));
  };
  const add = menu("Add a file", "", [["", "Add a file…"], ...STARTERS.map(([title], index): [string, string] => [String(index), title])], (chosen) => {
    const [, wanted, text] = STARTERS[Number(chosen)] ?? ["", "ds_config.json", ""];
    addFile(state, { name: freeName(state, wanted), text });
    redraw();
    onChange();
  });
  add.classList.add("bare");
  bar.replaceChildren(
    h("div", { class: "files", role: "group", "aria-label": "Files" }, ...entries),
    h("div", { class: "file-tools" }, state.files.length > 1 && remove, add),
  );
}

/** The name, or with a number behind it where a file has it. */
export function freeName(state: Pick<State, "files">, name: string): string {
  const dot = name.lastIndexOf(".");
  for (let number = 1; ; number += 1) {
    const wanted = number === 1 ? name : `${name.slice(0, dot)}_${number}${name.slice(dot)}`;
    if (!state.files.some((file) => file.name === wanted)) return wanted;
  }
}

/** Whether a dropped file is the log of a job rather than a part of the input. */
export function isLog(name: string): boolean {
  return /\.(log|out|err|txt)$/i.test(name);
}

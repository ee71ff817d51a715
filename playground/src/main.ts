// The page: what is typed goes to the worker, one request at a time, and what comes back is shown.

import type { AboutKey, Answer, Check, Finding, Progress } from "./answers";
import { byId, h } from "./dom";
import { Editor } from "./editor";
import { Engine } from "./engine";
import { EXAMPLES, exampleState } from "./examples";
import { factsForm } from "./facts";
import { nameOf } from "./detect";
import { fileList, freeName, isLog } from "./files";
import { patched } from "./memory";
import { answer as answerAbove, controls, type PanelActions, results } from "./panels";
import { decode, encode, MOST_CHARACTERS } from "./permalink";
import { fixRequest, hoverRequest, requestOf } from "./requests";
import { addFile, readState, safeName, type State, type Tab } from "./state";
import { TabList } from "./tabs";
import { themeButton } from "./theme";

const PAUSE = 150; // milliseconds without a key before the text is linted
const LARGEST = 20 * 2 ** 20; // bytes of a dropped file
const SESSION = "dslint-playground";

const panel = byId("panel");
const status = byId("status");
const live = byId("live");
let state: State;
let answered: Answer | null = null;
let timer = 0;
let busy = false;
let stale = false;

const engine = new Engine(showProgress);
const editor = new Editor(
  byId("editor"),
  (text) => {
    const file = state.files[state.active];
    if (file) file.text = text;
    changed();
  },
  (text) => setTimeout(() => pasted(text)), // not within the update of the editor
  aboutKey,
);
const tabs = new TabList(byId("tabs"), panel, selectTab);
const actions: PanelActions = { goTo, fix: fixOne, fixAll: () => void fixAll(), changed, goToPlace: (line, column) => editor.goToPlace(line, column), apply };

/** Lint again soon; the link in the address bar, if there is one, no longer says what is on the page. */
function changed(): void {
  if (location.hash !== "") history.replaceState(null, "", location.pathname);
  keep();
  document.body.dataset.busy = "";
  clearTimeout(timer);
  timer = setTimeout(() => void refresh(), PAUSE);
}

/** Keep the input for a reload of the page; one that is too large for that is not kept. */
function keep(): void {
  try {
    sessionStorage.setItem(SESSION, JSON.stringify(state));
  } catch {
    sessionStorage.removeItem(SESSION);
  }
}

/** Ask the worker about the input. While it works, at most one more request waits: that about the newest input. */
async function refresh(): Promise<void> {
  timer = 0;
  if (busy) {
    stale = true;
    return;
  }
  busy = true;
  document.body.dataset.busy = "";
  const asked = { tab: state.tab, file: state.files[state.active], text: editor.text };
  try {
    const answer = await engine.ask(requestOf(state));
    answered = answer;
    if (state.files[state.active] === asked.file && editor.text === asked.text) editor.mark(answer.check.marks, fixOne);
    if (state.tab === asked.tab) showResults();
    tabs.count(answer.check.findings.length);
    announce(answer.check);
  } catch (error) {
    byId("results").replaceChildren(h("p", { class: "problem" }, String(error)));
  }
  busy = false;
  if (stale) {
    stale = false;
    void refresh();
  } else if (timer === 0) {
    delete document.body.dataset.busy;
  }
}

function showResults(): void {
  if (!answered) return;
  byId("answer").replaceChildren(...answerAbove(state, answered.output));
  byId("results").replaceChildren(...results(state, answered, actions));
}

function announce(check: Check): void {
  const sentence = check.error ?? check.verdict;
  if (live.textContent !== sentence) live.textContent = sentence;
}

/** Show the controls of the tab, with room above them for a short answer, and below for the results. */
function showControls(): void {
  panel.replaceChildren(h("div", { id: "answer" }), ...controls(state, actions), h("div", { id: "results" }));
}

function selectTab(tab: Tab): void {
  state.tab = tab;
  tabs.select(tab);
  showControls();
  changed();
}

/** Show a whole input: that of a link, of an example, or of the page before it was loaded again. */
function open(given: State): void {
  state = given;
  byId("notice").hidden = true;
  if (state.files.length === 0) addFile(state, { name: "ds_config.json", text: "" });
  fileList(byId("file-bar"), state, filesChanged);
  openFile();
  tabs.select(state.tab);
  showControls();
  void refresh();
}

function openFile(): void {
  const file = state.files[state.active];
  if (file) editor.open(file.name, file.text);
  factsForm(byId("facts"), state, changed); // a file may be the model
}

function filesChanged(): void {
  openFile();
  changed();
}

function selectFile(path: string): boolean {
  const index = state.files.findIndex((file) => file.name === path);
  if (index >= 0 && index !== state.active) {
    state.active = index;
    fileList(byId("file-bar"), state, filesChanged);
    filesChanged();
  }
  return index >= 0;
}

function goTo(finding: Finding): void {
  if (selectFile(finding.path) && finding.range) editor.goTo(finding.range.from, finding.range.to);
}

function fixOne(finding: Finding): void {
  const current = [answered?.check.findings, answered?.check.marks, answered?.upgrade?.findings].some((found) => found?.includes(finding));
  if (current && !busy && timer === 0 && finding.fix && selectFile(finding.path)) editor.change(finding.fix.changes);
}

/** Apply a change of the config that `fit` found, if the config is still the one that it was found for. */
function apply(diff: string): void {
  const text = busy || timer !== 0 ? null : patched(editor.text, diff);
  if (text === null) return;
  editor.replace(text);
  changed();
}

/** What there is to say of the key at a place of the editor; nothing while Python is loading. */
async function aboutKey(offset: number): Promise<AboutKey | null> {
  if (!document.body.classList.contains("ready")) return null;
  const asked = editor.text;
  const answer = await engine.ask(hoverRequest(state, offset));
  return editor.text === asked ? (answer.key ?? null) : null;
}

async function fixAll(): Promise<void> {
  const asked = JSON.stringify(state.files);
  const answer = await engine.ask(fixRequest(state));
  if (JSON.stringify(state.files) !== asked) return; // the visitor went on typing
  for (const file of state.files) file.text = answer.texts?.[file.name] ?? file.text;
  editor.replace(state.files[state.active]?.text ?? "");
  live.textContent = answer.output?.errors.replace(/^dslint: /, "").trim() ?? "";
  changed();
}

async function share(): Promise<void> {
  const word = await encode(state);
  if (word.length > MOST_CHARACTERS) {
    say("The input is too long for a link. Shorten the log or remove files.");
    return;
  }
  history.replaceState(null, "", `#${word}`);
  const copied = await navigator.clipboard.writeText(location.href).then(
    () => true,
    () => false,
  );
  say(copied ? "Link copied. It contains the whole input, and nothing is stored elsewhere." : "The address bar has the link.");
}

/** Say that a link is damaged; an address without one is not. */
function broken(): void {
  const notice = byId("notice");
  notice.hidden = location.hash.length < 2;
  notice.textContent = notice.hidden ? "" : "This link is broken: a part of it is missing or was changed. Ask for it again.";
}

function say(sentence: string): void {
  status.textContent = sentence;
  live.textContent = sentence;
}

function showProgress({ loaded, total }: Progress): void {
  const bar = byId<HTMLProgressElement>("progress");
  bar.max = total;
  bar.value = loaded;
  const mebibytes = (size: number) => (size / 2 ** 20).toFixed(1);
  status.textContent = loaded < total ? `Loading Python: ${mebibytes(loaded)} of ${mebibytes(total)} MiB` : "Starting Python …";
}

/** Name a pasted file by what it is, or move a pasted log to where logs are read. */
function pasted(text: string): void {
  const file = state.files[state.active];
  const name = nameOf(text);
  if (!file || file.name === name) return;
  if (name === null) {
    file.text = "";
    state.log = text;
    state.tab = "diagnose";
  } else {
    file.name = freeName({ files: state.files.filter((one) => one !== file) }, name);
    if (state.tab === "diagnose") state.tab = "check";
  }
  open(state);
  changed();
  say(name === null ? "This is the log of a job: it is diagnosed." : `This is read as ${file.name}. Rename it if it is something else.`);
}

async function drop(event: DragEvent): Promise<void> {
  event.preventDefault();
  delete document.body.dataset.dropping;
  for (const file of event.dataTransfer?.files ?? []) {
    if (file.size > LARGEST) {
      say(`${file.name} is larger than ${LARGEST / 2 ** 20} MiB.`);
    } else if (isLog(file.name)) {
      state.log = await file.text();
      state.tab = "diagnose";
    } else {
      addFile(state, { name: safeName(file.name), text: await file.text() });
    }
  }
  open(state);
  changed();
}

/** Keep the page for visits without a network. Files are only cached where the site is served by https or from this machine. */
async function workOffline(): Promise<void> {
  if (!("serviceWorker" in navigator)) return;
  await navigator.serviceWorker.register("sw.js");
  await navigator.serviceWorker.ready;
  byId("offline").textContent = "Works offline";
}

async function begin(): Promise<void> {
  const examples = byId<HTMLSelectElement>("examples");
  examples.append(...EXAMPLES.map(([title], index) => h("option", { value: index }, title)));
  examples.addEventListener("change", () => {
    open(exampleState(Number(examples.value)));
    changed();
    examples.selectedIndex = 0;
  });
  themeButton(byId<HTMLButtonElement>("theme"));
  byId("share").addEventListener("click", () => void share());
  addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.dataset.dropping = "";
  });
  addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) delete document.body.dataset.dropping;
  });
  addEventListener("drop", (event) => void drop(event));
  addEventListener("hashchange", () => void decode(location.hash).then((linked) => (linked ? open(linked) : broken())));
  byId<HTMLDetailsElement>("run-facts").open = !matchMedia("(max-width: 800px)").matches; // on a phone the findings come first
  const kept = sessionStorage.getItem(SESSION);
  const linked = await decode(location.hash);
  open(linked ?? (kept === null ? exampleState(0) : readState(JSON.parse(kept))));
  if (!linked) broken();
  try {
    await engine.ready;
  } catch (error) {
    say(`Python could not be loaded: ${error instanceof Error ? error.message : String(error)}`);
    return;
  }
  document.body.classList.add("ready");
  byId("progress").hidden = true;
  status.textContent = "Everything runs in this browser. Nothing you type is sent anywhere.";
  await workOffline();
}

void begin();

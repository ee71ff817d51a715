// The editor: CodeMirror with dslint's findings as underlines, hovers and fixes.

import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { python } from "@codemirror/lang-python";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, lintKeymap, linter, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState, type Extension, Text } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, hoverTooltip, keymap, lineNumbers, type Tooltip } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { AboutKey, Change, Finding } from "./answers";
import { h, sentence } from "./dom";

const COLORS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--code-key)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--code-number)" },
  { tag: [tags.keyword, tags.operatorKeyword, tags.definitionKeyword], color: "var(--code-keyword)" },
  { tag: tags.comment, color: "var(--dim)", fontStyle: "italic" },
]);

const LOOK = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--page)", color: "var(--text)", fontSize: "var(--code-size)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--text)", padding: "0.75rem 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--page)", color: "var(--dim)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine, &.cm-focused .cm-activeLineGutter": { backgroundColor: "var(--soft)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": { backgroundColor: "var(--selection)" },
  "& .cm-matchingBracket": { backgroundColor: "transparent" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--selection)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px", maxWidth: "34rem", boxShadow: "0 4px 16px #0003" },
  ".cm-panels": { backgroundColor: "var(--soft)", color: "var(--text)" },
  ".cm-panel input, .cm-panel button": { color: "inherit", backgroundColor: "var(--page)", backgroundImage: "none" },
  ".cm-diagnostic": { padding: "0.5rem 0.75rem", borderLeftWidth: "3px", fontFamily: "var(--sans)" },
  ".cm-diagnosticAction": { backgroundColor: "var(--accent)", color: "var(--on-accent)", padding: "0.2rem 0.6rem", margin: "0.4rem 0.4rem 0 0", borderRadius: "4px" },
  ".cm-gutter-lint": { width: "1rem" },
  ".cm-gutter-lint .cm-lint-marker": { width: "0.5rem", height: "0.5rem", margin: "0.35rem 0.25rem", borderRadius: "50%", content: "''" },
  ".cm-lint-marker-error": { backgroundColor: "var(--error)" },
  ".cm-lint-marker-warning": { backgroundColor: "var(--warning)" },
  ".cm-lint-marker-info": { backgroundColor: "var(--info)" },
  ".cm-lintRange": { backgroundImage: "none", textDecorationSkipInk: "none" },
  ".cm-lintRange-error": { textDecoration: "underline wavy var(--error) 1.5px" },
  ".cm-lintRange-warning": { textDecoration: "underline wavy var(--warning) 1.5px" },
  ".cm-lintRange-info": { textDecoration: "underline dotted var(--info) 2px" },
});

/** The grammar for a file, by its name. */
function languageOf(name: string): Extension {
  if (/\.ya?ml$/i.test(name)) return yaml();
  if (/\.py$/i.test(name)) return python();
  return /\.(h?json|jsonc?)$/i.test(name) ? json() : [];
}

export class Editor {
  readonly view: EditorView;
  private name = "";

  constructor(
    parent: HTMLElement,
    private readonly onEdit: (text: string) => void,
    private readonly onPaste: (text: string) => void,
    private readonly about: (offset: number) => Promise<AboutKey | null>,
  ) {
    this.view = new EditorView({ parent });
  }

  get text(): string {
    return this.view.state.doc.toString();
  }

  /** Show a file; edits before are forgotten. */
  open(name: string, text: string): void {
    this.name = name;
    const extensions = [
      lineNumbers(),
      highlightActiveLineGutter(),
      highlightActiveLine(),
      history(),
      drawSelection(),
      indentOnInput(),
      bracketMatching(),
      highlightSelectionMatches(),
      EditorView.lineWrapping,
      linter(null),
      lintGutter(),
      hoverTooltip((_, offset) => this.about(offset).then((key) => key && keyTooltip(key))),
      keymap.of([...defaultKeymap, ...searchKeymap, ...historyKeymap, ...lintKeymap]),
      syntaxHighlighting(COLORS),
      languageOf(name),
      LOOK,
      EditorView.contentAttributes.of({ "aria-label": `Text of ${name}`, spellcheck: "false", autocapitalize: "off", autocorrect: "off" }),
      EditorView.updateListener.of((update) => {
        if (!update.docChanged) return;
        this.onEdit(this.text);
        const isNew = update.startState.doc.toString().trim() === "" || covers(update.startState);
        if (isNew && update.transactions.some((transaction) => transaction.isUserEvent("input.paste"))) this.onPaste(this.text);
      }),
    ];
    this.view.setState(EditorState.create({ doc: Text.of(text.split(/\r\n?|\n/)), extensions }));
  }

  /** Replace the whole text, so that it can be undone. */
  replace(text: string): void {
    if (text !== this.text) this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text }, userEvent: "input.fix" });
  }

  /** Apply a fix. */
  change(changes: Change[]): void {
    this.view.dispatch({ changes, userEvent: "input.fix" });
    this.view.focus();
  }

  /** Underline the findings in the text. */
  mark(findings: Finding[], fix: (finding: Finding) => void): void {
    const size = this.view.state.doc.length;
    const marks = findings.filter((finding) => finding.path === this.name && finding.range !== null && finding.range.to <= size);
    this.view.dispatch(setDiagnostics(this.view.state, marks.map((finding) => diagnosticOf(finding, fix))));
  }

  /** Put the cursor at the start of a range, and show it. */
  goTo(from: number, to: number): void {
    const end = this.view.state.doc.length;
    this.view.dispatch({ selection: { anchor: Math.min(from, end), head: Math.min(to, end) }, effects: EditorView.scrollIntoView(Math.min(from, end), { y: "center" }) });
    this.view.focus();
  }

  /** Put the cursor at a line and column, counted from 1. */
  goToPlace(line: number, column: number): void {
    const { doc } = this.view.state;
    const offset = doc.line(Math.min(line, doc.lines)).from + column - 1;
    this.goTo(offset, offset);
  }
}

/** Whether all of the text is selected, so that a paste replaces it. */
function covers(state: EditorState): boolean {
  return state.selection.main.from === 0 && state.selection.main.to === state.doc.length;
}

function keyTooltip(key: AboutKey): Tooltip {
  const dom = h("div", { class: "hover key" }, ...key.paragraphs.map((paragraph) => h("p", {}, ...sentence(paragraph))));
  return { pos: key.from, end: key.to, above: true, create: () => ({ dom }) };
}

function diagnosticOf(finding: Finding, fix: (finding: Finding) => void): Diagnostic {
  const { from, to } = finding.range ?? { from: 0, to: 0 };
  const fixable = finding.fix !== null && finding.fix.applicability !== "display";
  const help = finding.remarks.find(([label]) => label === "help")?.[1];
  return {
    from,
    to,
    severity: finding.severity,
    message: `${finding.code}: ${finding.message}`,
    renderMessage: () =>
      h("div", { class: "hover" }, h("p", {}, h("b", {}, finding.code), " ", ...sentence(finding.message)), help !== undefined && h("p", { class: "dim" }, ...sentence(help))),
    actions: fixable ? [{ name: finding.fix?.title ?? "", apply: () => fix(finding) }] : [],
  };
}

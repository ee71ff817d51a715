// A table that is sorted by a click on the head of a column.

import { h } from "./dom";

export interface Column<Row> {
  title: string;
  /** What the column is sorted by. */
  by(row: Row): number | string;
  cell(row: Row): Node | string;
  number?: boolean;
}

/** The rows in their given order, until a head is clicked; `kind` gives a row its class. */
export function sortable<Row>(label: string, columns: Column<Row>[], rows: Row[], kind: (row: Row) => string = () => ""): HTMLElement {
  const body = h("tbody");
  const heads = columns.map((column) => h("th", { scope: "col", class: column.number ? "number" : "" }, h("button", { type: "button", onclick: () => sort(column) }, column.title)));
  let sorted: Column<Row> | null = null;
  let turned = false;
  function sort(column: Column<Row>): void {
    turned = sorted === column && !turned;
    sorted = column;
    const ordered = rows.toSorted((a, b) => order(column.by(a), column.by(b)));
    show(turned ? ordered.reverse() : ordered);
    heads.forEach((head, index) => head.setAttribute("aria-sort", columns[index] !== column ? "none" : turned ? "descending" : "ascending"));
  }
  function show(shown: Row[]): void {
    body.replaceChildren(...shown.map((row) => h("tr", { class: kind(row) }, ...columns.map((column) => h("td", { class: column.number ? "number" : "" }, column.cell(row))))));
  }
  show(rows);
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, h("table", {}, h("caption", {}, label), h("thead", {}, h("tr", {}, ...heads)), body));
}

function order(a: number | string, b: number | string): number {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

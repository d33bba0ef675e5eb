// Tables that are sorted by their heads and filtered by a text. Cells are text, never markup.

import { clean, number } from "./format.js";

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) {
    made.className = className;
  }
  if (text !== undefined) {
    made.textContent = text;
  }
  return made;
}

// A column: `head`; `text` of a row, or `node` of a row for more than text; `value` of a row to
// sort by; `look`, the classes of its cells (`acts` for buttons); `hint`, what its values mean; `first` when rows are
// sorted by it until the user chooses a column; `up` when it sorts ascending at first.
export class Table {
  constructor(place, caption, columns, options) {
    this.columns = columns;
    this.options = options;
    this.rows = [];
    this.more = 0;
    this.sorted = { column: columns.find((column) => column.first) || columns[0], up: false };
    this.sorted.up = Boolean(this.sorted.column.up);
    this.filter = "";
    const table = element("table");
    table.append(element("caption", "hidden-label", caption));
    const heads = element("tr");
    this.heads = columns.map((column) => {
      const head = element("th", column.look);
      head.scope = "col";
      if (column.look === "acts") {
        head.textContent = column.head;
        heads.append(head);
        return head;
      }
      const button = element("button", "", column.head);
      button.type = "button";
      if (column.hint) {
        button.title = column.hint;
      }
      button.addEventListener("click", () => this.sortBy(column));
      head.append(button);
      heads.append(head);
      return head;
    });
    const head = element("thead");
    head.append(heads);
    this.body = element("tbody");
    table.append(head, this.body);
    this.note = element("p", "more");
    place.replaceChildren(table, this.note);
    this.table = table;
    this.draw();
  }

  show(rows, more) {
    this.rows = rows;
    this.more = more || 0;
    this.draw();
  }

  sortBy(column) {
    const isSame = this.sorted.column === column;
    this.sorted = { column, up: isSame ? !this.sorted.up : Boolean(column.up) };
    this.draw();
  }

  filterBy(text) {
    this.filter = text.trim().toLowerCase();
    this.draw();
  }

  matching() {
    if (!this.filter) {
      return this.rows;
    }
    const has = (row) => this.columns.some((column) => {
      return column.text && clean(column.text(row)).toLowerCase().includes(this.filter);
    });
    return this.rows.filter(has);
  }

  draw() {
    const { column, up } = this.sorted;
    this.columns.forEach((of, at) => {
      if (of === column) {
        this.heads[at].setAttribute("aria-sort", up ? "ascending" : "descending");
      } else {
        this.heads[at].removeAttribute("aria-sort");
      }
    });
    const value = column.value || ((row) => clean(column.text(row)).toLowerCase());
    const compare = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0);
    const found = this.matching().slice().sort((a, b) => (up ? compare(a, b) : compare(b, a)));
    const shown = found.slice(0, this.options.limit);
    const focused = document.activeElement;
    const key = focused && this.body.contains(focused) ? focused.dataset.key : undefined;
    this.body.replaceChildren(...shown.map((row) => this.line(row)));
    if (key !== undefined) {
      // The button of the same row goes on having the focus.
      const again = [...this.body.querySelectorAll("[data-key]")].find((button) => button.dataset.key === key);
      (again || this.table).focus({ preventScroll: true });
    }
    this.table.hidden = shown.length === 0;
    this.note.textContent = this.noteOf(found.length, shown.length);
    this.note.hidden = this.note.textContent === "";
  }

  noteOf(found, shown) {
    if (this.rows.length === 0) {
      return this.options.empty;
    }
    if (found === 0) {
      return "Nothing has this text.";
    }
    const left = found - shown + (this.filter ? 0 : this.more);
    return left > 0 ? number(left) + " more; " + this.options.others : "";
  }

  line(row) {
    const line = element("tr");
    for (const column of this.columns) {
      const cell = element("td", column.look);
      if (column.node) {
        cell.append(...column.node(row));
      } else {
        cell.textContent = clean(column.text(row));
      }
      line.append(cell);
    }
    return line;
  }
}

// A badge, whose colour repeats the meaning of its text and sign.
export function badge(kind, text) {
  return element("span", "badge " + kind, text);
}

// A meter of 0 to 1 that is nearly full from 0.9 on, with its meaning for screen readers.
export function meter(part, label) {
  const made = element("meter");
  made.min = 0;
  made.max = 1;
  made.high = 0.9;
  made.optimum = 0;
  made.value = part;
  made.setAttribute("aria-label", label);
  return made;
}

// A part of a whole, with its meaning for screen readers.
export function share(part, label) {
  const made = element("progress");
  made.max = 1;
  made.value = part;
  made.setAttribute("aria-label", label);
  return made;
}

// The table of changefeeds. A row is changed in place, so that a click meets what it was aimed at.
import { sparkline } from "./charts.js";
import { byId, count, duration, el, lagClass, moment, rate, say } from "./dom.js";

const COLUMNS = [
  { key: "id", title: "Changefeed", of: (feed) => feed.id },
  { key: "state", title: "State", of: (feed) => ORDER.indexOf(feed.state) },
  { key: "lag", title: "Checkpoint lag", of: (feed) => feed.checkpoint_lag_s ?? -1, number: true },
  { key: "hour", title: "Last hour" },
  { key: "resolved", title: "Resolved ts lag", of: (feed) => feed.resolved_lag_s ?? -1, number: true },
  { key: "rate", title: "Rows/s", of: (feed) => feed.rows_per_s, number: true },
  { key: "sink", title: "Sink", of: (feed) => feed.sink_uri },
  { key: "actions", title: "" },
];
const ORDER = ["failed", "warning", "stopped", "finished", "normal"];
export const ACTIONS = { pause: "Pause", resume: "Resume", skip: "Skip…", remove: "Remove…" };

export function badge(state) {
  return el("span", { class: `badge ${state}` }, state);
}

/** What to know about an error: code, message, what to do, when it is tried again. */
export function problem(feed) {
  if (!feed.error) return null;
  const { code, message, hint, at } = feed.error;
  const box = el("div", { class: `problem ${feed.state}` }, el("strong", {}, code), " ", message);
  if (hint) box.append(el("div", { class: "hint" }, el("b", {}, "What to do: "), hint));
  const notes = [`since ${moment(at)}`];
  if (feed.retry_at) notes.push(`tried again at ${moment(feed.retry_at, { date: false })}`);
  if (feed.holds_log_until) notes.push(`the log is kept for it until ${moment(feed.holds_log_until)}`);
  box.append(el("div", { class: "soft" }, notes.join("; ")));
  return box;
}

export class FeedTable {
  /** `act(name, feed)`: a person wants something of a changefeed. `open(id)`: its details. */
  constructor(act, open) {
    this.act = act;
    this.open = open;
    this.rows = new Map();
    this.feeds = [];
    this.lags = {};
    this.sorted = { key: "state", down: false };
    this.selected = null;
    this.table = byId("feeds");
    this.head = el("tr");
    this.table.append(el("thead", {}, this.head));
    for (const column of COLUMNS) {
      const title = column.of
        ? el("button", { class: "sort", onclick: () => this.sortBy(column.key), title: `Sort by ${column.title}` }, column.title)
        : column.title;
      this.head.append(el("th", { class: column.number ? `number ${column.key}` : column.key, scope: "col", "data-key": column.key }, title));
    }
  }

  sortBy(key) {
    this.sorted = { key, down: this.sorted.key === key ? !this.sorted.down : key !== "id" && key !== "sink" && key !== "state" };
    this.draw();
  }

  update(feeds, readOnly) {
    this.feeds = feeds;
    this.readOnly = readOnly;
    this.draw();
  }

  setLags(lags) {
    this.lags = lags.checkpoint_lag_s ?? {};
    for (const [id, row] of this.rows) row.hour.replaceChildren(sparkline(this.lags[id]));
  }

  shown() {
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (feed) => [feed.id, feed.state, feed.sink_uri, feed.error?.code, feed.error?.message].join(" ").toLowerCase();
    const found = this.feeds.filter((feed) => words.every((word) => text(feed).includes(word)));
    const column = COLUMNS.find((one) => one.key === this.sorted.key);
    const compare = (a, b) => {
      const [x, y] = [column.of(a), column.of(b)];
      const order = x < y ? -1 : x > y ? 1 : 0;
      return (this.sorted.down ? -order : order) || (a.id < b.id ? -1 : 1);
    };
    return found.sort(compare);
  }

  draw() {
    const shown = this.shown();
    for (const title of this.head.children) {
      const sorts = title.dataset.key === this.sorted.key;
      title.setAttribute("aria-sort", sorts ? (this.sorted.down ? "descending" : "ascending") : "none");
    }
    const known = new Set(this.feeds.map((feed) => feed.id));
    for (const [id, row] of this.rows) {
      if (!known.has(id)) {
        row.body.remove();
        this.rows.delete(id);
      }
    }
    let before = this.table.tHead;
    const visible = new Set();
    for (const feed of shown) {
      const row = this.rows.get(feed.id) ?? this.newRow(feed);
      this.fill(row, feed);
      visible.add(feed.id);
      if (before.nextElementSibling !== row.body) before.after(row.body);
      before = row.body;
    }
    for (const [id, row] of this.rows) if (!visible.has(id)) row.body.remove();
    if (this.selected !== null && !visible.has(this.selected)) this.selected = null;
    for (const [id, row] of this.rows) row.body.classList.toggle("selected", id === this.selected);
    say(byId("shown"), shown.length === this.feeds.length ? "" : `${shown.length} of ${this.feeds.length}`);
    this.table.hidden = shown.length === 0;
    const none = byId("no-feeds");
    none.hidden = shown.length !== 0;
    say(none, this.feeds.length ? "No changefeed matches the filter." : "There are no changefeeds yet. Create one with the button above, or with: tidemill cli changefeed create --sink-uri …");
  }

  newRow(feed) {
    const row = { buttons: {}, problemKey: "" };
    row.name = el("a", { href: `#/changefeed/${encodeURIComponent(feed.id)}`, class: "name" }, feed.id);
    row.state = el("td", { class: "state" });
    row.lag = el("td", { class: "number" });
    row.hour = el("td", { class: "hour" }, sparkline(this.lags[feed.id]));
    row.resolved = el("td", { class: "number" });
    row.rate = el("td", { class: "number" });
    row.sink = el("td", { class: "sink" });
    row.actions = el("td", { class: "actions" });
    for (const [name, title] of Object.entries(ACTIONS)) {
      row.buttons[name] = el("button", { class: name, onclick: () => this.act(name, row.feed), "aria-label": `${title.replace("…", "")} ${feed.id}` }, title);
      row.actions.append(row.buttons[name]);
    }
    const line = el("tr", { onclick: (event) => event.target.closest("button, a") || this.select(feed.id) }, el("th", { scope: "row" }, row.name), row.state, row.lag, row.hour, row.resolved, row.rate, row.sink, row.actions);
    row.problem = el("td", { colSpan: COLUMNS.length });
    row.problemLine = el("tr", { class: "problem-line", hidden: true }, row.problem);
    row.body = el("tbody", { "data-feed": feed.id }, line, row.problemLine);
    this.rows.set(feed.id, row);
    return row;
  }

  fill(row, feed) {
    row.feed = feed;
    if (row.shownState !== feed.state) {
      row.state.replaceChildren(badge(feed.state));
      row.shownState = feed.state;
    }
    say(row.lag, duration(feed.checkpoint_lag_s));
    row.lag.className = `number ${["stopped", "finished"].includes(feed.state) ? "" : lagClass(feed.checkpoint_lag_s)}`;
    row.lag.title = `checkpoint ${feed.checkpoint_ts}, ${moment(feed.checkpoint_at)}`;
    say(row.resolved, duration(feed.resolved_lag_s));
    say(row.rate, rate(feed.rows_per_s));
    row.rate.title = `${count(feed.rows)} rows and ${count(feed.ddls)} DDLs in all`;
    say(row.sink, feed.sink_uri);
    row.sink.title = feed.sink_uri;
    for (const [name, button] of Object.entries(row.buttons)) button.hidden = this.readOnly || !feed.may.includes(name);
    const key = JSON.stringify([feed.state, feed.error, feed.retry_at, feed.holds_log_until]);
    if (row.problemKey !== key) {
      const found = problem(feed);
      row.problemLine.hidden = found === null;
      row.problem.replaceChildren(...(found ? [found] : []));
      row.problemKey = key;
    }
  }

  select(id) {
    this.selected = id;
    for (const [one, row] of this.rows) row.body.classList.toggle("selected", one === id);
    this.rows.get(id)?.body.scrollIntoView({ block: "nearest" });
  }

  /** Select the next row, or the one before. */
  move(by) {
    const ids = this.shown().map((feed) => feed.id);
    if (!ids.length) return;
    const at = ids.indexOf(this.selected);
    this.select(ids[at < 0 ? (by > 0 ? 0 : ids.length - 1) : Math.min(ids.length - 1, Math.max(0, at + by))]);
  }

  get current() {
    return this.feeds.find((feed) => feed.id === this.selected) ?? null;
  }
}

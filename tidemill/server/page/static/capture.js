// The capture: how far the log is, and which regions, locks and tables hold it.
import { bytes, count, duration, el, lagClass, moment, svg } from "./dom.js";

const HELD_S = 10;

/** Whether what holds the resolved ts is worth a line: it has not moved for ten seconds. Locks, and regions that split or move, hold it for a moment. */
export const holds = (capture) => capture.holding && (capture.stuck.length || capture.holding.seconds >= HELD_S);

const keyOf = (one) => `${one.table} ${one.region} ${one.start_key}`;

function place(one) {
  const parts = [];
  if (one.region !== undefined) parts.push(`region ${one.region}`);
  if (one.store !== undefined) parts.push(`store ${one.store}${one.store_address ? ` (${one.store_address})` : ""}`);
  if (one.group !== undefined) parts.push(`group ${one.group}`);
  return parts.join(", ");
}

function why(one) {
  const parts = [];
  if (one.lock) parts.push(`transaction ${one.lock.start_ts} holds key ${one.lock.key} of ${one.lock.table}, primary ${one.lock.primary}`);
  if (one.last_error) parts.push(one.last_error);
  return parts.join("; ");
}

/** A sentence about what holds the resolved ts of the log. */
export function holdingText(one) {
  const what = one.table ?? "the log itself";
  return [`${what} holds the resolved ts for ${duration(one.seconds)}`, place(one), one.cause ? `cause: ${one.cause}` : "", why(one)].filter(Boolean).join("; ");
}

function heldTable(title, rows) {
  const head = el("tr", {}, ["Table", "Where", "Cause", "For", "Lag", "What to do"].map((text) => el("th", { scope: "col" }, text)));
  const lines = rows.map((one) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, one.table ?? "–", one.partition >= 0 ? el("div", { class: "soft" }, `log partition ${one.partition}`) : null),
      el("td", {}, place(one), one.ranges > 1 ? el("div", { class: "soft" }, `${one.ranges} ranges`) : null),
      el("td", {}, one.cause ?? "–", why(one) ? el("div", { class: "soft break" }, why(one)) : null),
      el("td", { class: "nowrap" }, duration(one.seconds)),
      el("td", { class: "nowrap" }, one.behind_s === undefined ? "–" : duration(one.behind_s)),
      el("td", {}, one.remedy),
    ),
  );
  return el("div", {}, el("h3", {}, `${title} (${rows.length})`), el("div", { class: "scroll" }, el("table", { class: "held" }, el("thead", {}, head), el("tbody", {}, lines))));
}

export function fact(name, value, title, kind = "") {
  return el("div", { class: `fact ${kind}`, title }, el("span", { class: "soft" }, name), el("span", {}, value));
}

export function captureCard(capture) {
  const regions = Object.entries(capture.regions).filter(([, n]) => n).map(([phase, n]) => `${count(n)} ${phase}`).join(", ") || "none";
  const facts = el(
    "div",
    { class: "facts" },
    fact("State", capture.state + (capture.pid ? ` (process ${capture.pid})` : "")),
    fact("Resolved ts lag", duration(capture.resolved_lag_s), capture.resolved_ts),
    fact("Tables", count(capture.tables)),
    fact("Regions", regions),
    fact("Rows written", count(capture.rows), capture.counted_since ? `since ${moment(capture.counted_since)}` : ""),
    fact("Waiting rows", bytes(capture.waiting_bytes)),
    fact("Memory", bytes(capture.memory_bytes)),
    fact("Locks resolved", count(capture.locks_resolved)),
    capture.parts_to_read ? fact("Parts of tables to load", count(capture.parts_to_read)) : null,
    capture.growth ? fact("Layout", capture.growth) : null,
    fact("Log", el("span", { class: "break" }, capture.log || "–"), "", "wide"),
  );
  const found = [facts];
  if (capture.partitions.length > 1) {
    const most = Math.max(...capture.partitions.map((one) => one.lag_s ?? 0), 10);
    const bars = capture.partitions.map((one) => {
      const width = Math.max(1, (100 * (one.lag_s ?? 0)) / most).toFixed(1);
      const bar = svg("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: "all", width: 100, height: 6 }), svg("rect", { width, height: 6 }));
      return el("div", { class: `partition ${lagClass(one.lag_s)}`, title: `head ${one.resolved_ts}` }, el("span", { class: "soft" }, `partition ${one.partition}`), bar, el("span", {}, duration(one.lag_s)));
    });
    found.push(el("h3", {}, "Log partitions"), el("div", { class: "partitions" }, bars));
  }
  // What is in one list is not told again in the next.
  const told = new Set();
  const untold = (rows) => rows.filter((one) => !told.has(keyOf(one)));
  const tell = (title, rows) => {
    if (rows.length) found.push(heldTable(title, rows));
    rows.forEach((one) => told.add(keyOf(one)));
  };
  tell("Tables that are held up", capture.held_tables);
  tell("Holds the resolved ts of the log", holds(capture) ? untold([capture.holding]) : []);
  tell("Regions without progress", untold(capture.stuck));
  if (!holds(capture) && !capture.held_tables.length && !capture.stuck.length) found.push(el("p", { class: "empty" }, "No region, lock or table holds the log up."));
  return found;
}

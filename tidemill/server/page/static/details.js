// One changefeed with all that is known of it: charts of the last hour, its tables, its configuration.
import { get } from "./api.js";
import { lineChart } from "./charts.js";
import { fact } from "./capture.js";
import { bytes, byId, count, duration, el, lagClass, moment, rate } from "./dom.js";
import { ACTIONS, badge, problem } from "./feeds.js";

const CHART_EVERY_MS = 10000;
const TABLES_EVERY_MS = 15000;

export class Details {
  /** `act(name, feed)`: a person wants something of it. `closed()`: the user closes it. */
  constructor(act, closed) {
    this.act = act;
    this.closed = closed;
    this.place = byId("details");
    this.id = null;
  }

  open(id) {
    if (this.id === id) return;
    this.id = id;
    this.charts = el("div", {}, el("p", { class: "empty" }, "Loading…"));
    this.tables = el("div", {}, el("p", { class: "empty" }, "Loading…"));
    this.name = el("h2");
    this.buttons = el("div", { class: "buttons start" });
    this.problem = el("div");
    this.facts = el("div", { class: "facts" });
    this.top = el("div", {}, this.name, this.buttons, this.problem, this.facts);
    this.config = el("div");
    this.keys = {};
    this.chartsAt = this.tablesAt = 0;
    this.place.replaceChildren(
      el("button", { class: "close", "aria-label": "Close", onclick: () => this.closed() }, "×"),
      this.top,
      this.charts,
      el("h3", {}, "Tables"),
      this.tables,
      this.config,
    );
    this.place.hidden = false;
    this.place.scrollTop = 0;
    document.body.classList.add("beside");
  }

  close() {
    this.id = null;
    this.place.hidden = true;
    document.body.classList.remove("beside");
  }

  update(feeds, { readOnly, hasTables }) {
    if (this.id === null) return;
    const feed = feeds.find((one) => one.id === this.id);
    if (!feed) {
      this.name.replaceChildren(this.id);
      this.facts.replaceChildren(el("p", { class: "empty" }, "There is no changefeed of this name."));
      for (const place of [this.buttons, this.problem, this.charts, this.tables, this.config]) place.replaceChildren();
      this.keys = {};
      return;
    }
    this.head(feed, readOnly);
    const now = Date.now();
    if (now - this.chartsAt > CHART_EVERY_MS) {
      this.chartsAt = now;
      this.load(`/api/page/history?changefeed=${encodeURIComponent(feed.id)}`, this.charts, (found) => this.drawn(found));
    }
    if (now - this.tablesAt > TABLES_EVERY_MS) {
      this.tablesAt = now;
      if (hasTables) this.load(`/api/page/tables?changefeed=${encodeURIComponent(feed.id)}`, this.tables, listed);
      else this.tables.replaceChildren(el("p", { class: "empty" }, "tidemill tables lists them."));
    }
  }

  async load(path, place, draw) {
    const id = this.id;
    try {
      const found = await get(path);
      if (this.id === id) place.replaceChildren(...[draw(found)].flat());
    } catch (error) {
      if (this.id === id && !place.childElementCount) place.replaceChildren(el("p", { class: "fault" }, error.message));
    }
  }

  drawn({ times, checkpoint_lag_s, resolved_lag_s, rows_per_s }) {
    const lags = [
      { name: "Checkpoint lag", values: checkpoint_lag_s, class: "one" },
      { name: "Resolved ts lag", values: resolved_lag_s, class: "two" },
    ];
    return [
      lineChart({ times, series: lags, show: (value) => (value === 0 ? "0 s" : duration(value)), label: "Checkpoint lag and resolved ts lag of the last hour" }),
      lineChart({ times, series: [{ name: "Rows/s", values: rows_per_s, class: "three" }], show: (value) => rate(value), time: false, least: 1, label: "Rows a second of the last hour" }),
    ];
  }

  /** Draw a part again if what it shows is another. */
  part(place, key, draw) {
    const text = JSON.stringify(key);
    if (this.keys[place] === text) return;
    this.keys[place] = text;
    this[place].replaceChildren(...[draw()].flat().filter(Boolean));
  }

  head(feed, readOnly) {
    this.feed = feed;
    this.part("name", [feed.id, feed.state], () => [feed.id, " ", badge(feed.state)]);
    const may = readOnly ? [] : feed.may;
    this.part("buttons", may, () => may.map((name) => el("button", { class: name, onclick: () => this.act(name, this.feed) }, ACTIONS[name])));
    this.part("problem", [feed.state, feed.error, feed.retry_at, feed.holds_log_until], () => problem(feed));
    const batch = feed.last_batch ?? {};
    const facts = [
      fact("Checkpoint", `${moment(feed.checkpoint_at)}`, feed.checkpoint_ts),
      fact("Checkpoint ts", feed.checkpoint_ts),
      fact("Checkpoint lag", el("span", { class: lagClass(feed.checkpoint_lag_s) }, duration(feed.checkpoint_lag_s))),
      fact("Resolved ts lag", duration(feed.resolved_lag_s), feed.resolved_ts),
      fact("Rows", count(feed.rows)),
      fact("Rows/s", rate(feed.rows_per_s)),
      fact("DDLs", count(feed.ddls)),
      fact("Messages", `${count(feed.messages)}, ${bytes(feed.bytes)}`),
      feed.skipped_rows ? fact("Rows left out", count(feed.skipped_rows)) : null,
      batch.wall_ms !== undefined ? fact("Last batch", `${count(batch.rows)} rows in ${duration(batch.wall_ms / 1000)}`) : null,
      feed.target_ts ? fact("Target ts", feed.target_ts) : null,
      fact("Created", moment(feed.created_at)),
      feed.holds_log_until ? fact("Log kept until", moment(feed.holds_log_until)) : null,
      fact("Sink", el("span", { class: "break" }, feed.sink_uri), "", "wide"),
    ];
    this.facts.replaceChildren(...facts.filter(Boolean));
    this.part("config", [feed.warnings, feed.config], () => [
      ...feed.warnings.map((one) => el("p", { class: "alert warn" }, one)),
      el("details", {}, el("summary", {}, "Configuration that differs from the defaults"), el("pre", { class: "config" }, JSON.stringify(feed.config, null, 2))),
    ]);
  }
}

function listed({ total, items }) {
  if (!total) return el("p", { class: "empty" }, "The filter selects no tables, or the log does not know them yet.");
  const head = el("tr", {}, ["Table", "Id", "Log partition", "Resolved ts lag"].map((text) => el("th", { scope: "col" }, text)));
  const rows = items.map((one) => {
    const notes = [one.eligible ? "" : "no usable key: not replicated, unless force-replicate is set", one.is_partition ? "partitioned" : "", one.cause ? `held up for ${duration(one.held_s)}: ${one.cause}. ${one.remedy}` : ""].filter(Boolean);
    return el(
      "tr",
      { class: one.cause ? "warn" : one.eligible ? "" : "off" },
      el("th", { scope: "row" }, `${one.database}.${one.table}`, notes.map((note) => el("div", { class: "soft" }, note))),
      el("td", {}, String(one.table_id)),
      el("td", {}, one.partitions.join(", ") || "–"),
      el("td", { class: lagClass(one.resolved_lag_s) }, duration(one.resolved_lag_s)),
    );
  });
  return [el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, rows))), total > items.length ? el("p", { class: "soft" }, `and ${count(total - items.length)} tables more`) : ""].filter(Boolean);
}

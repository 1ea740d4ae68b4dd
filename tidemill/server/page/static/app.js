// Puts the page together: asks the server every two seconds, draws, takes clicks and keys.
import { Failed, get, onTokenWanted } from "./api.js";
import { captureCard, holdingText, holds } from "./capture.js";
import { Details } from "./details.js";
import * as dialogs from "./dialogs.js";
import { byId, count, duration, el, lagClass, rate, say, toast } from "./dom.js";
import { FeedTable } from "./feeds.js";
import { Log } from "./log.js";

const EVERY_MS = 2000;
const LAGS_EVERY_MS = 10000;
const STATES = ["normal", "warning", "failed", "stopped", "finished"];

let now = null; // the last overview
let lost = null; // since when the server does not answer
let lagsAt = 0;
let captureKey = "";
let alertsKey = "";
let acting = false;

// ---- light and dark

const THEMES = ["system", "light", "dark"];

function theme() {
  const kept = localStorage.getItem("tidemill-theme");
  return THEMES.includes(kept) ? kept : "system";
}

function setTheme(name) {
  localStorage.setItem("tidemill-theme", name);
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  say(byId("theme"), { system: "Theme: system", light: "Theme: light", dark: "Theme: dark" }[name]);
}

const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);

// ---- what a person does

async function act(name, feed) {
  if (acting || !feed || readOnly() || !feed.may.includes(name)) return;
  await doing(() => dialogs[name](feed));
}

async function create() {
  if (!acting && !readOnly()) await doing(dialogs.create);
}

async function doing(dialog) {
  acting = true;
  try {
    const said = await dialog();
    if (said) {
      toast(said, "good");
      await look();
    }
  } finally {
    acting = false;
  }
}

const readOnly = () => !now || now.server.read_only;

const openFeed = (id) => (location.hash = `#/changefeed/${encodeURIComponent(id)}`);
const closeFeed = () => history.replaceState(null, "", location.pathname) ?? route();

const table = new FeedTable(act, openFeed);
const details = new Details(act, closeFeed);
const log = new Log();

function route() {
  const found = /^#\/changefeed\/(.+)$/.exec(location.hash);
  if (!found) {
    details.close();
    return;
  }
  let id = found[1];
  try {
    id = decodeURIComponent(id);
  } catch {
    // a name that was typed by hand
  }
  details.open(id);
  table.select(id);
  draw();
}

function keys(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog")) return;
  const typing = event.target.closest("input, textarea, select");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    return;
  }
  const onControl = event.target.closest("button, a, summary");
  const does = {
    j: () => table.move(1),
    k: () => table.move(-1),
    ArrowDown: () => table.move(1),
    ArrowUp: () => table.move(-1),
    o: () => table.current && openFeed(table.current.id),
    Enter: () => !onControl && table.current && openFeed(table.current.id),
    c: create,
    p: () => act("pause", table.current),
    r: () => act("resume", table.current),
    s: () => act("skip", table.current),
    x: () => act("remove", table.current),
    "/": () => byId("filter").focus(),
    l: () => log.toggle(),
    d: nextTheme,
    "?": () => dialogs.help(),
    Escape: () => details.id !== null && closeFeed(),
  }[event.key];
  if (!does || (event.key === "Enter" && onControl)) return;
  if (event.key.startsWith("Arrow") && event.target.closest("#log, #details")) return;
  event.preventDefault();
  does();
}

// ---- drawing

function tiles(found) {
  const states = Object.fromEntries(STATES.map((state) => [state, found.changefeeds.filter((feed) => feed.state === state).length]));
  const shown = STATES.filter((state) => states[state] || state === "normal");
  const counts = shown.map((state) => el("span", { class: `count ${state}` }, `${states[state]} ${state}`));
  const lags = found.changefeeds.filter((feed) => ["normal", "warning"].includes(feed.state)).map((feed) => feed.checkpoint_lag_s ?? 0);
  const slowest = lags.length ? Math.max(...lags) : null;
  const rows = found.changefeeds.reduce((sum, feed) => sum + (feed.rows_per_s || 0), 0);
  const tile = (name, value, kind = "") => el("div", { class: "tile" }, el("div", { class: "soft" }, name), el("div", { class: `value ${kind}` }, value));
  byId("tiles").replaceChildren(
    el("div", { class: "tile" }, el("div", { class: "soft" }, "Changefeeds"), el("div", { class: "counts" }, found.changefeeds.length ? counts : "none")),
    tile("Highest checkpoint lag", duration(slowest), lagClass(slowest)),
    tile("Resolved ts lag of the log", duration(found.capture.resolved_lag_s), lagClass(found.capture.resolved_lag_s)),
    tile("Rows/s, all changefeeds", rate(rows)),
    tile("Tables, regions captured", `${count(found.capture.tables)}, ${count(Object.values(found.capture.regions).reduce((sum, n) => sum + n, 0))}`),
  );
}

function alerts(found) {
  const { capture } = found;
  const texts = [];
  for (const one of found.processes) {
    if (one.pid === null) texts.push(["bad", `The ${one.name} process does not run`, one.last_error ? `${one.last_error.code}: ${one.last_error.message}` : "it is being started"]);
  }
  if (capture.error) texts.push(["bad", `Capture: ${capture.error.code}`, capture.error.message]);
  if (capture.silent_s) texts.push(["bad", "The capture is silent", `it has written no status for ${duration(capture.silent_s)}`]);
  if (capture.storage) texts.push(["bad", "The log's storage is away", `for ${duration(capture.storage.seconds)}: ${capture.storage.message}`]);
  if (capture.paused) texts.push(["warn", "The capture is paused", capture.paused]);
  if (capture.gc_ttl_used >= 0.5) texts.push(["warn", `${Math.round(capture.gc_ttl_used * 100)}% of --gc-ttl are over without the log catching up`, "at 100% the capture lets TiDB collect the history that it still needs"]);
  if (holds(capture)) texts.push(["warn", "The log is held", holdingText(capture.holding) + (capture.holding.remedy ? `. What to do: ${capture.holding.remedy}` : "")]);
  const key = JSON.stringify(texts);
  if (key === alertsKey) return;
  alertsKey = key;
  byId("alerts").replaceChildren(...texts.map(([kind, title, said]) => el("div", { class: `alert ${kind}`, role: "alert" }, el("strong", {}, title), " ", said)));
}

function draw() {
  const link = byId("link");
  if (lost !== null) {
    say(link, `no answer for ${duration((Date.now() - lost) / 1000)}: what is shown is old`);
    link.className = "pill bad";
  } else {
    say(link, now ? "live" : "connecting");
    link.className = now ? "pill good" : "pill";
  }
  if (!now) return;
  const { server, changefeeds, capture } = now;
  document.body.classList.toggle("old", lost !== null);
  const attention = changefeeds.filter((feed) => ["failed", "warning"].includes(feed.state)).length;
  document.title = (attention ? `(${attention}) ` : "") + `Tidemill ${server.address}`;
  say(byId("where"), [server.address, server.is_owner ? "owner" : "not the owner", `cluster ${server.upstream_id}`].filter(Boolean).join(" · "));
  say(byId("version"), `Tidemill ${server.version} · up since ${new Date((server.started_at ?? now.now) * 1000).toLocaleString()}`);
  byId("create").hidden = server.read_only;
  byId("to-docs").hidden = server.read_only;
  tiles(now);
  alerts(now);
  table.update(changefeeds, server.read_only);
  const key = JSON.stringify(capture);
  if (key !== captureKey) {
    captureKey = key;
    byId("capture").replaceChildren(...captureCard(capture));
  }
  details.update(changefeeds, { readOnly: server.read_only, hasTables: !server.read_only });
}

// ---- asking

async function look() {
  try {
    now = await get("/api/page/overview");
    lost = null;
  } catch (error) {
    lost ??= Date.now();
    if (error instanceof Failed) toast(error.message, "bad");
  }
  draw();
  if (lost === null && Date.now() - lagsAt > LAGS_EVERY_MS) {
    lagsAt = Date.now();
    try {
      table.setLags(await get("/api/page/history"));
    } catch {
      lagsAt = 0; // at the next look
    }
  }
}

async function run() {
  for (;;) {
    await look();
    await new Promise((go) => setTimeout(go, document.hidden ? 5 * EVERY_MS : EVERY_MS));
  }
}

setTheme(theme());
onTokenWanted(dialogs.token);
byId("theme").addEventListener("click", nextTheme);
byId("create").addEventListener("click", create);
byId("help").addEventListener("click", () => dialogs.help());
byId("filter").addEventListener("input", () => table.draw());
document.addEventListener("keydown", keys);
document.addEventListener("visibilitychange", () => document.hidden || look());
addEventListener("hashchange", route);
route();
run();
log.run(() => !readOnly());

// What is asked of the user before something is changed. Each returns a promise: what was chosen, or null.
import { feedPath, send } from "./api.js";
import { duration, el, moment } from "./dom.js";

/** Show a dialog until it is answered. `parts`: its content. `submit()`: called when the user agrees; what it throws is shown. */
function ask({ title, parts, agree, danger = false, submit = async () => true, ready = () => true, cancel = "Cancel" }) {
  return new Promise((answer) => {
    const fault = el("p", { class: "fault", role: "alert", hidden: true });
    const go = el("button", { class: danger ? "danger" : "main", type: "submit" }, agree);
    const back = cancel ? el("button", { type: "button", onclick: () => box.close() }, cancel) : null;
    const form = el("form", { method: "dialog" }, el("h2", {}, title), parts, fault, el("div", { class: "buttons" }, back, go));
    const box = el("dialog", {}, form);
    let result = null;
    const look = () => (go.disabled = !ready());
    form.addEventListener("input", look);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!ready()) return;
      go.disabled = true;
      fault.hidden = true;
      try {
        result = await submit();
        box.close();
      } catch (error) {
        fault.textContent = error.code ? `${error.code}: ${error.message}` : error.message;
        fault.hidden = false;
        look();
      }
    });
    box.addEventListener("close", () => {
      box.remove();
      answer(result);
    });
    document.body.append(box);
    look();
    box.showModal();
    (form.querySelector("input, textarea, select") ?? go).focus();
  });
}

const field = (name, input, help) => el("label", { class: "field" }, el("span", {}, name), input, help ? el("small", { class: "soft" }, help) : null);
const text = (props = {}) => el("input", { type: "text", autocomplete: "off", spellcheck: false, ...props });

export function token(why) {
  const input = el("input", { type: "password", autocomplete: "off" });
  return ask({
    title: "A token is needed",
    parts: [el("p", {}, why || "This server changes something only for those who have a token of its --auth-file."), field("Token", input, "It is kept until this tab is closed.")],
    agree: "Go on",
    ready: () => input.value.trim() !== "",
    submit: async () => input.value.trim(),
  });
}

export function pause(feed) {
  const kept = "The log keeps what it still needs for --gc-ttl.";
  return ask({
    title: `Pause ${feed.id}?`,
    parts: [el("p", {}, `It ends its batch, and its state is stopped. Its checkpoint stays. ${kept}`)],
    agree: "Pause",
    submit: () => send("POST", feedPath(feed.id, "/pause")).then(() => `${feed.id} is paused`),
  });
}

export function resume(feed) {
  return ask({
    title: `Resume ${feed.id}?`,
    parts: [el("p", {}, `It goes on from its checkpoint, ${moment(feed.checkpoint_at)} (${duration(feed.checkpoint_lag_s)} behind).`)],
    agree: "Resume",
    submit: () => send("POST", feedPath(feed.id, "/resume"), {}).then(() => `${feed.id} is resumed`),
  });
}

export function remove(feed) {
  const typed = text({ placeholder: feed.id });
  return ask({
    title: `Remove ${feed.id}?`,
    parts: [
      el("p", {}, "It is stopped and forgotten, with its checkpoint. What it delivered stays. This cannot be undone."),
      field(`Type ${feed.id} to confirm`, typed),
    ],
    agree: "Remove",
    danger: true,
    ready: () => typed.value === feed.id,
    submit: () => send("DELETE", feedPath(feed.id)).then(() => `${feed.id} is removed`),
  });
}

const NAMED_ROW = /--skip-row '([^']+)'/;

/** Go on without a row, or from another ts. */
export function skip(feed) {
  const named = NAMED_ROW.exec(feed.error?.hint ?? "")?.[1] ?? "";
  const row = el("input", { type: "radio", name: "what", value: "row", checked: named !== "" });
  const ts = el("input", { type: "radio", name: "what", value: "ts", checked: named === "" });
  const which = text({ value: named, placeholder: "DATABASE.TABLE:KEY@COMMIT_TS" });
  const where = text({ placeholder: "now, -10m, 2026-11-24T10:00:00Z, or a TSO" });
  const typed = text({ placeholder: feed.id });
  const wanted = () => (row.checked ? which.value.trim() : where.value.trim());
  which.addEventListener("input", () => (row.checked = true));
  where.addEventListener("input", () => (ts.checked = true));
  return ask({
    title: `Skip something of ${feed.id}?`,
    parts: [
      el("label", { class: "choice" }, row, el("span", {}, "Leave out one row that the sink cannot take. The error names it.")),
      field("Row", which),
      el("label", { class: "choice" }, ts, el("span", {}, `Go on from another ts (overwrite-checkpoint-ts). The checkpoint is ${moment(feed.checkpoint_at)}. Changes up to a later ts are never delivered; those from an earlier one are delivered again.`)),
      field("From", where),
      field(`Type ${feed.id} to confirm`, typed),
    ],
    agree: "Skip and resume",
    danger: true,
    ready: () => typed.value === feed.id && wanted() !== "",
    submit: async () => {
      const found = await send("POST", "/api/page/check", row.checked ? { skip_rows: [wanted()] } : { overwrite_checkpoint_ts: wanted() });
      // A TSO has more digits than a number of JavaScript.
      const body = row.checked ? JSON.stringify({ skip_rows: found.skip_rows }) : `{"overwrite_checkpoint_ts":${BigInt(found.overwrite_checkpoint_ts)}}`;
      await send("POST", feedPath(feed.id, "/resume"), body);
      return row.checked ? `${feed.id} goes on without that row` : `${feed.id} goes on from ${found.overwrite_checkpoint_ts}`;
    },
  });
}

export function create() {
  const id = text({ placeholder: "letters, digits and single hyphens", maxLength: 128 });
  const sink = text({ placeholder: "kafka://HOST:9092/topic?protocol=open-protocol" });
  const start = text({ placeholder: "now" });
  const target = text({ placeholder: "none" });
  const config = el("textarea", { rows: 7, spellcheck: false, placeholder: "[filter]\nrules = ['shop.*']" });
  return ask({
    title: "Create a changefeed",
    parts: [
      field("Id", id, "Empty: a UUID is taken."),
      field("Sink URI", sink, "The sink is tried before the changefeed is created. Passwords are never shown again."),
      el("div", { class: "pair" }, field("Start ts", start, "A TSO, RFC 3339, or -2h. Empty: now."), field("Target ts", target, "Where it ends. Empty: never.")),
      field("Configuration (TOML, as TiCDC's)", config, "tidemill config check explains each setting."),
    ],
    agree: "Create",
    ready: () => sink.value.trim() !== "",
    submit: async () => {
      const found = await send("POST", "/api/page/check", { config: config.value, start_ts: start.value, target_ts: target.value });
      const body = { changefeed_id: id.value.trim(), sink_uri: sink.value.trim(), replica_config: found.replica_config };
      const ts = ["start_ts", "target_ts"].filter((name) => found[name]).map((name) => `,"${name}":${BigInt(found[name])}`);
      const made = await send("POST", "/api/v2/changefeeds", JSON.stringify(body).slice(0, -1) + ts.join("") + "}");
      const warned = found.warnings.length ? ` (${found.warnings.length} warnings: see its details)` : "";
      return `${made.id} is created${warned}`;
    },
  });
}

const KEYS = [
  ["j, k, ↓, ↑", "select the next changefeed, the one before"],
  ["Enter, o", "open its details"],
  ["c", "create a changefeed"],
  ["p", "pause the selected changefeed"],
  ["r", "resume it"],
  ["s", "skip a row, or go on from another ts"],
  ["x", "remove it"],
  ["/", "filter changefeeds"],
  ["l", "follow the log, or stop following"],
  ["d", "light, dark, or as the system"],
  ["Esc", "close what is open"],
  ["?", "this list"],
];
const WORDS = [
  ["checkpoint lag", "how far the changefeed is behind: everything up to the checkpoint is delivered and acknowledged"],
  ["resolved ts lag", "how far the log is behind: everything up to the resolved ts is captured"],
  ["normal, warning, failed, stopped, finished", "TiCDC's states. A changefeed in state warning is tried again by itself; one that failed waits for a person"],
  ["held up", "a table that is ten seconds behind the cluster, and has not moved for as long"],
];

export function help() {
  const list = (rows, tag) => el("dl", {}, rows.map(([name, said]) => [el("dt", {}, tag ? name.split(", ").map((one) => [el("kbd", {}, one), " "]).flat() : name), el("dd", {}, said)]).flat());
  return ask({ title: "Keys and words", parts: [list(KEYS, true), list(WORDS, false)], agree: "Close", cancel: null });
}

// The end of the log: asks for the lines behind the last one, and the server answers when there are some.
import { Failed, get, giveToken } from "./api.js";
import { byId, el, say } from "./dom.js";

const MOST = 2000;
const LEVEL = /^\[[^\]]*\] \[(DEBUG|INFO|WARN|ERROR|FATAL)\]/;

export class Log {
  constructor() {
    this.lines = [];
    this.last = -1;
    this.follows = true;
    this.paper = byId("log");
    byId("log-level").addEventListener("change", () => this.draw());
    byId("log-filter").addEventListener("input", () => this.draw());
    byId("log-follow").addEventListener("click", () => this.toggle());
    this.paper.addEventListener("wheel", (event) => event.deltaY < 0 && this.set(false), { passive: true });
  }

  toggle() {
    this.set(!this.follows);
  }

  set(follows) {
    this.follows = follows;
    byId("log-follow").setAttribute("aria-pressed", String(follows));
    if (follows) this.paper.scrollTop = this.paper.scrollHeight;
  }

  /** Ask for lines until the page is closed. `waits`: whether the server answers late if there are none. */
  async run(waits) {
    for (let level = "INFO"; ; ) {
      try {
        const found = await get(`/api/page/log?after=${this.last}&wait=${waits() ? 20 : 0}`);
        say(byId("log-state"), "");
        if (found.last < this.last) this.lines = []; // the server was started again
        this.last = found.last;
        for (const text of found.lines) {
          level = LEVEL.exec(text)?.[1] ?? level; // a line without a level goes on with the one before
          this.lines.push({ text, level });
        }
        if (this.lines.length > MOST) this.lines.splice(0, this.lines.length - MOST);
        if (found.lines.length) this.draw();
        if (!waits()) await new Promise((go) => setTimeout(go, 2000));
      } catch (error) {
        if (error instanceof Failed && error.status === 401) await this.locked();
        else {
          say(byId("log-state"), error instanceof Failed ? error.message : "the server does not answer");
          await new Promise((go) => setTimeout(go, 3000));
        }
      }
    }
  }

  /** The server wants a token for the log: wait until the user gives one. */
  async locked() {
    await new Promise((go) => {
      const button = el("button", {}, "Give a token");
      button.addEventListener("click", async () => {
        if (await giveToken("The log of this server is for those who have a token.")) go();
      });
      this.paper.replaceChildren("The log is for those who have a token of this server. ", button);
    });
    this.paper.replaceChildren();
  }

  draw() {
    const wanted = byId("log-level").value;
    const word = byId("log-filter").value.toLowerCase();
    const levels = { "": null, WARN: ["WARN", "ERROR", "FATAL"], ERROR: ["ERROR", "FATAL"] }[wanted];
    const shown = this.lines.filter((line) => (!levels || levels.includes(line.level)) && line.text.toLowerCase().includes(word));
    const at = this.paper.scrollTop;
    this.paper.replaceChildren(...shown.map((line) => el("span", { class: `line ${line.level.toLowerCase()}` }, `${line.text}\n`)));
    this.paper.scrollTop = this.follows ? this.paper.scrollHeight : at;
    if (!shown.length) this.paper.textContent = this.lines.length ? "No line matches." : "No lines yet.";
  }
}

// Line charts of the last hour, drawn as SVG.
import { duration, el, moment, svg } from "./dom.js";

/** The points of a line as path data. A null is a gap. */
function path(values, x, y) {
  let text = "";
  let pen = "M";
  values.forEach((value, i) => {
    if (value === null || value === undefined) {
      pen = "M";
      return;
    }
    text += `${pen}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  return text;
}

/** The checkpoint lag of one changefeed, small. */
export function sparkline(values) {
  const width = 120;
  const height = 26;
  const known = (values ?? []).filter((value) => value !== null);
  const most = Math.max(10, ...known);
  const drawing = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  if (known.length < 2) return drawing;
  const x = (i) => 1 + ((width - 2) * i) / Math.max(1, values.length - 1);
  const y = (value) => height - 2 - ((height - 4) * value) / most;
  const line = path(values, x, y);
  const first = values.findIndex((value) => value !== null);
  if (!values.slice(first).includes(null)) drawing.append(svg("path", { class: "area", d: `${line}L${x(values.length - 1)} ${height}L${x(first)} ${height}Z` }));
  drawing.append(svg("path", { class: "line", d: line }));
  const label = `Checkpoint lag of the last hour: at most ${duration(Math.max(...known))}`;
  drawing.setAttribute("aria-label", label);
  drawing.append(svg("title", {}, label));
  return drawing;
}

const STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];

function step(most, time) {
  if (time) return STEPS.find((one) => one * 4 >= most) ?? Math.ceil(most / 4 / 86400) * 86400;
  const power = 10 ** Math.floor(Math.log10(Math.max(most, 1e-9) / 4));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one * 4 >= most) ?? most;
}

/** A chart. `series`: [{name, values, class}], all at `times`. `show`: a value as text. `time`: values are seconds. */
export function lineChart({ times, series, show, time = true, least = 4, label }) {
  const width = 640;
  const height = 190;
  const [left, right, top, bottom] = [78, 12, 10, 24];
  const box = el("figure", { class: "chart" });
  const legend = el("figcaption", {}, series.map((one) => el("span", { class: `key ${one.class}` }, one.name)));
  if (times.length < 2) {
    box.append(legend, el("p", { class: "empty" }, "The chart begins when the server has looked for some seconds."));
    return box;
  }
  const known = series.flatMap((one) => one.values.filter((value) => value !== null));
  const gap = step(Math.max(least, ...known), time);
  const most = Math.max(gap * Math.ceil(Math.max(least, ...known) / gap), gap);
  const [begin, end] = [times[0], times.at(-1)];
  const x = (i) => left + ((width - left - right) * (times[i] - begin)) / Math.max(1, end - begin);
  const y = (value) => height - bottom - ((height - top - bottom) * value) / most;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (let value = 0; value <= most + gap / 2; value += gap) {
    drawing.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    drawing.append(svg("text", { class: "axis", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, show(value)));
  }
  const ticks = Math.min(5, times.length);
  for (let tick = 0; tick < ticks; tick++) {
    const i = Math.round(((times.length - 1) * tick) / Math.max(1, ticks - 1));
    const anchor = tick === 0 ? "start" : tick === ticks - 1 ? "end" : "middle";
    drawing.append(svg("text", { class: "axis", x: x(i), y: height - 6, "text-anchor": anchor }, moment(times[i], { date: false }).slice(0, end - begin < 300 ? 8 : 5)));
  }
  for (const one of series) drawing.append(svg("path", { class: `line ${one.class}`, d: path(one.values, x, y) }));
  const mark = svg("line", { class: "mark", y1: top, y2: height - bottom, x1: -9, x2: -9 });
  drawing.append(mark);
  const said = el("p", { class: "said soft" }, " ");
  const tell = (i) => {
    mark.setAttribute("x1", x(i));
    mark.setAttribute("x2", x(i));
    const values = series.map((one) => `${one.name} ${one.values[i] === null ? "–" : show(one.values[i])}`);
    said.textContent = `${moment(times[i], { date: false })}: ${values.join(", ")}`;
  };
  drawing.addEventListener("pointermove", (event) => {
    const at = drawing.getBoundingClientRect();
    const where = begin + ((((event.clientX - at.left) / at.width) * width - left) / (width - left - right)) * (end - begin);
    let nearest = 0;
    times.forEach((one, i) => {
      if (Math.abs(one - where) < Math.abs(times[nearest] - where)) nearest = i;
    });
    tell(nearest);
  });
  drawing.addEventListener("pointerleave", () => {
    mark.setAttribute("x1", -9);
    mark.setAttribute("x2", -9);
    said.textContent = " ";
  });
  box.append(legend, drawing, said);
  return box;
}

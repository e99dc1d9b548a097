// The density map as it was computed, as an SVG path in a 1000 × 100 box.

const MOST_POINTS = 1600;
const TOP = 96;
const ROUND = 0.18; // of a repetition: where a curve of two parts is a cosine

/** density: { start, step, values }. Cells are pooled by their maximum when there are too many to draw. least: what the
 * top stands for at least, so that next to nothing looks like it. */
export function curvePath(density, duration, least = 0) {
  const { start, step, values } = density;
  if (!values.length || !(duration > 0)) return "";
  const pool = Math.ceil(values.length / MOST_POINTS);
  const top = Math.max(peak(values), least);
  const points = [];
  for (let first = 0; first < values.length; first += pool) {
    const cells = values.slice(first, first + pool);
    const centre = start + (first + cells.length / 2) * step;
    const height = Math.max(0, ...cells) / top;
    points.push([(centre / duration) * 1000, 100 - height * TOP]);
  }
  const left = (start / duration) * 1000;
  const right = ((start + values.length * step) / duration) * 1000;
  return `M${left} 101 L${left} ${points[0][1].toFixed(1)} L${points.map(pair).join(" L")} L${right} ${points.at(-1)[1].toFixed(1)} L${right} 101 Z`;
}

/** A wave for each repetition, as high as the rate that it stands for. */
export function wavePath(spans, { step, values }, duration) {
  const top = peak(values);
  const x = (time) => ((time / duration) * 1000).toFixed(2);
  return spans.map((item) => {
    const [length, middle] = [item.end - item.start, (item.start + item.end) / 2];
    const height = (100 - TOP * Math.min(step / length / top, 1)).toFixed(1);
    const [rising, falling] = [x(item.start + ROUND * length), x(item.end - ROUND * length)];
    const [towards, away] = [x(middle - ROUND * length), x(middle + ROUND * length)];
    return `M${x(item.start)} 101 C${rising} 101 ${towards} ${height} ${x(middle)} ${height} C${away} ${height} ${falling} 101 ${x(item.end)} 101`;
  }).join(" ");
}

/** What the top of a rate stands for, in words; the height of a peak means nothing by itself. */
export function scaleText({ kind, values, step }) {
  if (kind !== "rate") return "";
  const most = Math.max(...pooled(values)) / step;
  if (!(most > 0.005)) return "";
  return `${most < 10 ? most.toFixed(1) : Math.round(most)} per second`;
}

const peak = (values) => Math.max(...pooled(values), 1e-6);

/** Few enough numbers to be spread into Math.max. */
function pooled(values) {
  const maxima = [0];
  for (let first = 0; first < values.length; first += 10_000) maxima.push(Math.max(...values.slice(first, first + 10_000)));
  return maxima;
}

const pair = ([x, y]) => `${x.toFixed(2)} ${y.toFixed(1)}`;

export function ticks(duration, width) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];
  const wanted = Math.max(width / 84, 2);
  const step = steps.find((candidate) => duration / candidate <= wanted) ?? 7200;
  const marks = [];
  for (let i = 0; i * step <= duration - step * 0.35; i += 1) marks.push(Number((i * step).toFixed(2)));
  return { marks, digits: step < 1 ? 1 : 0 };
}

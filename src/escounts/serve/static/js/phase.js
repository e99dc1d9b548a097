// Borders that move together: a rate says how long repetitions are, not where one begins, so that one border put
// right puts all of them right. The same arithmetic as CountResult.aligned: as many repetitions as before, each
// border the same part of a repetition further, cut off where the motion begins and ends.

const TOUCHING = 0.02;

/** spans with all borders moved as the border at `from` is moved to `to` (seconds). */
export function alignedSpans(spans, from, to) {
  const runs = touchingRuns(spans);
  const run = runs.find(({ borders }) => borders.some((time) => Math.abs(time - from) < 1e-6));
  if (!run) return spans;
  const shift = positionOf(run.borders, to) - positionOf(run.borders, from);
  const part = shift - Math.round(shift);
  return runs.flatMap(({ borders }) => {
    const moved = borders.map((_, index) => timeAt(borders, index + part));
    return moved.slice(1).map((end, index) => ({ start: moved[index], end }));
  });
}

/** Spans that follow one another without a gap, as lists of borders: [{ borders: [t0, t1, …] }]. */
function touchingRuns(spans) {
  const runs = [];
  for (const { start, end } of spans) {
    const last = runs.at(-1)?.borders;
    if (last && Math.abs(last.at(-1) - start) < TOUCHING) last.push(end);
    else runs.push({ borders: [start, end] });
  }
  return runs;
}

/** Seconds → repetitions since the first border; past the ends, as long as the nearest repetition. */
function positionOf(borders, time) {
  const last = borders.length - 2;
  const index = Math.min(Math.max(borders.findIndex((_, i) => i > last || time < borders[i + 1]), 0), last);
  return index + (time - borders[index]) / (borders[index + 1] - borders[index]);
}

/** Repetitions since the first border → seconds, not past the ends. */
function timeAt(borders, position) {
  const last = borders.length - 2;
  const within = Math.min(Math.max(position, 0), last + 1);
  const index = Math.min(Math.floor(within), last);
  return borders[index] + (within - index) * (borders[index + 1] - borders[index]);
}

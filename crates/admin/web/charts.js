// Charts of the last hour, drawn by uPlot.

/* global uPlot */

// A chart shows the last hour; shortly after the start, the samples so far, over at least ten minutes.
const MOST = 3600;
const LEAST = 600;
const HEIGHT = 190;
// The least width for labels beside a chart, in pixels.
const LABELS = 58;
const SERIES = ["one", "two", "three"];

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function clock(seconds) {
  const time = new Date(seconds * 1000);
  return String(time.getHours()).padStart(2, "0") + ":" + String(time.getMinutes()).padStart(2, "0");
}

// Returns the width beside the chart at `axis` that cuts no label. The second round of a layout
// keeps the width of the first round.
function roomFor(plot, labels, axis, round) {
  const { ticks, gap, font, _size } = plot.axes[axis];
  if (round > 1) {
    return _size;
  }
  plot.ctx.font = font[0];
  const widths = (labels || []).map((label) => plot.ctx.measureText(label).width / devicePixelRatio);
  return Math.max(LABELS, Math.ceil(ticks.size + gap + Math.max(0, ...widths)));
}

// A chart: `title`; `series` with a `name` each; `format` of a value; `isLog` for a logarithmic scale.
export class Chart {
  constructor(place, legend, options) {
    this.place = place;
    this.options = options;
    this.data = [[], ...options.series.map(() => [])];
    this.plot = null;
    this.values = options.series.map((name, at) => {
      const entry = document.createElement("li");
      const swatch = document.createElement("i");
      swatch.className = "series-" + SERIES[at];
      const value = document.createElement("b");
      entry.append(swatch, name + "\u00a0", value);
      legend.append(entry);
      return value;
    });
    new ResizeObserver(() => this.fit()).observe(place);
    this.build();
  }

  // Draws again with the colours of the theme.
  build() {
    if (this.plot) {
      this.plot.destroy();
    }
    const grid = { stroke: color("grid"), width: 1 };
    const axis = { stroke: color("quiet"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
    const format = this.options.format;
    const labels = (plot, ticks) => ticks.map((tick) => (tick === null ? "" : format(tick)));
    const log = { distr: 3, log: 10 };
    const linear = { range: (plot, low, high) => [0, Math.max(high || 0, this.options.least) * 1.08] };
    this.plot = new uPlot(
      {
        width: Math.max(this.place.clientWidth, 120),
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
        padding: [8, 20, 0, 0],
        scales: { x: { range: () => this.hour() }, y: this.options.isLog ? log : linear },
        axes: [
          { ...axis, size: 30, space: 60, values: (plot, ticks) => ticks.map(clock), incrs: [60, 120, 300, 600, 900, 1200, 1800] },
          { ...axis, size: roomFor, values: labels, space: this.options.isLog ? 24 : 34 },
        ],
        series: [
          {},
          ...this.options.series.map((name, at) => ({
            label: name,
            stroke: color(SERIES[at]),
            width: 1.5,
            points: { show: false },
            fill: at === 0 && !this.options.isLog ? color(SERIES[at]) + "22" : undefined,
          })),
        ],
        hooks: { setCursor: [(plot) => this.tell(plot.cursor.idx)] },
      },
      this.data,
      this.place,
    );
    this.tell(null);
  }

  hour() {
    const times = this.data[0];
    const last = times.length > 0 ? times[times.length - 1] : Date.now() / 1000;
    const kept = times.length > 0 ? last - times[0] : 0;
    return [last - Math.min(Math.max(kept, LEAST), MOST), last];
  }

  fit() {
    if (this.plot && this.place.clientWidth > 0) {
      this.plot.setSize({ width: this.place.clientWidth, height: HEIGHT });
    }
  }

  show(data) {
    this.data = data;
    this.plot.setData(data);
    this.tell(this.plot.cursor.idx);
  }

  // Writes the values under the cursor, or the latest ones.
  tell(at) {
    const isNow = at === null || at === undefined;
    const last = this.data[0].length - 1;
    const texts = this.data.slice(1).map((values) => {
      const value = values[isNow ? last : at];
      return this.options.format(value === undefined ? null : value);
    });
    texts.forEach((text, place) => {
      this.values[place].textContent = text;
    });
    if (isNow) {
      const said = this.options.series.map((name, place) => name + " " + texts[place]);
      this.place.setAttribute("aria-label", this.options.title + ", latest: " + said.join(", "));
    }
  }
}

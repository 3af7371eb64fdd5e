/** Points of one kind of a plot. */
export interface Series {
  name: string;
  color: string;
  points: readonly { x: number; y: number }[];
  /** Joined by a line; else each point is a dot. */
  line: boolean;
}

export interface Plot {
  title: string;
  xName: string;
  yName: string;
  series: readonly Series[];
}

const [WIDTH, HEIGHT] = [960, 420];
const MARGIN = { left: 70, right: 20, top: 50, bottom: 45 };
const TICKS = 6;

/** 1, 2 or 5 times a power of ten: steps that a reader can add up. */
function step(range: number): number {
  const raw = Math.max(range, 1e-9) / TICKS;
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * ([1, 2, 5].find((factor) => factor * power >= raw) ?? 10);
}

function ticks(max: number): number[] {
  const every = step(max);
  return Array.from({ length: Math.floor(max / every) + 1 }, (_, i) => i * every);
}

function escaped(text: string): string {
  return text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign] ?? sign);
}

/** A plot as an SVG document; both axes begin at 0. */
export function svg({ title, xName, yName, series }: Plot): string {
  const all = series.flatMap(({ points }) => points).filter(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
  const maxX = Math.max(1, ...all.map(({ x }) => x));
  const maxY = Math.max(1, ...all.map(({ y }) => y)) * 1.05;
  const px = (x: number): string => (MARGIN.left + (x / maxX) * (WIDTH - MARGIN.left - MARGIN.right)).toFixed(1);
  const py = (y: number): string =>
    (HEIGHT - MARGIN.bottom - (y / maxY) * (HEIGHT - MARGIN.top - MARGIN.bottom)).toFixed(1);
  const grid = [
    ...ticks(maxX).map((x) => `<text x="${px(x)}" y="${HEIGHT - MARGIN.bottom + 16}" text-anchor="middle">${x}</text>`),
    ...ticks(maxY).map(
      (y) =>
        `<line x1="${MARGIN.left}" x2="${WIDTH - MARGIN.right}" y1="${py(y)}" y2="${py(y)}" stroke="#ddd"/>` +
        `<text x="${MARGIN.left - 6}" y="${py(y)}" dy="4" text-anchor="end">${y}</text>`,
    ),
  ];
  const drawn = series.map(({ color, points, line }) => {
    const visible = points.filter(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
    if (line) {
      const path = visible.map(({ x, y }) => `${px(x)},${py(y)}`).join(" ");
      return `<polyline points="${path}" fill="none" stroke="${color}" stroke-width="2"/>`;
    }
    return visible
      .map(({ x, y }) => `<circle cx="${px(x)}" cy="${py(y)}" r="2" fill="${color}" fill-opacity="0.5"/>`)
      .join("");
  });
  const legend = series.map(
    ({ name, color }, i) =>
      `<rect x="${MARGIN.left + i * 150}" y="30" width="10" height="10" fill="${color}"/>` +
      `<text x="${MARGIN.left + i * 150 + 14}" y="39">${escaped(name)}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" font-family="sans-serif" font-size="11">
<rect width="${WIDTH}" height="${HEIGHT}" fill="white"/>
<text x="${MARGIN.left}" y="20" font-size="14">${escaped(title)}</text>
${[...legend, ...grid, ...drawn].join("\n")}
<text x="${WIDTH / 2}" y="${HEIGHT - 8}" text-anchor="middle">${escaped(xName)}</text>
<text x="14" y="${HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 ${HEIGHT / 2})">${escaped(yName)}</text>
</svg>
`;
}

import { type Samples } from "../samples.ts";
import { line, type Line } from "../statistics.ts";
import { copyNames } from "./copies.ts";
import { label } from "./held.ts";
import { type Table } from "./markdown.ts";

interface SizeRow {
  name: string;
  /** Names of samples whose medians are added up. */
  samples: (mib: number) => readonly string[];
  /** Of the reference system, published, from another machine: only the shape can be compared. */
  reference?: Line;
}

/** What a row costs before the first MiB, and what each one adds. */
export interface Fit {
  row: string;
  fixedMs: number;
  msPerMib: number;
}

function ofSize(what: string): (mib: number) => readonly string[] {
  return (mib) => [`${what} ${label({ mib, kind: "random" })}`];
}

const rows: readonly SizeRow[] = [
  { name: "async suspend", samples: ofSize("suspend"), reference: { fixed: 340, slope: 1.6 } },
  { name: "raw: pause, checkpoint, delete", samples: ofSize("raw suspend") },
  { name: copyNames.cp, samples: ofSize(copyNames.cp) },
  { name: copyNames.ddToDisk, samples: ofSize(copyNames.ddToDisk) },
  { name: "sync suspend, first", samples: (mib) => [`sync ${mib} MiB`], reference: { fixed: 400, slope: 6 } },
  {
    name: "raw suspend, then curl's upload",
    samples: (mib) => [...ofSize("raw suspend")(mib), `plain upload ${mib} MiB`],
  },
  { name: "resume from the node", samples: ofSize("resume"), reference: { fixed: 200, slope: 2 } },
  { name: "raw: restore in the background", samples: ofSize("raw resume") },
  { name: "resume, one byte of each MiB read", samples: ofSize("touch") },
  { name: "raw: restore in the foreground, read likewise", samples: ofSize("raw touch") },
  { name: copyNames.ddFromCache, samples: ofSize(copyNames.ddFromCache) },
  { name: copyNames.ddFromDisk, samples: ofSize(copyNames.ddFromDisk) },
  { name: "resume from the store", samples: (mib) => [`store resume ${mib} MiB`], reference: { fixed: 200, slope: 4 } },
  {
    name: "curl's download, then raw restore",
    samples: (mib) => [`plain download ${mib} MiB`, ...ofSize("raw resume")(mib)],
  },
];

function fitOf(samples: Samples, row: SizeRow, sizes: readonly number[]): Line {
  return line(sizes.map((mib) => ({ x: mib, y: sum(samples, row.samples(mib)) })));
}

function sum(samples: Samples, names: readonly string[]): number {
  return names.reduce((total, name) => total + samples.median(name), 0);
}

/** Least squares over the medians of all sizes. */
export function fits(samples: Samples, sizes: readonly number[]): Fit[] {
  return rows.map((row) => {
    const { fixed, slope } = fitOf(samples, row, sizes);
    return { row: row.name, fixedMs: fixed, msPerMib: slope };
  });
}

/** Suspends and resumes over random memory held. */
export function sizeTable(samples: Samples, sizes: readonly number[]): Table {
  const shown = ({ fixed, slope }: Line): string => {
    const size = Math.abs(slope);
    return `${Math.round(fixed)} ${slope < 0 ? "−" : "+"} ${size.toFixed(size < 0.1 ? 3 : 2)}/MiB`;
  };
  return {
    title: "Random memory held, ms: median (smallest–largest)",
    head: ["MiB", ...sizes.map((mib) => mib.toLocaleString("en")), "fixed + slope", "reference's"],
    rows: rows.map((row) => [
      row.name,
      ...sizes.map((mib) => cell(samples, row.samples(mib))),
      shown(fitOf(samples, row, sizes)),
      row.reference === undefined ? "" : shown(row.reference),
    ]),
  };
}

/** A sum has no spread of its own. */
function cell(samples: Samples, names: readonly string[]): string {
  const [first] = names;
  return names.length === 1 && first !== undefined ? samples.spread(first) : `${Math.round(sum(samples, names))}`;
}

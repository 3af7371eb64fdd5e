import { type Table } from "./markdown.ts";

/** What the keys should be: at most, or at least. */
const aims: Readonly<Record<string, { atMost: number } | { atLeast: number }>> = {
  resumeEmptyOverRaw: { atMost: 1.3 },
  resumeSlopeMsPerMiB: { atMost: 0.05 },
  resumeTouchOverRaw: { atMost: 1.2 },
  suspendOverRaw: { atMost: 1.2 },
  syncDeltaOverAsync: { atMost: 2 },
  uploadOverPlain: { atLeast: 0.8 },
  storeResumeOverPlain: { atMost: 1 },
  storeResumeRttFactor: { atMost: 20 },
  zeroOverEmpty: { atMost: 1.1 },
  checkpointP99OverP50: { atMost: 1.5 },
  checkpointP90Drift: { atMost: 1.2 },
  cyclesOverRaw: { atLeast: 0.9 },
  tightFailedPercent: { atMost: 0 },
  tightCheckpointOverRoomy: { atMost: 1.2 },
};

/** All keys, first those that have an aim. */
export function aimsTable(keys: Readonly<Record<string, number>>): Table {
  const rows = Object.entries(aims).map(([key, aim]) => {
    const measured = keys[key];
    if (measured === undefined) throw new Error(`${key} has an aim and was not measured`);
    const [sign, bound] = "atMost" in aim ? ["≤", aim.atMost] : ["≥", aim.atLeast];
    const holds = "atMost" in aim ? measured <= bound : measured >= bound;
    return [`\`${key}\``, `${sign} ${bound}`, rounded(measured), holds ? "yes" : "**no**"];
  });
  const others = Object.entries(keys).filter(([key]) => aims[key] === undefined);
  return {
    title: "Aims",
    head: ["Key", "Aim", "Measured", "Holds"],
    rows: [...rows, ...others.map(([key, measured]) => [`\`${key}\``, "", rounded(measured), ""])],
  };
}

function rounded(value: number): string {
  return value.toFixed(Math.abs(value) < 0.1 ? 3 : 2);
}

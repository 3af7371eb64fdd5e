import { type Pack, firstPages } from "./page-index.ts";
import { type PackUse } from "./pages.ts";

/** A pack of which less than this lives is written anew: what is stored stays below twice what lives. */
const liveShare = 0.5;
/** Packs of which less than this lives … */
const smallPages = 256;
/** … are written anew as one when there are more: a download asks for each pack that it needs. */
const maxSmallPacks = 16;

/** Of each pack, how many of its pages are named at least once. */
export function livePages(packs: readonly Pack[], sources: Uint32Array): number[] {
  const starts = firstPages(packs);
  const storedPages = starts.at(-1) ?? 0;
  const named = new Uint8Array(storedPages);
  for (const source of sources) if (source < storedPages) named[source] = 1;
  return packs.map((_pack, i) => {
    let live = 0;
    for (let page = starts[i] ?? 0; page < (starts[i + 1] ?? 0); page += 1) live += named[page] ?? 0;
    return live;
  });
}

/** Which packs of its base a generation no longer names though it may: see PackUse, `own`. */
export function wornPacks(packs: readonly Pack[], live: readonly number[], uses: readonly PackUse[]): boolean[] {
  const starts = firstPages(packs);
  const own = packs.map((_pack, i) => uses[i] === "own" && (live[i] ?? 0) > 0);
  const worn = packs.map(
    (_pack, i) => own[i] === true && (live[i] ?? 0) < liveShare * ((starts[i + 1] ?? 0) - (starts[i] ?? 0)),
  );
  const small = packs.map((_pack, i) => own[i] === true && worn[i] === false && (live[i] ?? 0) < smallPages);
  return small.filter(Boolean).length > maxSmallPacks ? worn.map((is, i) => is || small[i] === true) : worn;
}

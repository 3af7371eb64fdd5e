import { KeptPages } from "../generations/kept-pages.ts";
import { manifestKey } from "../store/layout.ts";
import { type LocalPages } from "../pages/pages.ts";
import { type KnownPages } from "../store/snapshots.ts";
import { type ActorContext } from "./actor-context.ts";

type Context = Pick<ActorContext, "node" | "record" | "files" | "prefix" | "generations">;

/** Stored generations that an upload may share pages with; their files stay until `release` is called. */
export async function pageBases(context: Context): Promise<{ bases: KnownPages[]; release: () => Promise<void> }> {
  const { node, record, files, prefix, generations } = context;
  const kept = await new KeptPages(files.stored).known();
  const bases: KnownPages[] = kept === undefined ? [] : [{ prefix, ...kept }];
  for (const { generation, storage } of generations.all()) {
    const here = generations.local(generation) !== undefined;
    if (here && storage.manifest !== "" && storage.manifest !== kept?.key) {
      bases.push({ prefix, key: storage.manifest, ...generations.pageFiles(generation) });
    }
  }
  const { origin, program } = record;
  const held =
    origin?.stored.store === program.store ? node.origins.holdLoaded(origin.stored.prefix.actorUid) : undefined;
  if (origin !== undefined && held !== undefined) {
    const { table, index } = held.pages;
    bases.push({ prefix: origin.stored.prefix, key: manifestKey(1, 1), table, index });
  }
  return { bases, release: () => held?.release() ?? Promise.resolve() };
}

/** Images on this node that a download may take pages from; their files stay until `release` is called. */
export function pagesHere({ node, record, generations }: Context): {
  reuse: LocalPages[];
  release: () => Promise<void>;
} {
  const held = record.origin && node.origins.holdLoaded(record.origin.stored.prefix.actorUid);
  const reuse = [...generations.images(), ...(held ? [held.pages] : [])];
  return { reuse, release: () => held?.release() ?? Promise.resolve() };
}

import { join } from "node:path";
import { type Logger } from "@substrate/lib/log.ts";
import { freeBytes } from "../cgroups/cgroups.ts";
import { type Loan } from "../ledger/contract.ts";
import { isClean, pinFile } from "../writeback/page-cache.ts";
import { ROOTFS_TAR } from "./beginning.ts";
import { type Generations } from "./generations.ts";
import { type NodeContext } from "./node-context.ts";

const PAGE_BYTES = 4096;
/** What the end of a warm sandbox takes: a snapshot that is written at disk speed takes longer. */
const WARM_BACK_WITHIN_MS = 500;

const LARGE_FILES = { Memory: "pages.img", Rootfs: ROOTFS_TAR } as const;

/** The one file that is large of a generation. */
export function largeFile(imageDir: string, fidelity: "Memory" | "Rootfs"): string {
  return join(imageDir, LARGE_FILES[fidelity]);
}

/** Room in the page cache for so much that is to be written; undefined if there is none to lend. */
export async function borrowBytes(
  { ledger, cgroups }: Pick<NodeContext, "ledger" | "cgroups">,
  wanted: number,
  log: Logger,
): Promise<Loan | undefined> {
  const free = async (): Promise<number> => freeBytes(await cgroups.pod());
  const loan = await ledger.borrow(wanted, free, { withinMs: WARM_BACK_WITHIN_MS });
  if (loan === undefined) {
    const state = { free: await free(), ...ledger.state() };
    log.info("no memory to lend: the snapshot is written at disk speed", { wanted, ...state });
  }
  return loan;
}

/** R9: once the file has its final name. R12, R15: the loan comes back when it is clean, gone or overdue. */
export function follow({ writeBack, log }: Pick<NodeContext, "writeBack" | "log">, path: string, loan: Loan): void {
  writeBack.follow([path], loan).then(
    (result) => log.debug("snapshot left the page cache's dirty list", { path, result }),
    (error: unknown) => log.warn("write-back of a snapshot ended early", { path, error }),
  );
}

/**
 * What an earlier atelet lent for is dirty still: it counts from the start on, so that no actor is placed into that
 * memory (R2), and comes back as any loan does.
 */
export async function inheritUnwritten(
  node: NodeContext,
  actors: readonly { generations: Generations }[],
): Promise<void> {
  const own = actors.flatMap(({ generations }) =>
    generations
      .all()
      .filter(({ generation }) => generations.local(generation) !== undefined)
      .map(({ generation, fidelity }) => ({ imageDir: generations.path(generation), fidelity })),
  );
  await Promise.all(
    [...own, ...node.origins.imageDirs()].map(async ({ imageDir, fidelity }) => {
      if (fidelity === "Data") return;
      const path = largeFile(imageDir, fidelity);
      try {
        const state = await node.pageCache.inspect(await pinFile(path));
        if (isClean(state) || state === "gone") return;
        const loan = node.ledger.inherit((state.dirtyPages + state.writebackPages) * PAGE_BYTES);
        follow(node, path, loan);
      } catch (error) {
        // a damaged generation is found where it is to be restored
        node.log.warn("it is not known how much of a snapshot is not on the disk", { path, error });
      }
    }),
  );
}

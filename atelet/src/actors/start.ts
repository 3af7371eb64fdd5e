import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorSandbox } from "./actor-sandbox.ts";
import { Ahead } from "./ahead.ts";
import { type Beginning, beginningFrom, coldBeginning } from "./beginning.ts";
import { type UnpackedImage } from "../images/images.ts";
import { type Lives, programsFault } from "./lives.ts";
import { nextStart } from "./next-start.ts";
import { Placement } from "./placement.ts";
import { type ActorFiles, type Generation } from "./record.ts";
import { originOf, startFromOrigin } from "./origin-start.ts";
import { claimHead, findSource, findVolumes, type SourceOptions } from "./source.ts";
import { removeGivenUp, rewindHead, settleChoice, type StartFrom } from "./start-from.ts";

export interface StartOptions extends SourceOptions {
  sandbox: ActorSandbox;
  lives: Lives;
  files: ActorFiles;
  from: StartFrom | undefined;
}

/** design.md §6: room, source, image, sandbox, record. On failure nothing runs and nothing is booked. */
export async function start(options: StartOptions): Promise<void> {
  const { node, record, sandbox, lives, phases, from } = options;
  const warm = from === undefined ? nextStart(options).kind !== "cold" : from.kind !== "boot";
  const placement = await Placement.make(node, record.program, { phases, warm });
  const ahead = new Ahead({ ...options, placement });
  const fetching = (generation: Generation): void => {
    ahead.begin(generation);
  };
  let source: Generation | undefined;
  try {
    await claimHead(options);
    source =
      from?.kind === "boot" || from?.kind === "tag" ? undefined : await findSource({ ...options, fetching }, from);
    const begin = (image: UnpackedImage, beginning: Beginning): Promise<void> =>
      sandbox.start(image, beginning, placement, phases);
    const origin = source === undefined ? originOf(options, from) : undefined;
    const begun =
      origin !== undefined && (await startFromOrigin(options, origin, (digest) => ahead.image(digest), begin));
    if (!begun) {
      const image = await ahead.image(source?.imageDigest);
      const beginning =
        source === undefined
          ? await coldFrom(options)
          : beginningFrom(source, options.generations, record, { chosen: from !== undefined });
      await begin(image, beginning);
    }
  } catch (error) {
    await ahead.ended();
    placement.booking.free();
    const failure = asSubstrateError(error);
    if (source !== undefined && failure.code === "RESTORE_FAILED") source.restoreFailures += 1;
    // Were its files to blame, the stored copy is better.
    if (source !== undefined && programsFault.has(failure.code)) options.generations.distrust(source.generation);
    lives.startFailed(failure, source?.generation ?? 0);
    throw error;
  } finally {
    placement.end();
  }
  if (source !== undefined) source.restoreFailures = 0;
  await recordStart(options);
  if (from?.kind === "generation") await giveUpNewer(options, from.generation);
}

async function coldFrom(options: StartOptions): Promise<Beginning> {
  const { record, generations, from } = options;
  const saved = from?.kind === "boot" ? await findVolumes(options) : undefined;
  return saved === undefined ? coldBeginning(record) : beginningFrom(saved, generations, record, { boot: true });
}

/**
 * What was started, and what the choice of its source means for other generations, become true together. A sandbox that
 * no record names would be removed by the next atelet: it must not serve.
 */
async function recordStart({ record, generations, files, sandbox, from }: StartOptions): Promise<void> {
  const { running } = sandbox;
  const takeBack = from && settleChoice({ record, generations }, from);
  try {
    await files.save(record, { durable: false });
  } catch (error) {
    takeBack?.();
    if (running !== undefined) await sandbox.stop(running);
    const name = `${record.actor.namespace}/${record.actor.name}`;
    const why = error instanceof Error ? error.message : String(error);
    throw new SubstrateError("NO_ROOM", `actor ${name} cannot be recorded on its node: ${why}`, {
      cause: error,
      retryAfterMs: 5000,
    });
  }
}

async function giveUpNewer(options: StartOptions, generation: number): Promise<void> {
  await removeGivenUp(options, generation);
  try {
    await rewindHead(options);
  } catch (error) {
    options.log.warn("the store's head still names a generation that was given up: tried again before a move", {
      generation,
      error,
    });
  }
}

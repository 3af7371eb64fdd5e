import { createHash, randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { Phases } from "@substrate/lib/phases.ts";
import { removeFolder } from "../node-files.ts";
import { ActorVolumes } from "../volumes/actor-volumes.ts";
import { noVolumes } from "../volumes/stack.ts";
import { Launcher } from "./launcher.ts";
import { lastLines } from "./output-log.ts";
import { type NodeContext, RUNTIME_OVERHEAD_BYTES } from "./node-context.ts";
import { type Program } from "./record.ts";

export interface TrialResult {
  imageDigest: string;
  readyMs: number;
}

/** How long a trial waits for room and for readyz. */
const ROOM_WITHIN_MS = 30_000;
const READY_WITHIN_MS = 60_000;

/** Runs a Template's program once under no actor's name, to find out whether it gets ready at all. */
export class Trials {
  readonly #node: NodeContext;
  readonly #running = new Map<string, Promise<TrialResult>>();

  constructor(node: NodeContext) {
    this.#node = node;
  }

  /** Joins a trial of the same revision that is under way. Throws what a first start would. */
  run(program: Program): Promise<TrialResult> {
    const key = `${program.templateUid}/${program.revision}`;
    const existing = this.#running.get(key);
    if (existing !== undefined) return existing;
    const trial = this.#run(program, key).finally(() => this.#running.delete(key));
    this.#running.set(key, trial);
    return trial;
  }

  async #run(program: Program, key: string): Promise<TrialResult> {
    const node = this.#node;
    const id = createHash("sha256").update(key).digest("hex").slice(0, 32);
    const dir = join(node.stateDir, "trials", id);
    const image = await node.images.ensure(program.image);
    const booking = await node.ledger.place(program.memoryBytes + RUNTIME_OVERHEAD_BYTES, {
      deadlineMs: ROOM_WITHIN_MS,
    });
    const phases = new Phases();
    const volumes = this.#volumes(join(dir, "volumes"), program);
    try {
      const files = { bundle: join(dir, "bundle"), identity: join(dir, "identity"), log: join(dir, "output.log") };
      await mkdir(files.bundle, { recursive: true });
      await mkdir(files.identity, { recursive: true });
      const launcher = new Launcher(node);
      const binds = await volumes.attach(program.volumeMounts, noVolumes);
      const startMs = performance.now();
      const launched = launcher.launch({
        id,
        actor: {
          uid: randomUUID(),
          namespace: "",
          name: `trial-of-${program.templateName}`.slice(0, 63),
          namespaceUid: "",
        },
        files,
        program,
        image,
        volumes: binds,
        generation: 0,
        readyWithinMs: READY_WITHIN_MS,
        phases,
        title: `the trial run of Template ${program.templateName}`,
      });
      const { slot } = await launched.catch((error: unknown) => {
        throw withOutput(asSubstrateError(error), files.log);
      });
      const readyMs = Math.round(performance.now() - startMs);
      await launcher.stop(id, slot);
      await launcher.settled();
      node.log.info("template trial", {
        template: program.templateName,
        revision: program.revision,
        ...phases.fields(),
      });
      return { imageDigest: image.digest, readyMs };
    } finally {
      booking.free();
      await volumes.close();
      await removeFolder(dir);
    }
  }

  /** They begin empty, and nothing of them stays. */
  #volumes(dir: string, { templateName }: Program): ActorVolumes {
    const nothing = (): Promise<void> => Promise.resolve();
    return new ActorVolumes({
      tools: this.#node.volumes,
      dir,
      name: `trial of Template ${templateName}`,
      record: { volumes: noVolumes() },
      frozen: () => [],
      rewriteFrozen: nothing,
      save: nothing,
      log: this.#node.log,
    });
  }
}

/** Nobody can read a trial's output afterwards: its last lines go into the message. */
function withOutput(error: SubstrateError, logPath: string): SubstrateError {
  const output = lastLines(logPath);
  const said = output === "" ? "it wrote nothing" : `its last output: ${output}`;
  return new SubstrateError(error.code, `${error.message}; ${said}`, {
    cause: error,
  });
}

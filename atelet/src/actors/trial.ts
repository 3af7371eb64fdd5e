import { createHash, randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { Phases } from "@substrate/lib/phases.ts";
import { removeFolder } from "../node-files.ts";
import { ActorVolumes } from "../volumes/actor-volumes.ts";
import { noVolumes } from "../volumes/stack.ts";
import { NotStartedError } from "../sandbox/sandbox.ts";
import { type HeldOrigin } from "../origins/origins.ts";
import { type Stored } from "../store/snapshots.ts";
import { type GoldenOptions, keepGolden, storeGolden } from "./golden.ts";
import { type Environment } from "./environment.ts";
import { Launcher } from "./launcher.ts";
import { lastLines } from "./output-log.ts";
import { type NodeContext, RUNTIME_OVERHEAD_BYTES } from "./node-context.ts";
import { type Program, type StoredPrefix } from "./record.ts";

export interface TrialRequest {
  program: Program;
  environment: Environment;
  /** Where a golden snapshot of it is to be kept; absent: none is taken. */
  golden?: StoredPrefix;
}

export interface TrialResult {
  imageDigest: string;
  readyMs: number;
  golden?: Stored;
  /** Why there is no golden snapshot though one was asked for: the trial went well all the same. */
  goldenFailure?: string;
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
  async run(request: TrialRequest): Promise<TrialResult> {
    const { program, golden } = request;
    // Its actors could be started, and never saved.
    this.#node.store(program.store);
    const key = `${program.templateUid}/${program.revision}/${golden?.prefix.actorUid ?? ""}`;
    const existing = this.#running.get(key);
    if (existing !== undefined) return await existing;
    const trial = this.#tried(request, key).finally(() => this.#running.delete(key));
    this.#running.set(key, trial);
    return await trial;
  }

  async #tried(request: TrialRequest, key: string): Promise<TrialResult> {
    const { kept, ...result } = await this.#run(request, key);
    if (request.golden === undefined || kept === undefined) return result;
    try {
      return { ...result, golden: await storeGolden(this.#node, kept, request.golden) };
    } catch (error) {
      return { ...result, goldenFailure: asSubstrateError(error).message };
    } finally {
      await kept.release();
    }
  }

  async #run(
    { program, environment, golden }: TrialRequest,
    key: string,
  ): Promise<TrialResult & { kept?: HeldOrigin }> {
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
        environment,
        volumes: binds,
        generation: 0,
        readyWithinMs: Math.max(program.wakeTimeoutMs, READY_WITHIN_MS),
        phases,
        title: `the trial run of Template ${program.templateName}`,
      });
      const { slot } = await launched.catch((error: unknown) => {
        throw withOutput(asSubstrateError(error), files.log);
      });
      const readyMs = Math.round(performance.now() - startMs);
      let stopped: Promise<void> | undefined;
      // Once: its network slot may be another sandbox's afterwards.
      const stop = (): Promise<void> => (stopped ??= launcher.stop(id, slot));
      const trial = {
        id,
        slot,
        program,
        imageDigest: image.digest,
        envDigest: environment.digest,
        volumes,
        stop,
        phases,
      };
      const kept = golden && (await this.#keep({ ...trial, target: golden }));
      await stop();
      await launcher.settled();
      node.log.info("template trial", {
        template: program.templateName,
        revision: program.revision,
        ...phases.fields(),
      });
      return { imageDigest: image.digest, readyMs, ...kept };
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
      kept: () => [],
      rewriteFrozen: nothing,
      save: nothing,
      log: this.#node.log,
    });
  }

  /** The program runs, and that is what was to be found out: no failure here is one of the trial. */
  async #keep(options: Omit<GoldenOptions, "node" | "log">): Promise<{ kept: HeldOrigin } | { goldenFailure: string }> {
    const node = this.#node;
    try {
      return { kept: await keepGolden({ ...options, node, log: node.log }) };
    } catch (error) {
      node.log.warn("no golden snapshot could be taken", { snapshot: options.target.name, error });
      return { goldenFailure: asSubstrateError(error).message };
    }
  }
}

/** Nobody can read a trial's output afterwards: its last lines go into the message. */
function withOutput(error: SubstrateError, logPath: string): SubstrateError {
  // What stands there then is the runtime's, not the program's.
  if (error.message.includes(" did not start: ")) return error;
  if (error instanceof NotStartedError) return error;
  const output = lastLines(logPath);
  const said = output === "" ? "it wrote nothing" : `its last output: ${output}`;
  return new SubstrateError(error.code, `${error.message}; ${said}`, {
    cause: error,
  });
}

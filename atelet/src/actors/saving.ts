import { SubstrateError, asSubstrateError } from "@substrate/lib/errors.ts";
import { type Phases } from "@substrate/lib/phases.ts";
import { type ActorContext } from "./actor-context.ts";
import { type ActorSandbox } from "./actor-sandbox.ts";
import { type Lives } from "./lives.ts";
import { type ReadyzWatch } from "./readyz-watch.ts";
import { type Digests } from "./digests.ts";
import { type Fidelity, type Generation } from "./record.ts";
import { requestsOpen } from "./refusals.ts";
import { type Running } from "./running.ts";
import { claimFor } from "./disk-claims.ts";
import { checkpoint, goOn } from "./suspend.ts";
import { type Tagging } from "./tagging.ts";
import { type Uploader } from "./uploader.ts";

export interface SavingOptions extends ActorContext {
  sandbox: ActorSandbox;
  uploader: Uploader;
  digests: Digests;
  tagging: Tagging;
  lives: Lives;
  watch: ReadyzWatch;
  /** Lets routers hold new requests. @returns the gate's id. */
  closeGate: () => number;
}

export interface SuspendHow {
  /** Requests that are still open are cut. */
  force: boolean;
  fidelity: Fidelity;
  /** Whether somebody waits until it is in the store. */
  sync: boolean;
  /** Whether all that is not saved now is lost. */
  urgent: boolean;
}

/** Makes generations of one running actor: one that it sleeps on, or one that it goes on after (design.md §5). */
export class Saving {
  readonly #options: SavingOptions;

  constructor(options: SavingOptions) {
    this.#options = options;
  }

  /** Throws NO_ROOM, REQUESTS_OPEN, or what the checkpoint throws: then the actor runs on, or has crashed. */
  async suspend(phases: Phases, how: SuspendHow): Promise<void> {
    const { fidelity, urgent } = how;
    const running = this.#running();
    // Before anybody is held up: making room may take a while, and without room the actor just runs on.
    const claim = await phases.run("room", () => claimFor({ ...this.#options, running, fidelity, urgent }));
    try {
      await this.#suspend(phases, running, how);
    } finally {
      claim?.end();
    }
  }

  async #suspend(phases: Phases, running: Running, { force, fidelity, sync }: SuspendHow): Promise<void> {
    const { node, name, record, volumes, sandbox, uploader, digests, lives, watch, closeGate } = this.#options;
    watch.end();
    const gateId = closeGate();
    const open = await phases.run("drain", () =>
      node.routers.drain(record.actor.uid, gateId, record.program.drainTimeoutMs),
    );
    if (open > 0 && !force) throw requestsOpen(name, open, record.program.drainTimeoutMs);
    if (open > 0) await node.routers.cut(record.actor.uid);
    let saved: Generation;
    try {
      await phases.run("load", () => running.load.finish());
      await sandbox.refuseOverLimit(running, phases);
      saved = await checkpoint({ ...this.#options, phases, running, fidelity, sync });
    } catch (error) {
      await this.#failed(running, error);
      throw error;
    }
    if (record.oldestUnsavedMs === 0) record.oldestUnsavedMs = Date.now();
    record.crash = undefined;
    lives.slept();
    const { generation, epoch } = saved;
    // Somebody waits for the store: it begins while the sandbox ends.
    if (sync) uploader.hurry(generation);
    // Another fidelity starts a program cold: it knows nothing of them.
    const asleep = fidelity === "Memory" ? { actor: record.actor.uid, generation, epoch } : undefined;
    await phases.run("teardown", () => sandbox.stop(running, asleep));
    uploader.dropReplaced();
    digests.take(saved.generation);
    uploader.schedule();
    volumes.flattenSoon();
  }

  /** For a tag: the actor goes on at once. Throws what the checkpoint throws: then it runs on, or has crashed. */
  async goOn(phases: Phases, tagUid: string): Promise<void> {
    const { record, files, log, sandbox, uploader, digests, tagging, watch, closeGate } = this.#options;
    const running = this.#running();
    const claim = await phases.run("room", () => claimFor({ ...this.#options, running, fidelity: "Memory" }));
    watch.end();
    // Routers hold new requests for the moment; what is open stays open.
    closeGate();
    let saved: Generation;
    try {
      await phases.run("load", () => running.load.finish());
      const options = { ...this.#options, phases, running };
      saved = await checkpoint({ ...options, fidelity: "Memory", sync: false });
      tagging.decide(tagUid, saved);
      if (record.sandbox !== undefined) record.sandbox.taggedGeneration = saved.generation;
      // Before it goes on: what it does from now on is not in that generation, and the next atelet must know.
      await files.save(record, { durable: false }).catch((error: unknown) => {
        log.error("a tag could not be recorded", { error });
      });
      await phases.run("goOn", () => goOn(options));
    } catch (error) {
      await this.#failed(running, error);
      throw error;
    } finally {
      claim?.end();
      if (sandbox.running === running) watch.begin();
    }
    if (record.oldestUnsavedMs === 0) record.oldestUnsavedMs = Date.now();
    uploader.dropReplaced();
    digests.take(saved.generation);
    uploader.schedule();
  }

  #running(): Running {
    const { name, sandbox } = this.#options;
    if (sandbox.running !== undefined) return sandbox.running;
    throw new SubstrateError("PROGRAM_EXITED", `actor ${name} does not run any more`);
  }

  async #failed(running: Running, error: unknown): Promise<void> {
    const { sandbox } = this.#options;
    const { code, message } = asSubstrateError(error);
    if (code === "RESTORE_FAILED" || !(await sandbox.alive())) await sandbox.died(running, message);
  }
}

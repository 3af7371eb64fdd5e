import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Phases } from "@substrate/lib/phases.ts";
import { type Stored } from "../store/snapshots.ts";
import { type ActorContext } from "./actor-context.ts";
import { type ActorSandbox } from "./actor-sandbox.ts";
import { type Operations } from "./operations.ts";
import { type Generation, type StoredPrefix } from "./record.ts";
import { refuseIfGone } from "./refusals.ts";
import { type Saving } from "./saving.ts";
import { nothingToTag } from "./stored-copy.ts";
import { type Tagging } from "./tagging.ts";

export interface TagOperationOptions extends ActorContext {
  operations: Operations;
  sandbox: ActorSandbox;
  tagging: Tagging;
  saving: Saving;
  /** Starts it again, after it was suspended for a tag. */
  resume: (phases: Phases) => Promise<void>;
}

/** Tags one actor: saves it, if it runs, and copies the generation that was decided on. */
export class TagOperation {
  readonly #options: TagOperationOptions;

  constructor(options: TagOperationOptions) {
    this.#options = options;
  }

  /**
   * Copies the actor's state under the prefix of a Snapshot object. A running actor is saved first and goes on: without
   * volumes at once, with volumes after a suspend and a resume. A repeated call copies what the first one has saved.
   */
  async tag(target: StoredPrefix, operationId: string): Promise<Stored> {
    const uid = target.prefix.actorUid;
    const generation = this.#options.tagging.decided(uid) ?? (await this.#save(uid, operationId));
    const stored = await this.#options.tagging.copy(generation, target);
    await this.#options.tagging.forget(uid);
    return stored;
  }

  async #save(uid: string, operationId: string): Promise<Generation> {
    const { name, generations, operations, sandbox, tagging, save } = this.#options;
    await operations.idle();
    refuseIfGone(this.#options);
    if (sandbox.running !== undefined) {
      await operations.run("TAG", operationId, "ASYNC", (phases) => this.#saveRunning(phases, uid));
    } else {
      const [newest] = generations.usable();
      if (newest === undefined) throw nothingToTag(name);
      tagging.decide(uid, newest);
      operations.instant("TAG", operationId, "ASYNC");
    }
    await save({ durable: false });
    const generation = tagging.decided(uid);
    if (generation !== undefined) return generation;
    throw new SubstrateError("INTERNAL", `actor ${name} was saved for a tag, and that is lost already`);
  }

  async #saveRunning(phases: Phases, uid: string): Promise<void> {
    const { record, generations, log, saving, tagging, resume, save } = this.#options;
    if (record.program.volumeMounts.length === 0) {
      await saving.goOn(phases, uid);
      return;
    }
    await saving.suspend(phases, { force: false, fidelity: "Memory", sync: false, urgent: false });
    const newest = generations.newest();
    if (newest !== undefined) tagging.decide(uid, newest);
    try {
      // The next atelet, if this one ends now, must not take the new sandbox for the one that was recorded.
      await save({ durable: false });
      await resume(phases);
    } catch (error) {
      // The tag has what it wants; whoever needs the program wakes it, and hears why it can't be.
      log.warn("did not start again after it was saved for a tag", { error });
    }
  }
}

import { randomUUID } from "node:crypto";
import { asSubstrateError, type SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorContext } from "./actor-context.ts";
import { type ActorSandbox } from "./actor-sandbox.ts";
import { type Operations } from "./operations.ts";
import { type Fidelity, type Generation } from "./record.ts";
import { busy, nothingToSave, refuseIfGone } from "./refusals.ts";
import { type Saving } from "./saving.ts";
import { type Uploader } from "./uploader.ts";

export interface SuspendRequest {
  operationId: string;
  mode: "ASYNC" | "SYNC";
  /** Cuts requests that are still open after the drain timeout. */
  force: boolean;
  targetGeneration: number;
  /** Absent: what the program's policy says. */
  fidelity?: Fidelity | undefined;
}

export interface SuspendOperationOptions extends ActorContext {
  operations: Operations;
  sandbox: ActorSandbox;
  uploader: Uploader;
  saving: Saving;
}

/** Suspends one actor: who may ask for it now, whether there is anything to save, and when a sync one has its result. */
export class SuspendOperation {
  readonly #options: SuspendOperationOptions;

  constructor(options: SuspendOperationOptions) {
    this.#options = options;
  }

  /** The generation that holds the actor's state; undefined if it never ran. */
  async suspend(request: SuspendRequest): Promise<Generation | undefined> {
    const { name, record, generations, operations, sandbox, saving } = this.#options;
    const { operationId, mode, force, targetGeneration, fidelity = record.program.onSuspend } = request;
    if (operations.type === "TAG") await operations.idle("TAG");
    refuseIfGone(this.#options);
    if (fidelity === "Data" && record.program.volumeMounts.length === 0) throw nothingToSave(name);
    if (operations.type === "RESUME") throw busy(name);
    if (operations.type === "SUSPEND") await operations.done();
    else if (sandbox.running !== undefined && this.#isUnsaved(targetGeneration)) {
      await operations.run("SUSPEND", operationId, mode, (phases) =>
        saving.suspend(phases, { force, fidelity, sync: mode === "SYNC", urgent: false }),
      );
    } else operations.instant("SUSPEND", operationId, mode);
    const newest = generations.newest();
    if (mode === "SYNC") await this.#flush(newest, operationId);
    return newest;
  }

  /** The last resort before the node's processes end: whatever its session, what runs is saved on the node. */
  async atShutdown(): Promise<void> {
    const { operations, sandbox, saving } = this.#options;
    await operations.idle();
    if (sandbox.running !== undefined) {
      await operations.run("SUSPEND", randomUUID(), "ASYNC", (phases) =>
        saving.suspend(phases, { force: true, fidelity: "Memory", sync: false, urgent: true }),
      );
    }
    await sandbox.settled();
  }

  /** Without the upload delay. Resolves when the newest generation is in the store; rejects when it can never be. */
  async uploadAtShutdown(): Promise<void> {
    const { generations, uploader } = this.#options;
    const newest = generations.newest();
    if (newest?.storage.state === "PENDING") await uploader.flush(newest.generation);
  }

  /** Whether a suspend is still to make that generation: a tag may have made one of the same number meanwhile. */
  #isUnsaved(targetGeneration: number): boolean {
    const { record, generations } = this.#options;
    const newest = generations.newest()?.generation ?? 0;
    return targetGeneration > newest || (targetGeneration === newest && record.sandbox?.taggedGeneration === newest);
  }

  /** The second half of a sync suspend: only now its operation has a result. */
  async #flush(generation: Generation | undefined, operationId: string): Promise<void> {
    const { operations, uploader, save } = this.#options;
    let failure: SubstrateError | undefined;
    try {
      if (generation !== undefined) await uploader.flush(generation.generation);
    } catch (error) {
      failure = asSubstrateError(error);
    }
    operations.settle(operationId, failure);
    await save({ durable: false });
    if (failure !== undefined) throw failure;
  }
}

import { randomUUID } from "node:crypto";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Phases } from "@substrate/lib/phases.ts";
import { type ActorContext } from "./actor-context.ts";
import { type ActorSandbox } from "./actor-sandbox.ts";
import { type Lives } from "./lives.ts";
import { type Operations } from "./operations.ts";
import { type ReadyzWatch } from "./readyz-watch.ts";
import { alreadyRuns, busy, heldMessage, refuseIfGone, stopping } from "./refusals.ts";
import { type Route } from "./route.ts";
import { type StartFrom } from "./start-from.ts";
import { start } from "./start.ts";
import { type Uploader } from "./uploader.ts";

export interface ResumeRequest {
  operationId?: string;
  /** Absent: the newest usable generation. */
  from?: StartFrom;
}

export interface ResumeOperationOptions extends ActorContext {
  operations: Operations;
  sandbox: ActorSandbox;
  lives: Lives;
  uploader: Uploader;
  watch: ReadyzWatch;
  route: Route;
}

/** Resumes one actor: who may ask for it now, and what another resume under way means for that. */
export class ResumeOperation {
  readonly #options: ResumeOperationOptions;

  constructor(options: ResumeOperationOptions) {
    this.#options = options;
  }

  /** Resolves when the program is ready. Joins a resume under way; runs after a suspend under way. */
  async resume({ operationId = randomUUID(), from }: ResumeRequest = {}): Promise<void> {
    const { node, name, record, operations, sandbox, lives } = this.#options;
    if (operations.type === "TAG") await operations.idle("TAG");
    if (operations.type === "SUSPEND") await operations.idle("SUSPEND");
    refuseIfGone(this.#options);
    if (record.held) throw new SubstrateError("HELD", heldMessage(name));
    if (node.stopping.aborted) throw stopping(name);
    // A repeated call for the same operation joins it, or hears that it is done; another choice can do neither.
    const done = record.operations.some(({ id, result }) => id === operationId && result === "SUCCEEDED");
    const repeated = done || record.lastOperation?.id === operationId;
    if (operations.type === "RESUME") {
      if (from !== undefined && !repeated) throw busy(name);
      await operations.done();
      return;
    }
    if (sandbox.running !== undefined) {
      if (from !== undefined && !repeated) throw alreadyRuns(name);
      operations.instant("RESUME", operationId, "ASYNC");
      return;
    }
    // What was chosen once and came to pass must not give up what was saved since.
    const chosen = done ? undefined : from;
    if (chosen !== undefined) lives.forgive();
    const refusal = lives.refusal();
    if (refusal !== undefined) throw refusal;
    await operations.run("RESUME", operationId, "ASYNC", (phases) => this.start(phases, chosen));
  }

  /** Within an operation: starts it, and watches it from then on. */
  async start(phases: Phases, from: StartFrom | undefined): Promise<void> {
    const { uploader, route, watch } = this.#options;
    route.publish();
    // What a person goes back behind must not reach the store meanwhile.
    const goOn = from?.kind === "generation" ? await uploader.pause() : undefined;
    try {
      await start({ ...this.#options, phases, from });
      watch.begin();
    } finally {
      goOn?.();
    }
  }
}

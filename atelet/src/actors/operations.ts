import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { Phases } from "@substrate/lib/phases.ts";
import { type AteletMetrics } from "../metrics.ts";
import { type ActorRecord, type FinishedOperation, type Operation } from "./record.ts";

type OperationType = Operation["type"];
/** A SYNC operation that went well on the node has no result before `settle` gives it one. */
type Mode = "ASYNC" | "SYNC";

const names = {
  RESUME: { metric: "resume", line: "restore timing" },
  SUSPEND: { metric: "suspend", line: "checkpoint timing" },
  TAG: { metric: "tag", line: "tag timing" },
} as const;

/** So many past operations are kept. */
const KEPT = 16;

export interface OperationsOptions {
  record: ActorRecord;
  metrics: AteletMetrics;
  log: Logger;
  /** Saves and reports. */
  save: () => Promise<void>;
  /** Reports only. */
  changed: () => void;
  /** Fields of the timing line beside the phases. */
  fields: () => Record<string, unknown>;
  /** Called when one is over, before that is saved. */
  ended: () => void;
  /** Around what somebody waits for: work that can wait does. */
  during: (work: () => Promise<void>) => Promise<void>;
}

/** What one actor is being asked to do: at most one thing at a time, recorded, timed and logged in one line. */
export class Operations {
  readonly #options: OperationsOptions;
  #current: { type: OperationType; done: Promise<void> } | undefined;
  #closed: SubstrateError | undefined;
  /** Of the SYNC operation that has no result yet, and when the node's part of it was done. */
  #unsettled: { id: string; phases: Phases; sinceMs: number } | undefined;

  constructor(options: OperationsOptions) {
    this.#options = options;
  }

  /** The type of the one under way. */
  get type(): OperationType | undefined {
    return this.#current?.type;
  }

  /** The end of the one under way; rejects as it does. */
  async done(): Promise<void> {
    await this.#current?.done;
  }

  /** Resolves when none (of that type) is under way, however they end. */
  async idle(type?: OperationType): Promise<void> {
    while (this.#current !== undefined && (type === undefined || this.#current.type === type)) {
      await this.#current.done.catch(() => undefined);
    }
  }

  /** From now on whoever asks for one hears this. */
  close(reason: SubstrateError): void {
    this.#closed = reason;
  }

  reopen(): void {
    this.#closed = undefined;
  }

  /** Runs one to its end; the caller has looked that none is under way. */
  async run(type: OperationType, id: string, mode: Mode, work: (phases: Phases) => Promise<void>): Promise<void> {
    if (this.#closed !== undefined) throw this.#closed;
    const operation = started(type, id);
    this.#options.record.lastOperation = operation;
    // Not before the operation is visible: its first step tells routers of it.
    const done = Promise.resolve().then(() => this.#perform(operation, mode, work));
    this.#current = { type, done };
    this.#options.changed();
    await done;
  }

  /** Records one that had nothing to do on the node. */
  instant(type: OperationType, id: string, mode: Mode): void {
    if (this.#closed !== undefined) throw this.#closed;
    const operation = started(type, id);
    if (mode === "ASYNC") finish(operation, undefined);
    else this.#unsettled = { id, phases: new Phases(), sinceMs: performance.now() };
    this.#options.record.lastOperation = operation;
    this.#options.changed();
  }

  /** Gives a SYNC operation its result, unless another one is the last by now. */
  settle(id: string, failure: SubstrateError | undefined): void {
    const { lastOperation } = this.#options.record;
    if (lastOperation?.id !== id || lastOperation.result !== "RUNNING") return;
    finish(lastOperation, failure);
    const unsettled = this.#unsettled?.id === id ? this.#unsettled : undefined;
    unsettled?.phases.add("upload", performance.now() - unsettled.sinceMs);
    this.#keep(lastOperation, unsettled?.phases.list() ?? []);
  }

  /** What an earlier atelet was doing has not come to its end. */
  interrupted(): void {
    const { lastOperation } = this.#options.record;
    if (lastOperation?.result !== "RUNNING") return;
    finish(lastOperation, new SubstrateError("SHUTTING_DOWN", "the atelet was restarted meanwhile"));
    this.#keep(lastOperation, []);
  }

  #keep(operation: Operation, phases: FinishedOperation["phases"]): void {
    const { record } = this.#options;
    record.operations = [{ ...operation, phases }, ...record.operations].slice(0, KEPT);
  }

  async #perform(operation: Operation, mode: Mode, work: (phases: Phases) => Promise<void>): Promise<void> {
    const { metrics, log, save, fields } = this.#options;
    const phases = new Phases();
    let failure: SubstrateError | undefined;
    try {
      await this.#options.during(() => work(phases));
    } catch (error) {
      failure = asSubstrateError(error);
    }
    this.#current = undefined;
    if (mode === "ASYNC" || failure !== undefined) {
      finish(operation, failure);
      this.#keep(operation, phases.list());
    } else this.#unsettled = { id: operation.id, phases, sinceMs: performance.now() };
    // Requests need not wait until it is written down that it has ended: what runs now is.
    this.#options.ended();
    try {
      await save();
    } catch (error) {
      // The image or the sandbox is what counts, and each is found again without this record.
      log.error("the end of an operation could not be recorded", { operation: operation.id, error });
    }
    const { metric, line } = names[operation.type];
    metrics.operation(metric, failure === undefined ? "ok" : "failed", phases.fields());
    log.log(failure === undefined ? "info" : "warn", line, {
      operation: operation.id,
      ...fields(),
      ...phases.fields(),
      ...(failure && { error: failure }),
    });
    if (failure !== undefined) throw failure;
  }
}

function started(type: OperationType, id: string): Operation {
  return { id, type, result: "RUNNING", reason: "", message: "", startMs: Date.now(), endMs: 0 };
}

function finish(operation: Operation, failure: SubstrateError | undefined): void {
  operation.result = failure === undefined ? "SUCCEEDED" : "FAILED";
  operation.reason = failure?.code ?? "";
  operation.message = failure?.message ?? "";
  operation.endMs = Date.now();
}

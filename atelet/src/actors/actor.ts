import { randomUUID } from "node:crypto";
import { SubstrateError, asSubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { formatBytes } from "@substrate/lib/resources.ts";
import { Phases } from "@substrate/lib/phases.ts";
import { GenerationFolder } from "../generations/folder.ts";
import { type ActorPrefix } from "../store/snapshots.ts";
import { Generations } from "./generations.ts";
import { Launcher } from "./launcher.ts";
import { lastLines, outputSize } from "./output-log.ts";
import { type NodeContext, RUNTIME_OVERHEAD_BYTES } from "./node-context.ts";
import { type ActorFiles, type ActorRecord, type Generation, type Operation } from "./record.ts";
import { type RouteLevel } from "./route-level.ts";
import { RestartBackOff } from "./restart-back-off.ts";
import { type Running } from "./running.ts";
import { claimHead, findSource, type SourceOptions } from "./source.ts";
import { checkpoint } from "./suspend.ts";
import { Uploader } from "./uploader.ts";

export type ActorState = "SUSPENDED" | "RESUMING" | "RUNNING" | "SUSPENDING" | "CRASHED" | "DELETING";

export interface SuspendRequest {
  operationId: string;
  mode: "ASYNC" | "SYNC";
  /** Cuts requests that are still open after the drain timeout. */
  force: boolean;
  targetGeneration: number;
}

/** A readyz may take this long at least, whatever the request that woke the actor is ready to wait. */
const READY_WITHIN_MS = 60_000;

/**
 * One actor on its node: at most one operation at a time, every one ending in a state that a restart finds again. The
 * rules of who may ask what are design.md §4; of when the node may act at all, §7.
 */
export class Actor {
  readonly record: ActorRecord;
  readonly generations: Generations;
  readonly id: string;
  readonly files: ActorFiles;
  readonly #node: NodeContext;
  readonly #launcher: Launcher;
  readonly #uploader: Uploader;
  readonly #log: Logger;
  readonly #changed: (actor: Actor) => void;
  #running: Running | undefined;
  #operation: { type: "RESUME" | "SUSPEND"; done: Promise<unknown> } | undefined;
  #gateId = 0;
  readonly #backOff: RestartBackOff;

  constructor(node: NodeContext, record: ActorRecord, files: ActorFiles, changed: (actor: Actor) => void) {
    this.#node = node;
    this.record = record;
    this.files = files;
    this.#changed = changed;
    this.id = record.actor.uid.replaceAll("-", "");
    this.#log = node.log.child({ actor: this.name, uid: record.actor.uid });
    this.#launcher = new Launcher(node);
    this.#backOff = new RestartBackOff(() => {
      this.#publish();
    });
    this.generations = new Generations(record, new GenerationFolder(files.generations));
    this.#uploader = new Uploader({
      node,
      record,
      prefix: this.#prefix,
      generations: this.generations,
      log: this.#log,
      changed: () => this.#save({ durable: false }),
    });
  }

  get name(): string {
    return `${this.record.actor.namespace}/${this.record.actor.name}`;
  }

  get state(): ActorState {
    if (this.record.deleting) return "DELETING";
    if (this.#operation?.type === "RESUME") return "RESUMING";
    if (this.#operation?.type === "SUSPEND") return "SUSPENDING";
    if (this.#running !== undefined) return "RUNNING";
    return this.record.crash === undefined ? "SUSPENDED" : "CRASHED";
  }

  get hasSandbox(): boolean {
    return this.#running !== undefined || this.#operation !== undefined;
  }

  get slotIndex(): number | undefined {
    return this.record.sandbox?.slotIndex;
  }

  route(): RouteLevel {
    const { record } = this;
    const retryAfterMs = this.#backOff.waitMs();
    const level: RouteLevel = {
      actor: record.actor,
      epoch: record.grant.epoch,
      state: "ASLEEP",
      gateId: this.#gateId,
      endpoints: [],
      wakeTimeoutMs: record.program.wakeTimeoutMs,
      message: "",
      retryAfterMs: 0,
    };
    if (this.#operation?.type === "SUSPEND")
      return { ...level, state: "GATED", endpoints: this.#running?.endpoints ?? [] };
    if (record.held) return { ...level, state: "HELD", message: heldMessage(this.name) };
    if (this.#running !== undefined && !this.#running.cut && this.#operation === undefined) {
      return { ...level, state: "RUNNING", endpoints: this.#running.endpoints };
    }
    if (retryAfterMs > 0) return { ...level, state: "FAILING", message: this.#backOff.lastFailure, retryAfterMs };
    return level;
  }

  /** Files and sandbox as an earlier atelet left them. `sandbox` is what the runtime says of it. */
  async adopt(sandbox: "running" | "paused" | "gone"): Promise<void> {
    const removed = await this.generations.load();
    if (removed.length > 0) this.#log.warn("removed what a crash left unfinished", { removed });
    const was = this.record.sandbox;
    if (this.record.lastOperation?.result === "RUNNING") {
      this.#finish(
        this.record.lastOperation,
        new SubstrateError("SHUTTING_DOWN", "the atelet was restarted meanwhile"),
      );
    }
    const newest = this.generations.newest();
    const saved = was !== undefined && newest !== undefined && newest.createdAtMs > was.startedAtMs;
    if (was !== undefined && (sandbox === "gone" || (sandbox === "paused" && saved))) {
      await this.#launcher.stopAdopted(this.id, was.slotIndex);
      if (!saved) this.#crashed("its sandbox was gone when the atelet came back");
      this.record.sandbox = undefined;
    } else if (was !== undefined) {
      await this.#adoptOrStop(was, sandbox === "paused");
    }
    await this.#save({ durable: false });
    this.#uploader.schedule();
  }

  /** A new grant: the caller has checked session and epoch. Durable when it resolves. */
  async assign(update: Pick<ActorRecord, "grant" | "program" | "held" | "clusterUid">): Promise<void> {
    const { record } = this;
    const follows = update.grant.epoch === record.grant.epoch + 1;
    if (update.grant.epoch > record.grant.epoch) {
      // An epoch that was still to be claimed under passes its duty on, whatever number follows it.
      const state = follows && record.claim.state !== "needed" ? "none" : "needed";
      const priorEpoch = record.claim.state === "needed" ? record.claim.priorEpoch : record.grant.epoch;
      record.claim = { state, priorEpoch };
    }
    Object.assign(record, update);
    await this.#save({ durable: true });
    if (this.#running?.cut === true) await this.#uncut(this.#running);
  }

  async hold(held: boolean): Promise<void> {
    if (this.record.held === held) return;
    this.record.held = held;
    await this.#save({ durable: true });
  }

  noteActivity(nowMs: number): void {
    this.record.lastActivityMs = nowMs;
  }

  /** Resolves when the program is ready. Joins a resume under way; runs after a suspend under way. */
  async resume(operationId: string = randomUUID()): Promise<void> {
    while (this.#operation?.type === "SUSPEND") await this.#operation.done.catch(() => undefined);
    this.#refuseIfGone();
    if (this.record.held) throw new SubstrateError("HELD", heldMessage(this.name));
    if (this.#operation?.type === "RESUME") {
      await this.#operation.done;
      return;
    }
    if (this.#running !== undefined) {
      this.#recordInstant(operationId, "RESUME");
      return;
    }
    const waitMs = this.#backOff.waitMs();
    if (waitMs > 0) throw new SubstrateError("RESTORE_FAILED", this.#backOff.lastFailure, { retryAfterMs: waitMs });
    await this.#operate("RESUME", operationId, (phases) => this.#resume(phases));
  }

  /** The last resort before the node's processes end: whatever its session, what runs is saved on the node. */
  async suspendAtShutdown(): Promise<void> {
    if (this.#operation !== undefined) await this.#operation.done.catch(() => undefined);
    if (this.#running !== undefined) {
      await this.#operate("SUSPEND", randomUUID(), (phases) => this.#suspend(phases, true));
    }
    await this.#launcher.settled();
  }

  /** The generation that holds the actor's state; undefined if it never ran. */
  async suspend(request: SuspendRequest): Promise<Generation | undefined> {
    this.#refuseIfGone();
    if (this.#operation?.type === "RESUME") throw busy(this.name);
    if (this.#operation?.type === "SUSPEND") await this.#operation.done;
    else if (this.#running !== undefined && request.targetGeneration > (this.generations.newest()?.generation ?? 0)) {
      await this.#operate(
        "SUSPEND",
        request.operationId,
        (phases) => this.#suspend(phases, request.force),
        request.mode,
      );
    } else this.#recordInstant(request.operationId, "SUSPEND", request.mode);
    const newest = this.generations.newest();
    if (request.mode === "SYNC") await this.#flush(newest, request.operationId);
    return newest;
  }

  /** Why the epoch cannot be given up now, or undefined (design.md §7 Release). */
  async unreleasable(): Promise<string | undefined> {
    if (this.#operation !== undefined) return "an operation is in progress";
    if (this.#running !== undefined) return "its sandbox exists";
    const newest = this.generations.newest();
    if (newest?.storage.state !== "PENDING") return undefined;
    const head = await this.#node.store(this.record.program.store).head(this.#prefix);
    if ((head?.epoch ?? 0) > this.record.grant.epoch) return undefined;
    return `generation ${newest.generation} is not in the store yet`;
  }

  /** Ends all that runs for it, the sandbox included, and removes its files from the node. */
  async leave(): Promise<void> {
    const reason = new SubstrateError("MOVED", `actor ${this.name} left this node`);
    if (this.#operation !== undefined) {
      await this.#node.runtime.delete(this.id);
      await this.#operation.done.catch(() => undefined);
    }
    if (this.#running !== undefined) await this.#stopSandbox(this.#running);
    await this.#uploader.stop(reason);
    await this.#launcher.settled();
    await this.files.close();
  }

  async markDeleting(): Promise<void> {
    this.record.deleting = true;
    await this.#save({ durable: true });
  }

  async deleteStored(): Promise<void> {
    await this.#node.store(this.record.program.store).deleteActor(this.#prefix);
  }

  /** Looks whether the sandbox still lives; called often. */
  async checkAlive(): Promise<void> {
    const running = this.#running;
    if (running === undefined || running.stopped !== undefined || this.#operation !== undefined) return;
    if (await this.#node.runtime.alive(this.id)) return;
    if (this.#running === running && !this.#isOperating()) await this.#died(running, "its program ended");
  }

  /** design.md §7: the session ended. Cut and pause; a new grant lets it go on. */
  async cut(): Promise<void> {
    const running = this.#running;
    if (running === undefined || running.cut) return;
    running.cut = true;
    this.#publish();
    await this.#node.network.block(running.slot);
    await this.#node.runtime.pause(this.id);
    this.#log.warn("cut and paused: the node's session ended; waiting for a new grant");
  }

  #isOperating(): boolean {
    return this.#operation !== undefined;
  }

  get #prefix(): ActorPrefix {
    const { clusterUid, actor } = this.record;
    return { clusterUid, namespaceUid: actor.namespaceUid, actorUid: actor.uid };
  }

  async #uncut(running: Running): Promise<void> {
    await this.#node.runtime.resume(this.id);
    await this.#node.network.open(running.slot);
    running.cut = false;
    this.#publish();
    this.#log.info("goes on under a new grant", { epoch: this.record.grant.epoch });
  }

  async #resume(phases: Phases): Promise<void> {
    const { record } = this;
    const { program } = record;
    this.#publish();
    const booking = await phases.run("place", () =>
      this.#node.ledger.place(program.memoryBytes + RUNTIME_OVERHEAD_BYTES, { deadlineMs: program.wakeTimeoutMs }),
    );
    try {
      const options = this.#sourceOptions(phases);
      await claimHead(options);
      const source = await findSource(options);
      const image = await phases.run("image", async () => {
        const local = source === undefined ? undefined : await this.#node.images.local(source.imageDigest);
        return local ?? this.#node.images.ensure(pinnedReference(program.image, source?.imageDigest));
      });
      const unpin = source === undefined ? undefined : this.generations.pin(source.generation);
      const outputFrom = outputSize(this.files.log);
      try {
        const launched = await this.#launcher.launch({
          id: this.id,
          actor: record.actor,
          files: this.files,
          program,
          image,
          ...(source && {
            restore: { imageDir: this.generations.path(source.generation), generation: source.generation },
          }),
          readyWithinMs: Math.max(program.wakeTimeoutMs, READY_WITHIN_MS),
          phases,
          title: `actor ${this.name}`,
        });
        const startedAtMs = Date.now();
        this.#running = {
          ...launched,
          booking,
          imageDigest: image.digest,
          startedAtMs,
          cut: false,
          loaded: source === undefined ? Promise.resolve() : this.#node.runtime.waitRestored(this.id),
        };
        record.sandbox = {
          outputFrom,
          slotIndex: launched.slot.index,
          startedAtMs,
          imageDigest: image.digest,
          fromGeneration: source?.generation ?? 0,
        };
        record.crash = undefined;
        this.#watchLoad(this.#running, unpin);
      } catch (error) {
        await unpin?.();
        throw error;
      }
    } catch (error) {
      booking.free();
      throw error;
    }
  }

  /** The files of a background restore stay until its load has ended well; a load that fails is a crash (design.md §6). */
  #watchLoad(running: Running, unpin: (() => Promise<void>) | undefined): void {
    running.loaded
      .catch(async (error: unknown) => {
        this.#log.error("the background load of its memory failed", { error });
        // A suspend under way finds it by itself; a resume under way ends first.
        while (this.#operation !== undefined) await this.#operation.done.catch(() => undefined);
        await this.#died(running, `loading its memory failed: ${asSubstrateError(error).message}`);
      })
      .then(() => unpin?.())
      .catch((error: unknown) => {
        this.#log.error("cleaning up after a background load failed", { error });
      });
  }

  async #suspend(phases: Phases, force: boolean): Promise<void> {
    const { record } = this;
    const running = this.#running;
    if (running === undefined) throw new SubstrateError("PROGRAM_EXITED", `actor ${this.name} does not run any more`);
    this.#gateId += 1;
    this.#publish();
    const open = await phases.run("drain", () =>
      this.#node.routers.drain(record.actor.uid, this.#gateId, record.program.drainTimeoutMs),
    );
    if (open > 0 && !force) {
      throw new SubstrateError(
        "REQUESTS_OPEN",
        `${open} ${open === 1 ? "request is" : "requests are"} still open for actor ${this.name} after ` +
          `${record.program.drainTimeoutMs / 1000} s (spec.drainTimeout of its Template); nothing was changed`,
      );
    }
    try {
      await phases.run("load", () => running.loaded);
      await checkpoint({ ...this.#sourceOptions(phases), id: this.id, running });
    } catch (error) {
      const { code, message } = asSubstrateError(error);
      if (code === "RESTORE_FAILED" || !(await this.#node.runtime.alive(this.id))) await this.#died(running, message);
      throw error;
    }
    if (record.oldestUnsavedMs === 0) record.oldestUnsavedMs = Date.now();
    record.crash = undefined;
    await phases.run("teardown", () => this.#stopSandbox(running));
    await this.#save({ durable: false });
    await this.#uploader.dropReplaced();
    this.#uploader.schedule();
  }

  async #stopSandbox(running: Running): Promise<void> {
    // A liveness check may find it dead while it is being stopped: its slot must be given back once.
    running.stopped ??= this.#launcher.stop(this.id, running.slot).catch((error: unknown) => {
      running.stopped = undefined;
      throw error;
    });
    await running.stopped;
    if (this.#running !== running) return;
    this.#running = undefined;
    this.record.sandbox = undefined;
    running.booking.free();
  }

  /** The second half of a sync suspend: only now its operation has a result. */
  async #flush(generation: Generation | undefined, operationId: string): Promise<void> {
    let failure: SubstrateError | undefined;
    try {
      if (generation !== undefined) await this.#uploader.flush(generation.generation);
    } catch (error) {
      failure = asSubstrateError(error);
    }
    const { lastOperation } = this.record;
    if (lastOperation?.id === operationId && lastOperation.result === "RUNNING") this.#finish(lastOperation, failure);
    await this.#save({ durable: false });
    if (failure !== undefined) throw failure;
  }

  async #died(running: Running, message: string): Promise<void> {
    if (this.#running !== running || running.stopped !== undefined) return;
    this.#crashed((await this.#node.cgroups.oomKilled(this.id)) ? this.#outOfMemory() : message);
    await this.#stopSandbox(running);
    await this.#save({ durable: false });
  }

  #outOfMemory(): string {
    const { containerName, memoryBytes } = this.record.program;
    return (
      `it used more memory than its limit of ${formatBytes(memoryBytes)} and was killed ` +
      `(resources.limits.memory of container ${containerName} in its Template)`
    );
  }

  #crashed(message: string): void {
    const output = lastLines(this.files.log, this.record.sandbox?.outputFrom);
    const usable = this.generations.usable()[0];
    const parts = [
      message,
      usable === undefined
        ? "nothing of it was saved: the next start is from nothing"
        : `the next resume goes on from generation ${usable.generation}`,
      ...(output === "" ? [] : [`its last output: ${output}`]),
    ];
    this.record.crash = { message: parts.join("; "), timeMs: Date.now() };
    this.#node.metrics.crashes.inc();
    this.#backOff.failed(`actor ${this.name} crashed: ${message}`, this.record.sandbox?.startedAtMs);
    this.#log.warn("crashed", { message, output });
  }

  /** @param mode a SYNC operation that went well so far has no result yet: `#flush` gives it one. */
  async #operate(
    type: "RESUME" | "SUSPEND",
    id: string,
    work: (phases: Phases) => Promise<void>,
    mode: "ASYNC" | "SYNC" = "ASYNC",
  ): Promise<void> {
    const operation: Operation = {
      id,
      type,
      result: "RUNNING",
      reason: "",
      message: "",
      startMs: Date.now(),
      endMs: 0,
    };
    this.record.lastOperation = operation;
    // Not before the operation is visible: its first step tells routers of it.
    const done = Promise.resolve().then(() => this.#perform(operation, work, mode));
    this.#operation = { type, done };
    this.#changed(this);
    await done;
  }

  async #perform(operation: Operation, work: (phases: Phases) => Promise<void>, mode: "ASYNC" | "SYNC"): Promise<void> {
    const { id, type } = operation;
    const phases = new Phases();
    let failure: SubstrateError | undefined;
    try {
      await work(phases);
    } catch (error) {
      failure = asSubstrateError(error);
      if (type === "RESUME") this.#backOff.failed(failure.message, undefined);
    }
    this.#operation = undefined;
    if (mode === "ASYNC" || failure !== undefined) this.#finish(operation, failure);
    await this.#save({ durable: false });
    const fields = phases.fields();
    const verb = type === "RESUME" ? "resume" : "suspend";
    this.#node.metrics.operation(verb, failure === undefined ? "ok" : "failed", fields);
    this.#log.log(failure === undefined ? "info" : "warn", type === "RESUME" ? "restore timing" : "checkpoint timing", {
      operation: id,
      epoch: this.record.grant.epoch,
      generation: this.generations.newest()?.generation ?? 0,
      ...fields,
      ...(failure && { error: failure }),
    });
    if (failure !== undefined) throw failure;
  }

  #recordInstant(id: string, type: "RESUME" | "SUSPEND", mode: "ASYNC" | "SYNC" = "ASYNC"): void {
    const now = Date.now();
    const [result, endMs] = mode === "SYNC" ? (["RUNNING", 0] as const) : (["SUCCEEDED", now] as const);
    this.record.lastOperation = { id, type, result, reason: "", message: "", startMs: now, endMs };
    this.#changed(this);
  }

  #finish(operation: Operation, failure: SubstrateError | undefined): void {
    operation.result = failure === undefined ? "SUCCEEDED" : "FAILED";
    operation.reason = failure?.code ?? "";
    operation.message = failure?.message ?? "";
    operation.endMs = Date.now();
  }

  /** One sandbox that cannot be adopted must not keep the atelet, and so all other actors, from coming back. */
  async #adoptOrStop(was: NonNullable<ActorRecord["sandbox"]>, paused: boolean): Promise<void> {
    try {
      await this.#adoptSandbox(was, paused);
    } catch (error) {
      this.#log.error("its sandbox cannot be adopted; removing it", { error });
      this.#running?.booking.free();
      this.#running = undefined;
      await this.#launcher.stopAdopted(this.id, was.slotIndex);
      this.#crashed(`its sandbox could not be adopted: ${asSubstrateError(error).message}`);
      this.record.sandbox = undefined;
    }
  }

  async #adoptSandbox(was: NonNullable<ActorRecord["sandbox"]>, paused: boolean): Promise<void> {
    const { program } = this.record;
    const slot = this.#node.network.adopt(was.slotIndex);
    const cut = this.record.grant.session !== this.#node.session();
    const running: Running = {
      slot,
      endpoints: await this.#launcher.adopt(slot, program),
      booking: this.#node.ledger.adopt(program.memoryBytes + RUNTIME_OVERHEAD_BYTES),
      imageDigest: was.imageDigest,
      startedAtMs: was.startedAtMs,
      cut,
      loaded: was.fromGeneration === 0 ? Promise.resolve() : this.#node.runtime.waitRestored(this.id),
    };
    this.#running = running;
    await this.#node.cgroups.moveBack(this.id);
    await this.#node.cgroups.limitCpu(this.id, program.cpuMillis);
    if (paused && !cut) await this.#node.runtime.resume(this.id);
    if (!paused && cut) await this.#node.runtime.pause(this.id);
    await (cut ? this.#node.network.block(slot) : this.#node.network.open(slot));
    if (running.endpoints.length < program.ports.length)
      running.endpoints = await this.#launcher.publish(slot, program);
    const unpin = this.generations.local(was.fromGeneration) && this.generations.pin(was.fromGeneration);
    this.#watchLoad(running, unpin);
    this.#log.info("adopted", { paused, cut, slot: slot.index });
  }

  #sourceOptions(phases: Phases): SourceOptions {
    return {
      node: this.#node,
      record: this.record,
      prefix: this.#prefix,
      generations: this.generations,
      phases,
      log: this.#log,
      save: (options) => this.#save(options),
    };
  }

  #refuseIfGone(): void {
    if (this.record.deleting) throw new SubstrateError("MOVED", `actor ${this.name} is being deleted`);
    if (this.record.grant.session !== this.#node.session()) {
      throw new SubstrateError(
        "STALE_SESSION",
        `epoch ${this.record.grant.epoch} of actor ${this.name} belongs to an ended session of this node`,
      );
    }
  }

  async #save(options: { durable: boolean }): Promise<void> {
    await this.files.save(this.record, options);
    this.#publish();
    this.#changed(this);
  }

  #publish(): void {
    this.#node.routers.publish(this.route());
  }
}

function busy(name: string): SubstrateError {
  return new SubstrateError("OPERATION_IN_PROGRESS", `another operation is in progress for actor ${name}`, {
    retryAfterMs: 1000,
  });
}

function heldMessage(name: string): string {
  return `actor ${name} is kept asleep by its spec.state Suspended; set it to OnDemand to let requests wake it`;
}

/** A restore needs the very image that the generation was made from, also when the tag has moved since. */
function pinnedReference(reference: string, digest: string | undefined): string {
  if (digest === undefined || reference.includes("@")) return reference;
  return `${reference}@${digest}`;
}

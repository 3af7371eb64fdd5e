import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { SubstrateError, asSubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { Phases } from "@substrate/lib/phases.ts";
import { GenerationFolder } from "../generations/folder.ts";
import { type ActorPrefix, type Stored } from "../store/snapshots.ts";
import { Generations } from "./generations.ts";
import { type VolumeUsage } from "../volumes/usage.ts";
import { ActorVolumes } from "../volumes/actor-volumes.ts";
import { ActorSandbox } from "./actor-sandbox.ts";
import { crashReport } from "./crash-report.ts";
import { EnvironmentFile } from "./environment.ts";
import { Lives } from "./lives.ts";
import { lastLines } from "./output-log.ts";
import { describeNextStart } from "./next-start.ts";
import { type NodeContext } from "./node-context.ts";
import { Operations } from "./operations.ts";
import { ReadyzWatch } from "./readyz-watch.ts";
import { type ActorFiles, type ActorRecord, type Fidelity, type Generation, type StoredPrefix } from "./record.ts";
import { alreadyRuns, busy, heldMessage, nothingToSave, stopping, upgradePending } from "./refusals.ts";
import { type RouteLevel } from "./route-level.ts";
import { Saving } from "./saving.ts";
import { type SourceOptions, verifyCopy } from "./source.ts";
import { rewindHead, type StartFrom } from "./start-from.ts";
import { start } from "./start.ts";
import { nothingToTag } from "./stored-copy.ts";
import { Tagging } from "./tagging.ts";
import { type Assignment, Terms } from "./terms.ts";
import { Uploader } from "./uploader.ts";

/** How long leaving waits for an upload to end before it takes the files away under it. */
const WRITES_END_MS = 2000;

export type ActorState = "SUSPENDED" | "RESUMING" | "RUNNING" | "SUSPENDING" | "CRASHED" | "DELETING";

export interface ResumeRequest {
  operationId?: string;
  /** Absent: the newest usable generation. */
  from?: StartFrom;
}

export interface SuspendRequest {
  operationId: string;
  mode: "ASYNC" | "SYNC";
  /** Cuts requests that are still open after the drain timeout. */
  force: boolean;
  targetGeneration: number;
  /** Absent: what the program's policy says. */
  fidelity?: Fidelity | undefined;
}

/**
 * One actor on its node: at most one operation at a time, every one ending in a state that a restart finds again. The
 * rules of who may ask what are design.md §4; of when the node may act at all, §7.
 */
export class Actor {
  readonly record: ActorRecord;
  readonly generations: Generations;
  readonly volumes: ActorVolumes;
  readonly id: string;
  readonly files: ActorFiles;
  readonly #node: NodeContext;
  readonly #sandbox: ActorSandbox;
  readonly #operations: Operations;
  readonly #uploader: Uploader;
  readonly #tagging: Tagging;
  readonly #saving: Saving;
  readonly #lives: Lives;
  readonly #terms: Terms;
  readonly #watch: ReadyzWatch;
  readonly #log: Logger;
  readonly #changed: (actor: Actor) => void;
  #gateId = 0;
  #left = false;

  constructor(node: NodeContext, record: ActorRecord, files: ActorFiles, changed: (actor: Actor) => void) {
    this.#node = node;
    this.record = record;
    this.files = files;
    this.#changed = changed;
    this.id = record.actor.uid.replaceAll("-", "");
    this.#log = node.log.child({ actor: this.name, uid: record.actor.uid });
    const save = (): Promise<void> => this.#save({ durable: false });
    this.#lives = new Lives({
      record,
      name: this.name,
      over: () => {
        this.#publish();
      },
      looping: () => {
        node.metrics.crashLoops.inc();
      },
    });
    this.#terms = new Terms(record, new EnvironmentFile(files.environment), () => this.#save({ durable: true }));
    this.#watch = new ReadyzWatch({
      bad: (message) => {
        this.#turnedBad(message);
      },
    });
    this.generations = new Generations(record, new GenerationFolder(files.generations), {
      volumesDamage: (stacks) => this.volumes.damage(stacks),
      evicted: () => {
        this.volumes.collectSoon();
      },
    });
    this.volumes = new ActorVolumes({
      tools: node.volumes,
      dir: files.volumes,
      name: this.name,
      record,
      frozen: () => this.generations.frozen(),
      rewriteFrozen: (volume, flattened, into) => this.generations.rewriteFrozen(volume, flattened, into),
      save: () => files.save(record, { durable: false }),
      log: this.#log,
    });
    this.#uploader = new Uploader({
      node,
      record,
      prefix: this.#prefix,
      generations: this.generations,
      volumes: this.volumes,
      log: this.#log,
      changed: save,
    });
    this.#tagging = new Tagging({
      node,
      record,
      prefix: this.#prefix,
      generations: this.generations,
      volumes: this.volumes,
      log: this.#log,
      save,
      released: async () => {
        await this.#uploader.dropReplaced();
        this.#uploader.schedule();
      },
    });
    this.#operations = new Operations({
      record,
      metrics: node.metrics,
      log: this.#log,
      save,
      changed: () => {
        changed(this);
      },
      fields: () => ({ epoch: record.grant.epoch, generation: this.generations.newest()?.generation ?? 0 }),
    });
    this.#sandbox = new ActorSandbox({
      node,
      id: this.id,
      name: this.name,
      record,
      files,
      generations: this.generations,
      volumes: this.volumes,
      log: this.#log,
      idle: () => this.#operations.idle(),
      crashed: (message, { byItself }) => {
        this.#crashed(message, byItself);
      },
      save,
    });
    this.#saving = new Saving({
      id: this.id,
      name: this.name,
      files,
      sandbox: this.#sandbox,
      uploader: this.#uploader,
      tagging: this.#tagging,
      lives: this.#lives,
      watch: this.#watch,
      closeGate: () => {
        this.#gateId += 1;
        this.#publish();
        return this.#gateId;
      },
      source: (phases) => this.#sourceOptions(phases),
    });
  }

  get name(): string {
    return `${this.record.actor.namespace}/${this.record.actor.name}`;
  }

  get state(): ActorState {
    if (this.record.deleting) return "DELETING";
    if (this.#operations.type === "RESUME") return "RESUMING";
    if (this.#operations.type === "SUSPEND") return "SUSPENDING";
    if (this.#sandbox.running !== undefined) return "RUNNING";
    // With volumes a tag is a suspend and a resume.
    if (this.#operations.type === "TAG") return "SUSPENDING";
    return this.record.crash === undefined ? "SUSPENDED" : "CRASHED";
  }

  get hasSandbox(): boolean {
    return this.#sandbox.running !== undefined || this.#operations.type !== undefined;
  }

  /** What the next start by itself goes on from, as the rest of "the next request starts it". */
  get nextStart(): string {
    return describeNextStart(this);
  }

  /** As last measured. */
  volumeUsage(): readonly VolumeUsage[] {
    return this.#sandbox.volumeUsage;
  }

  get slotIndex(): number | undefined {
    return this.record.sandbox?.slotIndex;
  }

  route(): RouteLevel {
    const { record } = this;
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
    const { running } = this.#sandbox;
    if (this.#operations.type === "SUSPEND" || this.#operations.type === "TAG")
      return { ...level, state: "GATED", endpoints: running?.endpoints ?? [] };
    if (record.held) return { ...level, state: "HELD", message: heldMessage(this.name) };
    if (running !== undefined && !running.cut && this.#operations.type === undefined) {
      return { ...level, state: "RUNNING", endpoints: running.endpoints };
    }
    const refusal = this.#lives.refusal();
    if (refusal === undefined) return level;
    return { ...level, state: "FAILING", message: refusal.message, retryAfterMs: refusal.retryAfterMs ?? 0 };
  }

  /** Files and sandbox as an earlier atelet left them. `sandbox` is what the runtime says of it. */
  async adopt(sandbox: "running" | "paused" | "gone"): Promise<void> {
    const removed = await this.generations.load();
    if (removed.length > 0) this.#log.warn("removed what a crash left unfinished", { removed });
    this.#operations.interrupted();
    const was = this.record.sandbox;
    const newest = this.generations.newest();
    const saved =
      was !== undefined &&
      newest !== undefined &&
      newest.createdAtMs > was.startedAtMs &&
      newest.generation !== was.taggedGeneration;
    if (was !== undefined && (sandbox === "gone" || (sandbox === "paused" && saved))) {
      const why = saved ? undefined : await this.#sandbox.endingMeanwhile();
      await this.#sandbox.clear(was);
      if (saved) this.volumes.saved({ generation: newest.generation, epoch: newest.epoch });
      else this.#crashed(why ?? "its sandbox was gone when the atelet came back", why !== undefined);
      this.record.sandbox = undefined;
    } else if (was !== undefined) {
      await this.#sandbox.adopt(was, sandbox === "paused");
    } else await this.volumes.load(false);
    await this.#save({ durable: false });
    this.#uploader.schedule();
    this.volumes.flattenSoon();
  }

  /** Generations that are here without a record, after it was damaged or removed: they count, and the head decides. */
  async takeOver(): Promise<void> {
    await this.generations.load();
    await this.volumes.load(false);
    const found = this.generations.all();
    if (found.length === 0) return;
    // What was made under an epoch was made by the node that had it: this one had at least the highest of them.
    const priorEpoch = Math.max(...found.map(({ epoch }) => epoch));
    this.record.claim = { state: "needed", priorEpoch };
    this.#crashed(`its record on the node was lost; generation ${found[0]?.generation ?? 0} was found there`, false);
  }

  /** A grant: the caller has checked session and epoch. Durable when it resolves. */
  async assign(assignment: Assignment): Promise<void> {
    if (assignment.program.revision !== this.record.program.revision) this.#lives.forgive();
    await this.#terms.assign(assignment);
    const { running } = this.#sandbox;
    if (running?.cut !== true) return;
    await this.#sandbox.uncut(running);
    this.#watch.begin();
    this.#publish();
    this.#log.info("goes on under a new grant", { epoch: this.record.grant.epoch });
  }

  async hold(held: boolean): Promise<void> {
    try {
      await this.#terms.hold(held);
    } finally {
      this.#publish();
    }
  }

  /** What the volumes of its generations, and the live ones, are built upon. */
  origins(): string[] {
    const frozen = this.generations
      .all()
      .flatMap(({ generation }) => this.generations.local(generation)?.volumes ?? []);
    return [...this.record.volumes.stacks, ...frozen]
      .flatMap(({ layers }) => layers)
      .flatMap((layer) => ("origin" in layer ? [layer.origin] : []));
  }

  /** Reads what a restart of the machine may have damaged, unless there is something else to do. */
  async verifyCopies(): Promise<void> {
    for (const generation of this.generations.all()) {
      if (this.hasSandbox || this.#left) return;
      await verifyCopy(this.#sourceOptions(new Phases()), generation);
    }
  }

  noteActivity(nowMs: number): void {
    this.record.lastActivityMs = nowMs;
  }

  /** A router's resume. MOVED while the next one is the operator's to make. */
  async wake(): Promise<void> {
    if (this.record.upgradePending && !this.hasSandbox) throw upgradePending(this.name);
    await this.resume();
  }

  /** Resolves when the program is ready. Joins a resume under way; runs after a suspend under way. */
  async resume({ operationId = randomUUID(), from }: ResumeRequest = {}): Promise<void> {
    if (this.#operations.type === "TAG") await this.#operations.idle("TAG");
    if (this.#operations.type === "SUSPEND") await this.#operations.idle("SUSPEND");
    this.#refuseIfGone();
    if (this.record.held) throw new SubstrateError("HELD", heldMessage(this.name));
    if (this.#node.stopping.aborted) throw stopping(this.name);
    // A repeated call for the same operation joins it, or hears that it is done; another choice can do neither.
    const done = this.record.operations.some(({ id, result }) => id === operationId && result === "SUCCEEDED");
    const repeated = done || this.record.lastOperation?.id === operationId;
    if (this.#operations.type === "RESUME") {
      if (from !== undefined && !repeated) throw busy(this.name);
      await this.#operations.done();
      return;
    }
    if (this.#sandbox.running !== undefined) {
      if (from !== undefined && !repeated) throw alreadyRuns(this.name);
      this.#operations.instant("RESUME", operationId, "ASYNC");
      return;
    }
    // What was chosen once and came to pass must not give up what was saved since.
    const chosen = done ? undefined : from;
    if (chosen !== undefined) this.#lives.forgive();
    const refusal = this.#lives.refusal();
    if (refusal !== undefined) throw refusal;
    await this.#operations.run("RESUME", operationId, "ASYNC", (phases) => this.#resume(phases, chosen));
  }

  /** The last resort before the node's processes end: whatever its session, what runs is saved on the node. */
  async suspendAtShutdown(): Promise<void> {
    await this.#operations.idle();
    if (this.#sandbox.running !== undefined) {
      await this.#operations.run("SUSPEND", randomUUID(), "ASYNC", (phases) =>
        this.#saving.suspend(phases, { force: true, fidelity: "Memory" }),
      );
    }
    await this.#sandbox.settled();
  }

  /** The generation that holds the actor's state; undefined if it never ran. */
  async suspend(request: SuspendRequest): Promise<Generation | undefined> {
    const { operationId, mode, force, targetGeneration, fidelity = this.record.program.onSuspend } = request;
    if (this.#operations.type === "TAG") await this.#operations.idle("TAG");
    this.#refuseIfGone();
    if (fidelity === "Data" && this.record.program.volumeMounts.length === 0) throw nothingToSave(this.name);
    if (this.#operations.type === "RESUME") throw busy(this.name);
    if (this.#operations.type === "SUSPEND") await this.#operations.done();
    else if (this.#sandbox.running !== undefined && this.#isUnsaved(targetGeneration)) {
      await this.#operations.run("SUSPEND", operationId, mode, (phases) =>
        this.#saving.suspend(phases, { force, fidelity }),
      );
    } else this.#operations.instant("SUSPEND", operationId, mode);
    const newest = this.generations.newest();
    if (mode === "SYNC") await this.#flush(newest, operationId);
    return newest;
  }

  /**
   * Copies its state under the prefix of a Snapshot object. A running actor is saved first and goes on: without volumes
   * at once, with volumes after a suspend and a resume. A repeated call copies what the first one has saved.
   */
  async tag(target: StoredPrefix, operationId: string): Promise<Stored> {
    const uid = target.prefix.actorUid;
    const generation = this.#tagging.decided(uid) ?? (await this.#saveForTag(uid, operationId));
    const stored = await this.#tagging.copy(generation, target);
    await this.#tagging.forget(uid);
    return stored;
  }

  /** Its Snapshot object is gone. */
  async forgetTag(uid: string): Promise<void> {
    await this.#tagging.forget(uid);
  }

  /** Why the epoch cannot be given up now, or undefined (design.md §7 Release). */
  async unreleasable(): Promise<string | undefined> {
    if (this.#operations.type !== undefined) return "an operation is in progress";
    if (this.#sandbox.running !== undefined) return "its sandbox exists";
    if (this.record.volumes.unsaved) {
      return "its volumes hold what no snapshot has; resume it, so that it can be suspended";
    }
    // whoever has the actor next does not know of them
    if (this.#uploader.isCollecting) {
      this.#uploader.schedule();
      return "older generations are still being removed from the store";
    }
    await rewindHead(this.#sourceOptions(new Phases()));
    const newest = this.generations.newest();
    if (newest !== undefined && newest.generation <= this.record.floor) {
      return `it was started anew after generation ${newest.generation}, and nothing of it was saved since`;
    }
    if (newest?.storage.state !== "PENDING") return undefined;
    const head = await this.#node.store(this.record.program.store).head(this.#prefix);
    if ((head?.epoch ?? 0) > this.record.grant.epoch) return undefined;
    return `generation ${newest.generation} is not in the store yet`;
  }

  /**
   * Ends all that runs for it, the sandbox included, and removes its files from the node.
   * @returns when nothing of it writes to the store any more: that may take long if the store hangs.
   */
  async leave(): Promise<{ writes: Promise<void> }> {
    const reason = new SubstrateError("MOVED", `actor ${this.name} left this node`);
    if (this.#operations.type !== undefined) {
      await this.#node.runtime.delete(this.id);
      await this.#operations.idle();
    }
    if (this.#sandbox.running !== undefined) await this.#sandbox.stop(this.#sandbox.running);
    const writes = this.#uploader.stop(reason);
    await Promise.race([writes, delay(WRITES_END_MS, undefined, { ref: false })]);
    await this.#sandbox.settled();
    await this.volumes.close();
    this.#left = true;
    await this.files.close();
    return { writes };
  }

  async markDeleting(): Promise<void> {
    this.record.deleting = true;
    await this.#save({ durable: true });
  }

  /** Looks whether the sandbox still lives; called often. */
  async checkAlive(): Promise<void> {
    const { running } = this.#sandbox;
    if (running === undefined || this.#isOperating()) return;
    const ailment = await this.#sandbox.ailment();
    // Meanwhile an operation may have begun: it finds out by itself.
    if (this.#isOperating()) return;
    if (ailment !== undefined) await this.#sandbox.died(running, ailment);
    else if (!running.cut) this.#watch.tick(running.slot.nodeAddress, this.record.program.readyz);
  }

  /** design.md §7: the session ended. Cut and pause; a new grant lets it go on. */
  async cut(): Promise<void> {
    // What a resume under way starts belongs to the ended session too.
    await this.#operations.idle();
    const { running } = this.#sandbox;
    if (running === undefined || running.cut || this.record.grant.session === this.#node.session()) return;
    this.#watch.end();
    await this.#sandbox.cut(running);
    this.#publish();
    this.#log.warn("cut and paused: the node's session ended; waiting for a new grant");
  }

  #isOperating(): boolean {
    return this.#operations.type !== undefined;
  }

  get #prefix(): ActorPrefix {
    const { clusterUid, actor } = this.record;
    return { clusterUid, namespaceUid: actor.namespaceUid, actorUid: actor.uid };
  }

  async #resume(phases: Phases, from: StartFrom | undefined): Promise<void> {
    this.#publish();
    // What a person goes back behind must not reach the store meanwhile.
    const goOn = from?.kind === "generation" ? await this.#uploader.pause() : undefined;
    try {
      const { files } = this;
      await start({ ...this.#sourceOptions(phases), sandbox: this.#sandbox, lives: this.#lives, files, from });
      this.#watch.begin();
    } finally {
      goOn?.();
    }
  }

  /** Its readyz, asked while nothing else was under way; by now something may be. */
  #turnedBad(message: string): void {
    const { running } = this.#sandbox;
    if (running === undefined || running.cut || this.#isOperating()) return;
    this.#sandbox.died(running, message).catch((error: unknown) => {
      this.#log.error("ending a program whose readyz turned bad failed", { error });
    });
  }

  /** Whether a suspend is still to make that generation: a tag may have made one of the same number meanwhile. */
  #isUnsaved(targetGeneration: number): boolean {
    const newest = this.generations.newest()?.generation ?? 0;
    return (
      targetGeneration > newest || (targetGeneration === newest && this.record.sandbox?.taggedGeneration === newest)
    );
  }

  async #saveForTag(uid: string, operationId: string): Promise<Generation> {
    await this.#operations.idle();
    this.#refuseIfGone();
    if (this.#sandbox.running !== undefined) {
      await this.#operations.run("TAG", operationId, "ASYNC", (phases) => this.#tagRunning(phases, uid));
    } else {
      const [newest] = this.generations.usable();
      if (newest === undefined) throw nothingToTag(this.name);
      this.#tagging.decide(uid, newest);
      this.#operations.instant("TAG", operationId, "ASYNC");
    }
    await this.#save({ durable: false });
    const generation = this.#tagging.decided(uid);
    if (generation !== undefined) return generation;
    throw new SubstrateError("INTERNAL", `actor ${this.name} was saved for a tag, and that is lost already`);
  }

  async #tagRunning(phases: Phases, uid: string): Promise<void> {
    if (this.record.program.volumeMounts.length === 0) {
      await this.#saving.goOn(phases, uid);
      return;
    }
    await this.#saving.suspend(phases, { force: false, fidelity: "Memory" });
    const newest = this.generations.newest();
    if (newest !== undefined) this.#tagging.decide(uid, newest);
    try {
      // The next atelet, if this one ends now, must not take the new sandbox for the one that was recorded.
      await this.#save({ durable: false });
      await this.#resume(phases, undefined);
    } catch (error) {
      // The tag has what it wants; whoever needs the program wakes it, and hears why it can't be.
      this.#log.warn("did not start again after it was saved for a tag", { error });
    }
  }

  /** The second half of a sync suspend: only now its operation has a result. */
  async #flush(generation: Generation | undefined, operationId: string): Promise<void> {
    let failure: SubstrateError | undefined;
    try {
      if (generation !== undefined) await this.#uploader.flush(generation.generation);
    } catch (error) {
      failure = asSubstrateError(error);
    }
    this.#operations.settle(operationId, failure);
    await this.#save({ durable: false });
    if (failure !== undefined) throw failure;
  }

  /** @param byItself false when its node was at fault. */
  #crashed(message: string, byItself: boolean): void {
    const output = lastLines(this.files.log, this.record.sandbox?.outputFrom);
    const report = crashReport(message, this, output);
    this.record.crash = { message: report, timeMs: Date.now() };
    this.#node.metrics.crashes.inc();
    this.#watch.end();
    this.#lives.crashed(message, this.record.sandbox, byItself);
    this.#log.warn("crashed", { message, output });
  }

  #sourceOptions(phases: Phases): SourceOptions {
    return {
      node: this.#node,
      record: this.record,
      prefix: this.#prefix,
      generations: this.generations,
      volumes: this.volumes,
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

  /** Routers and the operator hear of what is so, also when it could not be written down. */
  async #save(options: { durable: boolean }): Promise<void> {
    try {
      await this.files.save(this.record, options);
    } finally {
      this.#publish();
      this.#changed(this);
    }
  }

  #publish(): void {
    if (this.#left) return;
    this.#node.routers.publish(this.route());
  }
}

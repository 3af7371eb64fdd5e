import { type Logger } from "@substrate/lib/log.ts";
import { Phases } from "@substrate/lib/phases.ts";
import { GenerationFolder } from "../generations/folder.ts";
import { type Stored } from "../store/snapshots.ts";
import { Generations } from "./generations.ts";
import { type VolumeUsage } from "../volumes/usage.ts";
import { ActorVolumes } from "../volumes/actor-volumes.ts";
import { type ActorContext } from "./actor-context.ts";
import { ActorSandbox, type ActorSandboxOptions } from "./actor-sandbox.ts";
import { adopt, type AdoptionOptions, takeOver } from "./adoption.ts";
import { crashReport } from "./crash-report.ts";
import { onlyDamaged } from "./damaged.ts";
import { EnvironmentFile } from "./environment.ts";
import { leave, type LeavingOptions, prepareToLeave } from "./leaving.ts";
import { Lives } from "./lives.ts";
import { lastLines } from "./output-log.ts";
import { describeNextStart } from "./next-start.ts";
import { type NodeContext } from "./node-context.ts";
import { Operations } from "./operations.ts";
import { warmKey } from "./placement.ts";
import { ReadyzWatch } from "./readyz-watch.ts";
import { type ActorFiles, type ActorRecord, type Generation, sandboxIdOf, type StoredPrefix } from "./record.ts";
import { upgradePending } from "./refusals.ts";
import { ResumeOperation, type ResumeRequest } from "./resume-operation.ts";
import { Route } from "./route.ts";
import { type RouteLevel } from "./route-level.ts";
import { Saving } from "./saving.ts";
import { verifyCopy } from "./source.ts";
import { SuspendOperation, type SuspendRequest } from "./suspend-operation.ts";
import { TagOperation } from "./tag-operation.ts";
import { Tagging } from "./tagging.ts";
import { type Assignment, Terms } from "./terms.ts";
import { Digests } from "./digests.ts";
import { Uploader } from "./uploader.ts";

export type ActorState = "SUSPENDED" | "RESUMING" | "RUNNING" | "SUSPENDING" | "CRASHED" | "DELETING";

/**
 * One actor on its node: at most one operation at a time, every one ending in a state that a restart finds again. The
 * rules of who may ask what are design.md §4; of when the node may act at all, §7.
 */
export class Actor {
  readonly record: ActorRecord;
  readonly generations: Generations;
  readonly volumes: ActorVolumes;
  readonly files: ActorFiles;
  readonly #node: NodeContext;
  readonly #sandbox: ActorSandbox;
  readonly #operations: Operations;
  readonly #tagging: Tagging;
  readonly #resume: ResumeOperation;
  readonly #suspend: SuspendOperation;
  readonly #tag: TagOperation;
  readonly #route: Route;
  readonly #parts: AdoptionOptions & LeavingOptions;
  readonly #lives: Lives;
  readonly #terms: Terms;
  readonly #watch: ReadyzWatch;
  readonly #log: Logger;
  readonly #changed: (actor: Actor) => void;

  constructor(node: NodeContext, record: ActorRecord, files: ActorFiles, changed: (actor: Actor) => void) {
    this.#node = node;
    this.record = record;
    this.files = files;
    this.#changed = changed;
    this.#log = node.log.child({ actor: this.name, uid: record.actor.uid });
    this.#lives = new Lives({
      record,
      name: this.name,
      over: () => {
        this.#route.publish();
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
    this.generations = new Generations(record, new GenerationFolder(files.generations, node.fileChecks), {
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
      kept: () => this.generations.kept(),
      rewriteFrozen: (volume, flattened, into) => this.generations.rewriteFrozen(volume, flattened, into),
      save: () => files.save(record, { durable: false }),
      log: this.#log,
    });
    const context: ActorContext = {
      node,
      name: this.name,
      record,
      files,
      prefix: {
        clusterUid: record.clusterUid,
        namespaceUid: record.actor.namespaceUid,
        actorUid: record.actor.uid,
      },
      generations: this.generations,
      volumes: this.volumes,
      log: this.#log,
      save: (options) => this.#save(options),
    };
    const digests = new Digests(context);
    const uploader = new Uploader({ ...context, digests });
    this.#tagging = new Tagging({
      ...context,
      digests,
      released: () => {
        uploader.dropReplaced();
        uploader.schedule();
      },
    });
    this.#operations = new Operations({
      record,
      metrics: node.metrics,
      log: this.#log,
      save: () => this.#save({ durable: false }),
      changed: () => {
        changed(this);
      },
      ended: () => {
        this.#route.publish();
      },
      during: (work) => node.urgency.during(work),
      fields: () => ({ epoch: record.grant.epoch, generation: this.generations.newest()?.generation ?? 0 }),
    });
    const crashed: ActorSandboxOptions["crashed"] = (message, { byItself }) => {
      this.#crashed(message, byItself);
    };
    this.#sandbox = new ActorSandbox({ ...context, idle: () => this.#operations.idle(), crashed });
    const acting = { ...context, operations: this.#operations, sandbox: this.#sandbox };
    this.#route = new Route({ ...acting, lives: this.#lives });
    this.#parts = { ...acting, uploader, route: this.#route, crashed };
    const saving = new Saving({
      ...this.#parts,
      digests,
      tagging: this.#tagging,
      lives: this.#lives,
      watch: this.#watch,
      closeGate: () => this.#route.closeGate(),
    });
    const resume = new ResumeOperation({ ...this.#parts, lives: this.#lives, watch: this.#watch });
    this.#resume = resume;
    this.#suspend = new SuspendOperation({ ...this.#parts, saving });
    this.#tag = new TagOperation({
      ...acting,
      tagging: this.#tagging,
      saving,
      resume: (phases) => resume.start(phases, undefined),
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

  /** Why nothing starts it by itself, where that is for want of an undamaged state; empty: something may. */
  get damage(): string {
    return onlyDamaged(this)?.message ?? "";
  }

  /** As last measured. */
  volumeUsage(): readonly VolumeUsage[] {
    return this.#sandbox.volumeUsage;
  }

  /** Of its sandbox, if it has one. */
  get sandboxId(): string {
    return this.#sandbox.running?.sandboxId ?? sandboxIdOf(this.record);
  }

  get slotIndex(): number | undefined {
    return this.record.sandbox?.slotIndex;
  }

  route(): RouteLevel {
    return this.#route.level();
  }

  /** Files and sandbox as an earlier atelet left them. `sandbox` is what the runtime says of it. */
  adopt(sandbox: "running" | "paused" | "gone"): Promise<void> {
    return adopt(this.#parts, sandbox);
  }

  /** Generations that are here without a record, after it was damaged or removed: they count, and the head decides. */
  takeOver(): Promise<void> {
    return takeOver(this.#parts);
  }

  /** A grant: the caller has checked session and epoch. Durable when it resolves. */
  async assign(assignment: Assignment): Promise<void> {
    const { program } = this.record;
    if (assignment.program.revision !== program.revision) {
      this.#lives.forgive();
      this.#node.warm.forget(warmKey(program));
    }
    await this.#terms.assign(assignment);
    const { running } = this.#sandbox;
    if (running?.cut !== true) return;
    await this.#sandbox.uncut(running);
    this.#watch.begin();
    this.#route.publish();
    this.#log.info("goes on under a new grant", { epoch: this.record.grant.epoch });
  }

  async hold(held: boolean): Promise<void> {
    try {
      await this.#terms.hold(held);
    } finally {
      this.#route.publish();
    }
  }

  /** What the volumes of its generations, and the live ones, are built upon. */
  origins(): string[] {
    const kept = this.generations.kept();
    return [...this.record.volumes.stacks, ...this.generations.frozen(), ...(kept === "unknown" ? [] : kept)]
      .flatMap(({ layers }) => layers)
      .flatMap((layer) => ("origin" in layer ? [layer.origin] : []));
  }

  /** Reads what a restart of the machine may have damaged, unless there is something else to do. */
  async verifyCopies(): Promise<void> {
    for (const generation of this.generations.all()) {
      if (this.hasSandbox || this.#route.ended) return;
      await verifyCopy({ ...this.#parts, phases: new Phases() }, generation);
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

  /** Resolves when the program is ready. */
  resume(request: ResumeRequest = {}): Promise<void> {
    return this.#resume.resume(request);
  }

  /** The generation that holds the actor's state; undefined if it never ran. */
  suspend(request: SuspendRequest): Promise<Generation | undefined> {
    return this.#suspend.suspend(request);
  }

  /** The last resort before the node's processes end. */
  suspendAtShutdown(): Promise<void> {
    return this.#suspend.atShutdown();
  }

  /** What only this node has goes to the store at once. */
  uploadAtShutdown(): Promise<void> {
    return this.#suspend.uploadAtShutdown();
  }

  /** The generation that only this node has; undefined if nothing would be lost with it. */
  get pendingGeneration(): number | undefined {
    const newest = this.generations.newest();
    return newest?.storage.state === "PENDING" ? newest.generation : undefined;
  }

  /** The node's disk is full: what only this node has is stored without the upload delay. */
  hurryUpload(): void {
    this.#parts.uploader.skipDelay();
  }

  /** A copy here of what is in the store goes. */
  async evictCopy(generation: number): Promise<void> {
    await this.generations.evict(generation);
    this.#changed(this);
  }

  /** Copies its state under the prefix of a Snapshot object. */
  tag(target: StoredPrefix, operationId: string): Promise<Stored> {
    return this.#tag.tag(target, operationId);
  }

  /** Its Snapshot object is gone. */
  async forgetTag(uid: string): Promise<void> {
    await this.#tagging.forget(uid);
  }

  /** Nothing begins for it any more, or why its epoch cannot be given up now (design.md §7 Release). */
  prepareToLeave(): Promise<string | undefined> {
    return prepareToLeave(this.#parts);
  }

  /** It could not be released after all. */
  stay(): void {
    this.#operations.reopen();
  }

  /**
   * Ends all that runs for it, the sandbox included, and removes its files from the node.
   * @returns when nothing of it writes to the store any more: that may take long if the store hangs.
   */
  leave(): Promise<{ writes: Promise<void> }> {
    return leave(this.#parts);
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
    this.#route.publish();
    this.#log.warn("cut and paused: the node's session ended; waiting for a new grant");
  }

  #isOperating(): boolean {
    return this.#operations.type !== undefined;
  }

  /** Its readyz, asked while nothing else was under way; by now something may be. */
  #turnedBad(message: string): void {
    const { running } = this.#sandbox;
    if (running === undefined || running.cut || this.#isOperating()) return;
    this.#sandbox.died(running, message).catch((error: unknown) => {
      this.#log.error("ending a program whose readyz turned bad failed", { error });
    });
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

  /** Routers and the operator hear of what is so, also when it could not be written down. */
  async #save(options: { durable: boolean }): Promise<void> {
    try {
      await this.files.save(this.record, options);
    } finally {
      this.#route.publish();
      this.#changed(this);
    }
  }
}

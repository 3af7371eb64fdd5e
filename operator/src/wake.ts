import { setTimeout as sleep } from "node:timers/promises";
import { type Actor, actors, type Template } from "@substrate/crds/index.ts";
import { asSubstrateError, type ErrorCode, SubstrateError } from "@substrate/lib/errors.ts";
import { type ActorReport, type Program } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { isConflict, isUnreachable, type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { Phases } from "@substrate/lib/phases.ts";
import { parseDurationMs } from "@substrate/lib/resources.ts";
import { type Trouble } from "./conditions.ts";
import { type Assignments } from "./assignments.ts";
import { type AteletLink } from "./atelet-link.ts";
import { type Atelets } from "./atelets.ts";
import { afterPromises, bookingBytes, candidates, type PlacementRequest, shortfall } from "./placement.ts";
import { type Choice, newest } from "./choices.ts";
import { type Detachment } from "./detachment.ts";
import { type OperatorMetrics } from "./metrics.ts";
import { type Plans, type StartPlan } from "./plans.ts";
import { type Residence } from "./residence.ts";
import { isAwake, isBehindFloor } from "./ties.ts";
import { UpgradeAttempts } from "./upgrade-attempts.ts";
import { type UpgradeTags } from "./upgrade-tags.ts";

export interface WakeResult {
  nodeName: string;
}

export interface WakerOptions {
  client: KubeClient;
  templates: Reflector<Template>;
  atelets: Atelets;
  assignments: Assignments;
  residence: Residence;
  detachment: Detachment;
  plans: Plans;
  upgradeTags: UpgradeTags;
  metrics: OperatorMetrics;
  log: Logger;
  /** A wake began to wait for room, found some, or ended. */
  onChange: (key: string) => void;
}

/** The node answers a resume by itself at wakeTimeout; our call outlives it by this. */
const resumeMarginMs = 5_000;
/** How long the actor, its node and its program may take to be read when its Template says nothing. */
const unreadDeadlineMs = 30_000;
/** A node that refused a call will soon be seen to be away; one that is away says when it is back. */
const awayPauseMs = 5_000;
const firstPauseMs = 50;
const lastPauseMs = 1_000;

/** What the loop may mend by reading the world again, each in its own way. */
type Retry = "read-again" | "epoch-void" | "no-room" | "unavailable";

const retries: Partial<Record<ErrorCode, Retry>> = {
  MOVED: "epoch-void",
  STALE_SESSION: "epoch-void",
  NO_ROOM: "no-room",
  NODE_UNAVAILABLE: "unavailable",
  NODE_LOST: "unavailable",
  SHUTTING_DOWN: "unavailable",
};

function retryOf(error: unknown): Retry | undefined {
  if (isConflict(error)) return "read-again";
  return error instanceof SubstrateError ? retries[error.code] : undefined;
}

/** What waits for room is told the numbers before those who asked have gone without them. */
const shareToTell = 0.1;
const mostToTellMs = 2_000;

/** One wake's memory between its attempts. */
interface Attempt {
  uid: string;
  key: string;
  operationId: string;
  choice: Choice;
  /** Epochs that their node called released or surpassed. */
  voidEpochs: Set<number>;
  refusedBy: Set<string>;
  /** The node that it is on. */
  nodeName: string | undefined;
  startMs: number;
  deadlineMs: number;
  phases: Phases;
}

function endMs({ startMs, deadlineMs }: Attempt, retry: Retry): number {
  return retry === "no-room" ? deadlineMs - Math.min(mostToTellMs, (deadlineMs - startMs) * shareToTell) : deadlineMs;
}

/** Brings actors to a node and wakes them there: one wake per actor, joined by everybody who asks meanwhile. */
export class Waker {
  readonly #options: WakerOptions;
  readonly #wakes = new Map<string, Promise<WakeResult>>();
  readonly #unplaced = new Map<string, Trouble>();
  /** Room of nodes that wakes under way will book: their figures know of it only when it is booked. */
  readonly #promises = new Map<string, { nodeName: string; bytes: number }>();
  readonly #upgrades = new UpgradeAttempts();

  constructor(options: WakerOptions) {
    this.#options = options;
  }

  /** Whether a wake of this actor is under way: then nobody else may release or grant it. */
  active(uid: string): boolean {
    return this.#wakes.has(uid);
  }

  /** Why a wake that is under way has found no place yet. */
  unplaced(uid: string): Trouble | undefined {
    return this.#unplaced.get(uid);
  }

  /**
   * Resolves when the actor's program is ready. Gives up after the Template's wakeTimeout. Throws SubstrateError:
   * UNKNOWN_ACTOR, HELD, TEMPLATE_MISSING, TEMPLATE_NOT_READY, SNAPSHOT_MISSING, SNAPSHOT_NOT_READY, SNAPSHOT_UNUSABLE, SECRET_MISSING, UPGRADE_REFUSED, NO_ROOM, NODE_UNAVAILABLE, NODE_LOST or what the node's resume failed with;
   * OPERATION_IN_PROGRESS for a choice of what to start from while the actor is awake already.
   * @param operationId is used unless a wake under way is joined.
   */
  wake(uid: string, key: string, operationId: string, choice: Choice = newest): Promise<WakeResult> {
    const existing = this.#wakes.get(uid);
    if (existing !== undefined) {
      if (choice.kind === "newest") return existing;
      const message = `Actor ${key}: another operation is in progress for this actor (a wake); try again when it is done`;
      return Promise.reject(new SubstrateError("OPERATION_IN_PROGRESS", message, { retryAfterMs: 1_000 }));
    }
    const wake = this.#logged(uid, key, operationId, choice).finally(() => {
      this.#wakes.delete(uid);
      this.#unplaced.delete(uid);
      this.#promises.delete(uid);
      this.#options.onChange(key);
    });
    this.#wakes.set(uid, wake);
    return wake;
  }

  async #logged(uid: string, key: string, operationId: string, choice: Choice): Promise<WakeResult> {
    const { log, metrics } = this.#options;
    const phases = new Phases();
    try {
      const result = await this.#run(uid, key, operationId, choice, phases);
      metrics.wake("ok", phases);
      log.info("wake", { actor: key, uid, operationId, node: result.nodeName, ...phases.fields() });
      return result;
    } catch (error) {
      const failure = this.#failure(key, error);
      metrics.wake(failure.code, phases);
      log.warn("wake failed", { actor: key, uid, operationId, error: failure, ...phases.fields() });
      throw failure;
    }
  }

  #failure(key: string, error: unknown): SubstrateError {
    if (isUnreachable(error)) {
      const message = `Actor ${key} cannot be placed while the API server does not answer: ${error.message}`;
      return new SubstrateError("NODE_UNAVAILABLE", message, { cause: error, retryAfterMs: 2_000 });
    }
    const ours = asSubstrateError(error);
    if (ours.message.includes(key)) return ours;
    const retry = ours.retryAfterMs === undefined ? {} : { retryAfterMs: ours.retryAfterMs };
    return new SubstrateError(ours.code, `Actor ${key}: ${ours.message}`, { cause: error, ...retry });
  }

  async #run(uid: string, key: string, operationId: string, choice: Choice, phases: Phases): Promise<WakeResult> {
    const startMs = performance.now();
    const attempt: Attempt = {
      uid,
      key,
      operationId,
      choice,
      voidEpochs: new Set(),
      refusedBy: new Set(),
      nodeName: undefined,
      startMs,
      // until its program is known
      deadlineMs: startMs + unreadDeadlineMs,
      phases,
    };
    for (let tries = 0; ; tries += 1) {
      try {
        return await this.#once(attempt);
      } catch (error) {
        const retry = retryOf(error);
        if (retry === undefined || performance.now() >= endMs(attempt, retry)) throw error;
        this.#options.log.debug("wake is tried again", { actor: key, uid, retry, error });
        // the first repetition after a conflict or a void epoch needs no patience
        if (tries > 0 || retry === "no-room" || retry === "unavailable") {
          await phases.run("pause", () => this.#pause(attempt, retry, tries));
        }
      }
    }
  }

  /** Until the world may be another one: a node that comes back, or is opened, ends it at once. */
  async #pause({ deadlineMs, nodeName }: Attempt, retry: Retry, tries: number): Promise<void> {
    const { atelets } = this.#options;
    const pauseMs = Math.min(lastPauseMs, firstPauseMs * 2 ** Math.min(tries, 10));
    const leftMs = Math.max(0, deadlineMs - performance.now());
    if (retry === "no-room") await atelets.nextChange(undefined, Math.min(pauseMs, leftMs));
    else if (retry === "unavailable" && nodeName !== undefined && !atelets.view(nodeName).synced) {
      await atelets.nextChange(nodeName, Math.min(awayPauseMs, leftMs));
    } else await sleep(Math.min(pauseMs, leftMs));
  }

  async #once(attempt: Attempt): Promise<WakeResult> {
    const { assignments, plans } = this.#options;
    const { phases } = attempt;
    const { actor, plan } = await phases.run("read", async () => {
      const read = await this.#readActor(attempt);
      attempt.deadlineMs = attempt.startMs + this.#deadlineMs(read);
      const found = (await this.#left(attempt, read)) ? await this.#readActor(attempt) : read;
      attempt.nodeName = found.status?.assignment?.nodeName;
      return { actor: found, plan: await plans.start(found, this.#report(attempt, found), attempt.choice) };
    });
    const { program } = plan;
    this.#refuseUpgrade(attempt, plan);
    attempt.deadlineMs = attempt.startMs + Number(program.wakeTimeoutMs);
    const granted = await phases.run("place", () => this.#granted(attempt, actor, program));
    const { link } = granted;
    try {
      await this.#keepState(attempt, granted.actor, link, plan);
      await phases.run("assign", () => assignments.assign(granted.actor, link, plan));
      await phases.run("resume", () => this.#resume(attempt, granted.actor, link, plan));
      this.#upgrades.over(attempt.uid);
    } catch (error) {
      await this.#learn(attempt, granted.actor, link, program, error);
      throw error;
    }
    return { nodeName: link.lease.nodeName };
  }

  /** What its node knows of it. A choice of what to start from is for a sleeping actor. */
  #report({ choice, key, uid }: Attempt, actor: Actor): ActorReport | undefined {
    const nodeName = actor.status?.assignment?.nodeName;
    if (nodeName === undefined) return undefined;
    // a sleeping actor's revision, and whether it sleeps, is the node's to say
    const report = this.#options.atelets.require(nodeName).report(uid);
    if (choice.kind === "newest" || report === undefined || !isAwake(report)) return report;
    const suspend = `kubectl ate suspend ${actor.metadata.name}`;
    const message = `Actor ${key} is awake: what it starts from can be chosen only while it sleeps; suspend it first ("${suspend}"), then ask again`;
    throw new SubstrateError("OPERATION_IN_PROGRESS", message);
  }

  #deadlineMs({ metadata, spec }: Actor): number {
    const template = this.#options.templates.get(metadata.namespace, spec.templateRef.name);
    return template === undefined ? unreadDeadlineMs : parseDurationMs(template.spec.wakeTimeout);
  }

  /** Lets it go from a node that is none for it any more, when another one is open and can have all that there is of it. */
  async #left(attempt: Attempt, actor: Actor): Promise<boolean> {
    const { atelets, detachment, log, residence } = this.#options;
    const nodeName = actor.status?.assignment?.nodeName ?? "";
    const departure = residence.departure(actor);
    if (departure?.elsewhere !== true) return false;
    const link = atelets.get(nodeName);
    const report = link?.report(attempt.uid);
    if (link === undefined || report === undefined || !(await detachment.leave(actor, link, report))) return false;
    log.info("actor leaves its node", { actor: attempt.key, node: nodeName, why: departure.why });
    return true;
  }

  /** Of a wake that nobody has chosen the start of. */
  #refuseUpgrade({ choice, key, uid }: Attempt, { program, upgrade }: StartPlan): void {
    if (choice.kind !== "newest") this.#upgrades.over(uid);
    else if (upgrade !== undefined) {
      const refusal = this.#upgrades.refusal(uid, key, program.revision);
      if (refusal !== undefined) throw refusal;
    }
  }

  /** Before another revision takes over. Meanwhile the node has the present one, and local wakes wait for us. */
  async #keepState(attempt: Attempt, actor: Actor, link: AteletLink, { upgrade }: StartPlan): Promise<void> {
    if (upgrade === undefined) return;
    const { assignments, log, upgradeTags } = this.#options;
    await assignments.assign(actor, link, upgrade.present);
    const tag = await attempt.phases.run("tag", () => upgradeTags.ensure(actor, upgrade, attempt.deadlineMs));
    log.info("upgrade", { actor: attempt.key, uid: attempt.uid, from: upgrade.from, tag });
  }

  async #readActor({ uid, key }: Attempt): Promise<Actor> {
    const [namespace, name = ""] = key.split("/");
    const actor = await this.#options.client.get(actors, name, namespace);
    if (actor?.metadata.uid !== uid)
      throw new SubstrateError("UNKNOWN_ACTOR", `Actor ${key} (uid ${uid}) does not exist`);
    if (actor.metadata.deletionTimestamp !== undefined) {
      throw new SubstrateError("UNKNOWN_ACTOR", `Actor ${key} is being deleted`);
    }
    if (actor.spec.state === "Suspended") {
      throw new SubstrateError("HELD", `Actor ${key} is kept asleep by spec.state: Suspended; set it to OnDemand`);
    }
    return this.#options.assignments.ensureFinalizer(actor);
  }

  /** The actor with a grant that its node can act on, written now unless it stands already. */
  async #granted(attempt: Attempt, actor: Actor, program: Program): Promise<{ actor: Actor; link: AteletLink }> {
    const { atelets, assignments, metrics } = this.#options;
    const assignment = actor.status?.assignment;
    if (assignment?.nodeName !== undefined) {
      const link = atelets.require(assignment.nodeName);
      const valid = assignment.session === link.lease.session && !attempt.voidEpochs.has(assignment.epoch);
      if (valid) return { actor, link };
      const written = await assignments.grant(actor, link.lease, atelets.highestEpoch(attempt.uid));
      metrics.grant("regrant");
      return { actor: written, link };
    }
    const link = this.#place(attempt, actor, program);
    const written = await assignments.grant(actor, link.lease, atelets.highestEpoch(attempt.uid));
    metrics.grant("placement");
    this.#setUnplaced(attempt, undefined);
    return { actor: written, link };
  }

  #place(attempt: Attempt, actor: Actor, program: Program): AteletLink {
    const { atelets, residence } = this.#options;
    const newest = actor.status?.snapshots?.[0];
    const hint = newest === undefined ? undefined : atelets.localNode(attempt.uid, newest.generation, newest.nodeName);
    const request: PlacementRequest = {
      bookingBytes: bookingBytes(Number(program.memoryBytes)),
      snapshotNode: hint === "" ? newest?.nodeName : hint,
      refusedBy: attempt.refusedBy,
      requirements: residence.requirements(actor),
    };
    const nodes = atelets.placementNodes();
    const [best] = candidates(afterPromises(nodes, this.#promises), request);
    if (best !== undefined) {
      this.#promises.set(attempt.uid, { nodeName: best.nodeName, bytes: request.bookingBytes });
      return atelets.require(best.nodeName);
    }
    const missing = shortfall(nodes, request);
    const { message } = missing;
    this.#setUnplaced(attempt, missing);
    // those that refused are asked again: room may have come
    attempt.refusedBy.clear();
    throw new SubstrateError("NO_ROOM", `Actor ${attempt.key} finds no place: ${message}`, { retryAfterMs: 5_000 });
  }

  async #resume(attempt: Attempt, actor: Actor, link: AteletLink, plan: StartPlan): Promise<void> {
    const { program, startFrom, upgrade } = plan;
    const remainingMs = Math.max(0, attempt.deadlineMs - performance.now());
    try {
      await link.call(
        (client) => client.resume.bind(client),
        {
          actorUid: attempt.uid,
          epoch: BigInt(actor.status?.assignment?.epoch ?? 0),
          operationId: attempt.operationId,
          startFrom,
        },
        { deadlineMs: Math.max(remainingMs, Number(program.wakeTimeoutMs)) + resumeMarginMs },
      );
    } catch (error) {
      if (upgrade !== undefined) this.#upgrades.failed(attempt.uid, program.revision, error);
      throw error;
    }
  }

  /** Draws what the next attempt needs from a node's refusal; gives the place back where another node may do. */
  async #learn(attempt: Attempt, actor: Actor, link: AteletLink, program: Program, error: unknown): Promise<void> {
    const { assignments, atelets, log, residence } = this.#options;
    switch (retryOf(error)) {
      case "epoch-void":
        attempt.voidEpochs.add(actor.status?.assignment?.epoch ?? 0);
        return;
      case "no-room": {
        attempt.refusedBy.add(link.lease.nodeName);
        this.#promises.delete(attempt.uid);
        const nodes = atelets.placementNodes();
        const request = {
          bookingBytes: bookingBytes(Number(program.memoryBytes)),
          snapshotNode: undefined,
          refusedBy: attempt.refusedBy,
          requirements: residence.requirements(actor),
        };
        const report = link.report(attempt.uid);
        const mustStay = report !== undefined && isBehindFloor(report);
        if (mustStay || candidates(nodes, request).length === 0) {
          // asked for the node that has it, too, which has no room
          this.#setUnplaced(attempt, { ...shortfall(nodes, request), reason: "NoRoom" });
          return;
        }
        try {
          await assignments.release(actor, link, false);
          await assignments.clear(actor);
        } catch (releaseError) {
          // unsaved state is there: the actor can only wait for room on this node
          log.info("actor stays on a node without room", { actor: keyOf(actor), error: releaseError });
        }
        return;
      }
      case "read-again":
      case "unavailable":
      case undefined:
        return;
    }
  }

  #setUnplaced({ uid, key }: Attempt, trouble: Trouble | undefined): void {
    if (this.#unplaced.get(uid)?.message === trouble?.message) return;
    if (trouble === undefined) this.#unplaced.delete(uid);
    else this.#unplaced.set(uid, trouble);
    this.#options.onChange(key);
  }
}

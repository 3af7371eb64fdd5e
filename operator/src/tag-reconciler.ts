import { randomUUID } from "node:crypto";
import { actors, type Snapshot, type SnapshotStatus, type Template } from "@substrate/crds/index.ts";
import { asSubstrateError, type ErrorCode, SubstrateError } from "@substrate/lib/errors.ts";
import { type StoredSnapshot } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type AteletLink } from "./atelet-link.ts";
import { type Atelets } from "./atelets.ts";
import { type BackgroundCalls, type FailedCall } from "./background-calls.ts";
import { type EventRecorder } from "./events.ts";
import { troubleOf } from "./hold.ts";
import { type OperatorMetrics } from "./metrics.ts";
import { type Origins } from "./origins.ts";
import { type ReconcileResult } from "./queue.ts";
import {
  completedConditions,
  failedConditions,
  pendingConditions,
  type SnapshotWriter,
  storedFacts,
} from "./snapshot-writer.ts";

export interface TagReconcilerOptions {
  client: KubeClient;
  templates: Reflector<Template>;
  atelets: Atelets;
  calls: BackgroundCalls<StoredSnapshot>;
  origins: Origins;
  writer: SnapshotWriter;
  events: EventRecorder;
  metrics: OperatorMetrics;
  log: Logger;
  enqueue: (key: string) => void;
}

/** A large image through a slow link; a repetition goes on where the node is. */
const tagDeadlineMs = 15 * 60_000;
const waitRetryMs = 2_000;

/** After these the state can never be kept under this tag; everything else may pass. */
const finalCodes: ReadonlySet<ErrorCode> = new Set([
  "INVALID",
  "CHECKPOINT_FAILED",
  "SNAPSHOT_DAMAGED",
  "STORE_FOREIGN",
]);

/** An actor that is gone may have been saved before, by an operator that could not write it down. */
const passingCodes: ReadonlySet<ErrorCode> = new Set([
  "NODE_UNAVAILABLE",
  "SHUTTING_DOWN",
  "STALE_TERM",
  "STORE_UNAVAILABLE",
  "TIMEOUT",
]);

/** Whom to ask, and for what. */
interface TagTarget {
  actorUid: string;
  templateName: string;
  link: AteletLink;
  store: string;
  /** 0: no node has the actor. */
  epoch: number;
  /** The actor is gone: only what is stored already counts. */
  orphaned: boolean;
}

/** "never": no repetition helps; "later": what is missing may come. */
type Look = { kind: "target"; target: TagTarget } | { kind: "never" | "later"; error: SubstrateError };

/** One tag: a Snapshot by which a user keeps an actor's present state. Its data belongs to it alone. */
export class TagReconciler {
  readonly #options: TagReconcilerOptions;

  constructor(options: TagReconcilerOptions) {
    this.#options = options;
  }

  /** For a tag that isn't being deleted. */
  async reconcile(known: Snapshot): Promise<ReconcileResult> {
    const state = known.status?.storageState;
    if (state !== undefined && state !== "SNAPSHOT_STORAGE_STATE_PENDING") return {};
    const { calls, writer } = this.#options;
    const { uid = "" } = known.metadata;
    const outcome = calls.of(uid);
    switch (outcome?.kind) {
      case "running":
        return {};
      case "done":
        await this.#completed(known, outcome.value);
        return {};
      case "failed":
        if (finalCodes.has(outcome.error.code)) {
          await this.#failed(known, outcome.error);
          return {};
        }
        if (performance.now() < outcome.retryAtMs) return this.#rests(known, outcome);
        break;
      case undefined:
        break;
    }
    const snapshot = await writer.addFinalizer(known);
    const look = await this.#look(snapshot);
    if (look.kind === "never") {
      await this.#failed(snapshot, look.error);
      return {};
    }
    if (look.kind !== "target") {
      await writer.status(snapshot, this.#facts(snapshot), pendingConditions(troubleOf(look.error)));
      return { requeueAfterMs: waitRetryMs };
    }
    await this.#start(snapshot, look.target, outcome);
    return {};
  }

  async #look(snapshot: Snapshot): Promise<Look> {
    const { atelets, client, templates } = this.#options;
    const { namespace = "" } = snapshot.metadata;
    const name = snapshot.spec.actorRef?.name ?? "";
    const never = (code: ErrorCode, why: string): Look => ({ kind: "never", error: new SubstrateError(code, why) });
    const later = (code: ErrorCode, why: string): Look => ({ kind: "later", error: new SubstrateError(code, why) });
    const about = `Actor ${namespace}/${name}`;
    const actor = await client.get(actors, name, namespace);
    const { actorUid: before, store: askedStore, templateName = "" } = snapshot.status ?? {};
    const isThere = actor !== undefined && actor.metadata.deletionTimestamp === undefined;
    if (before !== undefined && askedStore !== undefined && (!isThere || actor.metadata.uid !== before)) {
      const link = atelets.anyReachable();
      if (link === undefined) return later("NODE_UNAVAILABLE", `${about}: waits for any node to answer`);
      const target = { actorUid: before, templateName, link, store: askedStore, epoch: 0, orphaned: true };
      return { kind: "target", target };
    }
    if (!isThere) {
      const what = actor === undefined ? "does not exist" : "is being deleted";
      return never("UNKNOWN_ACTOR", `${about} ${what}: nothing of it can be kept`);
    }
    const assignment = actor.status?.assignment;
    if (assignment?.nodeName === undefined && (actor.status?.generation ?? 0) === 0) {
      return never("INVALID", `${about} has no state yet: it never ran; send it a request, then tag it again`);
    }
    const template = templates.get(namespace, actor.spec.templateRef.name);
    if (template === undefined) {
      const which = `Template ${namespace}/${actor.spec.templateRef.name}`;
      return later("TEMPLATE_MISSING", `${about}: ${which} does not exist, which names the store: create it`);
    }
    const link = assignment?.nodeName === undefined ? atelets.anyReachable() : atelets.get(assignment.nodeName);
    if (link?.view().synced !== true) {
      const which = assignment?.nodeName === undefined ? "any node" : `node ${assignment.nodeName}, which has it,`;
      return later("NODE_UNAVAILABLE", `${about}: waits for ${which} to answer`);
    }
    const epoch = assignment?.nodeName === undefined ? 0 : assignment.epoch;
    const { uid: actorUid = "" } = actor.metadata;
    const { store } = template.spec.snapshots;
    const target = { actorUid, templateName: template.metadata.name, link, store, epoch, orphaned: false };
    return { kind: "target", target };
  }

  /** @param failure of the try before: it stays said until this one has ended */
  async #start(snapshot: Snapshot, target: TagTarget, failure: FailedCall | undefined): Promise<void> {
    const { writer } = this.#options;
    const { actorUid, templateName, link, store } = target;
    const facts: Partial<SnapshotStatus> = {
      ...this.#facts(snapshot),
      actorUid,
      templateName,
      store,
      nodeName: link.lease.nodeName,
    };
    const what = `Actor ${snapshot.spec.actorRef?.name ?? ""} is being saved by node ${link.lease.nodeName}`;
    const trouble = failure === undefined ? ({ reason: "Saving", message: what } as const) : troubleOf(failure.error);
    // before the call: whoever deletes the object must know that there may be something in that store
    if (!(await writer.status(snapshot, facts, pendingConditions(trouble)))) return;
    const { calls, enqueue } = this.#options;
    const run = (signal: AbortSignal): Promise<StoredSnapshot> => this.#tag(snapshot, target, signal);
    calls.start(snapshot.metadata.uid ?? "", run, () => {
      enqueue(keyOf(snapshot));
    });
  }

  async #tag(snapshot: Snapshot, target: TagTarget, signal: AbortSignal): Promise<StoredSnapshot> {
    const { log, metrics, origins } = this.#options;
    const { link, epoch } = target;
    const { namespace = "" } = snapshot.metadata;
    const name = snapshot.spec.actorRef?.name ?? "";
    const operationId = randomUUID();
    const startMs = performance.now();
    const about = { snapshot: keyOf(snapshot), actor: `${namespace}/${name}`, operationId, node: link.lease.nodeName };
    try {
      const prefix = await origins.prefix(snapshot, target.store);
      const actor = { uid: target.actorUid, namespace, name, namespaceUid: prefix.namespaceUid };
      const { stored } = await link.call(
        (client) => client.tag.bind(client),
        { actor, epoch: BigInt(epoch), target: prefix, operationId },
        { deadlineMs: tagDeadlineMs, signal },
      );
      if (stored === undefined) throw new SubstrateError("INTERNAL", `node ${about.node} did not say what it stored`);
      metrics.operation("tag", "ok");
      log.info("tag", { ...about, generation: stored.generation, totalMs: performance.now() - startMs });
      return stored;
    } catch (error) {
      const failure = asSubstrateError(error);
      metrics.operation("tag", failure.code);
      log.warn("tag failed", { ...about, error });
      if (!target.orphaned || passingCodes.has(failure.code)) throw failure;
      throw new SubstrateError("INVALID", `Actor ${about.actor} was deleted before it was saved`, { cause: error });
    }
  }

  #facts({ status }: Snapshot): Partial<SnapshotStatus> {
    return { ...status, owner: "SNAPSHOT_OWNER_TAG", storageState: "SNAPSHOT_STORAGE_STATE_PENDING" };
  }

  async #rests(snapshot: Snapshot, { error, retryAtMs }: FailedCall): Promise<ReconcileResult> {
    const { events, writer } = this.#options;
    const trouble = troubleOf(error);
    const before = snapshot.status?.conditions?.find(({ type }) => type === "Ready");
    await writer.status(snapshot, this.#facts(snapshot), pendingConditions(trouble));
    if (before?.reason !== trouble.reason) {
      const message = `${trouble.reason}: ${trouble.message}; it is tried again`;
      events.record(snapshot, { type: "Warning", reason: "FailedTag", message });
    }
    return { requeueAfterMs: Math.max(0, retryAtMs - performance.now()) };
  }

  async #completed(snapshot: Snapshot, stored: StoredSnapshot): Promise<void> {
    const facts = { ...this.#facts(snapshot), ...storedFacts(stored) };
    delete facts.nodeName;
    const message = `Generation ${stored.generation} of Actor ${snapshot.spec.actorRef?.name ?? ""} is kept; actors can begin from it`;
    await this.#options.writer.status(snapshot, facts, completedConditions(message));
    this.#options.calls.forget(snapshot.metadata.uid ?? "");
  }

  /** The spec cannot be changed: only another object can do better. */
  async #failed(snapshot: Snapshot, error: SubstrateError): Promise<void> {
    const { calls, events, writer } = this.#options;
    const trouble = troubleOf(error);
    const message = `${trouble.message}. It is not tried again: delete this Snapshot and make another one`;
    const facts = { ...this.#facts(snapshot), storageState: "SNAPSHOT_STORAGE_STATE_FAILED" } as const;
    const written = await writer.status(snapshot, facts, failedConditions({ ...trouble, message }));
    if (written) events.record(snapshot, { type: "Warning", reason: "SnapshotFailed", message });
    calls.forget(snapshot.metadata.uid ?? "");
  }
}

import { type Actor, type Snapshot, snapshots, type SnapshotStatus, type Template } from "@substrate/crds/index.ts";
import { type Program, type StoredPrefix } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { isAlreadyExists, isConflict, type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type ConditionFacts, isoSeconds, type Trouble } from "./conditions.ts";
import { type Atelets } from "./atelets.ts";
import { type Environments, templateOwner } from "./environment.ts";
import { type EventRecorder } from "./events.ts";
import { type Freshest } from "./freshest.ts";
import { troubleOf } from "./hold.ts";
import { type Origins } from "./origins.ts";
import { type ProgramPart } from "./program.ts";
import { reasonOf } from "./reasons.ts";
import { type Residence } from "./residence.ts";
import {
  completedConditions,
  failedConditions,
  pendingConditions,
  snapshotFinalizer,
  type SnapshotWriter,
  storedFacts,
} from "./snapshot-writer.ts";
import { type ReadyTrial, type Trials } from "./trials.ts";
import { Rest } from "./rest.ts";

export interface GoldenOptions {
  client: KubeClient;
  snapshots: Freshest<Snapshot>;
  known: Reflector<Snapshot>;
  actors: Reflector<Actor>;
  atelets: Atelets;
  residence: Residence;
  origins: Origins;
  writer: SnapshotWriter;
  trials: Trials;
  environments: Environments;
  events: EventRecorder;
  /** A Template's golden snapshot has to be looked at again. */
  enqueue: (templateKey: string) => void;
}

/** What a Template's status says of its golden snapshot. */
export interface GoldenResult {
  condition?: ConditionFacts;
  /** Actors may begin from it. */
  name?: string;
  requeueAfterMs?: number;
}

const noNodeRetryMs = 10_000;
const againMs = 1_000;
const inUseRetryMs = 30_000;
const firstRestMs = 60_000;
const lastRestMs = 60 * 60_000;

function goldenName(templateName: string, revision: string): string {
  return `${templateName}-golden-${revision}`;
}

/**
 * Golden snapshots: what a revision's trial run was when it had answered its readyz, as a Snapshot object of the
 * Template. New actors begin from it instead of starting cold. Nothing here ever makes a Template unready.
 */
export class Golden {
  readonly #options: GoldenOptions;
  /** By the Template's uid: failures in a row, and when the next try is due. */
  readonly #rests = new Map<string, { failures: number; rest: Rest }>();

  constructor(options: GoldenOptions) {
    this.#options = options;
  }

  /**
   * Where the first trial run of a revision is to be kept; undefined where none is wanted, or there is an object
   * already. `nodeName` is the node that is to run it. Throws KubeError, and SubstrateError when the prefix cannot be named.
   */
  async prepare(
    template: Template,
    part: ProgramPart,
    revision: string,
    nodeName: string,
  ): Promise<StoredPrefix | undefined> {
    if (refusal(template, part) !== undefined) return undefined;
    const snapshot = this.#find(template, revision) ?? (await this.#create(template, revision));
    if (snapshot === undefined || !isOf(snapshot, template, revision)) return undefined;
    if (snapshot.metadata.deletionTimestamp !== undefined) return undefined;
    const state = snapshot.status?.storageState;
    if (state !== undefined && state !== "SNAPSHOT_STORAGE_STATE_PENDING") return undefined;
    const { origins, writer } = this.#options;
    const ours = await writer.addFinalizer(snapshot);
    const { store } = template.spec.snapshots;
    const message = `Revision ${revision} of Template ${template.metadata.name} is being run to be kept`;
    const facts = { ...pendingFacts(template, revision), nodeName };
    // before the run: whoever deletes the object must know that there may be something in that store
    const written = await writer.status(ours, facts, pendingConditions({ reason: "Saving", message }));
    return written ? origins.prefix(ours, store) : undefined;
  }

  /** Writes down what became of a run for which `prepare` named the place. */
  async settle(template: Template, revision: string, { golden, goldenFailure }: ReadyTrial): Promise<void> {
    const { events, writer } = this.#options;
    const { name, uid = "" } = template.metadata;
    const snapshot = this.#find(template, revision);
    if (snapshot === undefined || !isOf(snapshot, template, revision)) return;
    if (snapshot.status?.storageState !== "SNAPSHOT_STORAGE_STATE_PENDING") return;
    const facts = pendingFacts(template, revision);
    if (golden !== undefined) {
      this.#rests.delete(uid);
      const message = `New actors of Template ${name} begin from it`;
      await writer.status(snapshot, { ...facts, ...storedFacts(golden), revision }, completedConditions(message));
      return;
    }
    const why = goldenFailure === "" ? "the node does not say what it kept" : goldenFailure;
    const failures = (this.#rests.get(uid)?.failures ?? 0) + 1;
    const restMs = Math.min(lastRestMs, firstRestMs * 2 ** Math.min(failures - 1, 20));
    this.#rests.set(uid, { failures, rest: new Rest(restMs) });
    const failed = { ...facts, storageState: "SNAPSHOT_STORAGE_STATE_FAILED" } as const;
    await writer.status(snapshot, failed, failedConditions({ reason: "GoldenFailed", message: why }));
    const message = `Revision ${revision} runs, but could not be kept as a golden snapshot: ${why}`;
    events.record(template, { type: "Warning", reason: "GoldenFailed", message });
  }

  /** Its trial failed: what no run has filled by now would stay PENDING. The next trial has an object of its own. */
  async abandon(template: Template): Promise<void> {
    const { namespace, name, uid } = template.metadata;
    for (const snapshot of this.#options.known.list()) {
      const { metadata, spec, status } = snapshot;
      const isOurs = metadata.namespace === namespace && spec.templateRef?.name === name && ownerUid(snapshot) === uid;
      const state = status?.storageState ?? "SNAPSHOT_STORAGE_STATE_PENDING";
      if (!isOurs || metadata.deletionTimestamp !== undefined) continue;
      if (state === "SNAPSHOT_STORAGE_STATE_PENDING") await this.#delete(snapshot);
    }
  }

  /** For a revision that is Ready: takes its golden snapshot, anew where it is of no use any more; removes old ones. */
  async reconcile(template: Template, part: ProgramPart, program: Program): Promise<GoldenResult> {
    const { revision } = program;
    const refused = refusal(template, part);
    const restMs = await this.#removeOthers(template, refused === undefined ? revision : undefined);
    const result = refused ?? (await this.#converge(template, part, program));
    if (restMs === undefined) return result;
    return { ...result, requeueAfterMs: Math.min(restMs, result.requeueAfterMs ?? restMs) };
  }

  forget(templateUid: string): void {
    this.#rests.delete(templateUid);
  }

  async #converge(template: Template, part: ProgramPart, program: Program): Promise<GoldenResult> {
    const { atelets } = this.#options;
    const { revision } = program;
    const snapshot = this.#find(template, revision);
    const name = goldenName(template.metadata.name, revision);
    if (snapshot === undefined) return this.#take(template, part, program);
    if (snapshot.metadata.deletionTimestamp !== undefined) {
      return no({ reason: "GoldenPending", message: `Snapshot ${name} is being deleted; another one is taken then` });
    }
    if (!isOf(snapshot, template, revision)) {
      const message = `Snapshot ${name} is not this Template's golden snapshot: delete it to let one be taken`;
      return no({ reason: "NameTaken", message });
    }
    switch (snapshot.status?.storageState) {
      case "SNAPSHOT_STORAGE_STATE_COMPLETED": {
        const runtime = snapshot.status.sandbox?.runtime ?? "";
        const runtimes = atelets.runtimes();
        if (runtimes.size === 0 || runtimes.has(runtime)) {
          const message = `New actors begin from Snapshot ${name}`;
          return { name, condition: { type: "Golden", status: "True", reason: "GoldenTaken", message } };
        }
        await this.#delete(snapshot);
        const message = `Snapshot ${name} is of runtime ${runtime}, which no node has any more; another one is taken`;
        return no({ reason: "GoldenPending", message });
      }
      case "SNAPSHOT_STORAGE_STATE_FAILED":
      case "SNAPSHOT_STORAGE_STATE_LOST": {
        const why = snapshot.status.conditions?.find(({ type }) => type === "Ready")?.message ?? "no reason is known";
        const rest = this.#rests.get(template.metadata.uid ?? "")?.rest;
        const leftMs = rest?.leftMs ?? 0;
        if (leftMs === 0) await this.#delete(snapshot);
        const next =
          rest === undefined || leftMs === 0
            ? "it is taken again now"
            : `it is taken again at ${isoSeconds(rest.untilUnixMs)}`;
        return {
          ...no({ reason: "GoldenFailed", message: `${why}; ${next}` }),
          requeueAfterMs: Math.max(leftMs, 1_000),
        };
      }
      case "SNAPSHOT_STORAGE_STATE_PENDING":
      case undefined:
        return this.#take(template, part, program);
    }
  }

  /** Another run of a program that has answered its readyz before. */
  async #take(template: Template, part: ProgramPart, program: Program): Promise<GoldenResult> {
    const { enqueue, environments, residence, trials } = this.#options;
    const environment = () => environments.resolve(templateOwner(template), part.env);
    const { link, missing } = residence.trialNode(template, part.memoryBytes);
    if (link === undefined) {
      const message = `No node takes a run now that could be kept: ${missing}`;
      return { ...no({ reason: "NoNode", message }), requeueAfterMs: noNodeRetryMs };
    }
    const { revision } = program;
    const key = `${template.metadata.uid ?? ""}/${revision}/golden`;
    let golden: StoredPrefix | undefined;
    if (trials.wouldStart(key)) {
      try {
        golden = await this.prepare(template, part, revision, link.lease.nodeName);
      } catch (error) {
        if (isConflict(error)) throw error;
        return { ...no(troubleOf(error)), requeueAfterMs: noNodeRetryMs };
      }
      // it was deleted or completed a moment ago
      if (golden === undefined) return { ...pending(revision), requeueAfterMs: againMs };
    }
    const outcome = trials.ensure(key, link, { program, environment, golden }, () => {
      enqueue(keyOf(template));
    });
    switch (outcome?.kind) {
      case undefined:
      case "running":
        return pending(revision);
      case "ready":
        await this.settle(template, revision, outcome);
        trials.forget(key);
        return { ...pending(revision), requeueAfterMs: 0 };
      case "failed": {
        const { error, rest } = outcome;
        const next = rest === undefined ? "" : `; it is tried again at ${isoSeconds(rest.untilUnixMs)}`;
        const trouble = { reason: reasonOf(error.code), message: `Its run to be kept failed: ${error.message}${next}` };
        if (rest === undefined) return no(trouble);
        return { ...no(trouble), requeueAfterMs: rest.leftMs };
      }
    }
  }

  /** Those of replaced revisions go once no actor could need them; what is left is looked at again. */
  async #removeOthers(template: Template, current: string | undefined): Promise<number | undefined> {
    const { actors, known } = this.#options;
    const { name, namespace, uid = "" } = template.metadata;
    const others = known
      .list()
      .filter(({ metadata, spec }) => metadata.namespace === namespace && spec.templateRef?.name === name)
      .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
      .filter((snapshot) => snapshot.spec.templateRef?.revision !== current || ownerUid(snapshot) !== uid);
    let kept = 0;
    for (const snapshot of others) {
      const needed = actors
        .list()
        .filter(({ metadata, spec }) => metadata.namespace === namespace && spec.templateRef.name === name)
        .some((actor) => runsUnsaved(actor, snapshot.spec.templateRef?.revision));
      if (needed && ownerUid(snapshot) === uid) kept += 1;
      else await this.#delete(snapshot);
    }
    return kept === 0 ? undefined : inUseRetryMs;
  }

  #find(template: Template, revision: string): Snapshot | undefined {
    const { name, namespace = "" } = template.metadata;
    return this.#options.snapshots.get(`${namespace}/${goldenName(name, revision)}`);
  }

  async #create(template: Template, revision: string): Promise<Snapshot | undefined> {
    const { client } = this.#options;
    const { name, namespace = "", uid = "" } = template.metadata;
    try {
      return await client.create(snapshots, {
        metadata: {
          name: goldenName(name, revision),
          namespace,
          finalizers: [snapshotFinalizer],
          ownerReferences: [{ apiVersion: template.apiVersion, kind: template.kind, name, uid }],
        },
        spec: { templateRef: { name, revision } },
      });
    } catch (error) {
      // the watch has not brought it yet
      if (isAlreadyExists(error)) return client.get(snapshots, goldenName(name, revision), namespace);
      throw error;
    }
  }

  async #delete({ metadata: { name, namespace, uid = "" } }: Snapshot): Promise<void> {
    try {
      await this.#options.client.delete(snapshots, name, namespace, { uid });
    } catch (error) {
      // another one has its name by now
      if (!isConflict(error)) throw error;
    }
  }
}

/** What is said where no golden snapshot is to be taken; undefined where one is. */
function refusal({ spec }: Template, { env }: ProgramPart): GoldenResult | undefined {
  if (spec.snapshots.golden === "Never") return {};
  if (!env.some(({ valueFrom }) => valueFrom !== undefined)) return undefined;
  const message = "The containers' env names Secrets, which no saved image of a Template may have: actors start cold";
  return no({ reason: "HasSecrets", message });
}

function no({ reason, message }: Trouble): GoldenResult {
  return { condition: { type: "Golden", status: "False", reason, message } };
}

function pending(revision: string): GoldenResult {
  return no({ reason: "GoldenPending", message: `Revision ${revision} is being run to be kept` });
}

function pendingFacts({ metadata, spec }: Template, revision: string): Partial<SnapshotStatus> {
  return {
    owner: "SNAPSHOT_OWNER_TEMPLATE",
    storageState: "SNAPSHOT_STORAGE_STATE_PENDING",
    templateName: metadata.name,
    revision,
    store: spec.snapshots.store,
  };
}

function ownerUid({ metadata }: Snapshot): string | undefined {
  return metadata.ownerReferences?.[0]?.uid;
}

function isOf(snapshot: Snapshot, template: Template, revision: string): boolean {
  const { templateRef } = snapshot.spec;
  const named = templateRef?.name === template.metadata.name && templateRef.revision === revision;
  return named && ownerUid(snapshot) === template.metadata.uid;
}

/** Whether it may have begun from the revision's golden snapshot and has no state of its own to go back to. */
function runsUnsaved({ metadata, status }: Actor, revision: string | undefined): boolean {
  return (
    metadata.deletionTimestamp === undefined &&
    (status?.generation ?? 0) === 0 &&
    status?.assignment?.nodeName !== undefined &&
    status.revision === revision
  );
}

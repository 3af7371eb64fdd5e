import { randomUUID } from "node:crypto";
import { type Actor, actors, type Snapshot, snapshots, type Template, templates } from "@substrate/crds/index.ts";
import { isConflict, isUnreachable, type KubeClient, keyOf } from "@substrate/lib/kube/client.ts";
import { LeaseHolder, unixSeconds } from "@substrate/lib/kube/lease.ts";
import { Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Lease, leases, type Node, nodes } from "@substrate/lib/kube/types.ts";
import { type StoredSnapshot } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { clientCredentials, type TlsSource } from "@substrate/lib/rpc/tls.ts";
import { type Registry } from "prom-client";
import { ActorReconciler } from "./actor-reconciler.ts";
import { Assignments } from "./assignments.ts";
import { Atelets, ateletSelector } from "./atelets.ts";
import { BackgroundCalls } from "./background-calls.ts";
import { Briefings } from "./briefings.ts";
import { Choices } from "./choices.ts";
import { Deletion } from "./deletion.ts";
import { Environments } from "./environment.ts";
import { Detachment } from "./detachment.ts";
import { EventRecorder } from "./events.ts";
import { Freshest } from "./freshest.ts";
import { Golden } from "./golden.ts";
import { Hold } from "./hold.ts";
import { KeepRunning } from "./keep-running.ts";
import { Leaders, apiAddressAnnotation, operatorLabels, operatorLease, operatorSelector } from "./leaders.ts";
import { Leadership } from "./leader.ts";
import { OperatorMetrics } from "./metrics.ts";
import { NamespaceGuard } from "./namespace-guard.ts";
import { Operations } from "./operations.ts";
import { isUnstartedFork, Origins } from "./origins.ts";
import { Plans } from "./plans.ts";
import { type Reconcile, ReconcileQueue } from "./queue.ts";
import { Residence } from "./residence.ts";
import { Revisions } from "./revisions.ts";
import { SnapshotReconciler } from "./snapshot-reconciler.ts";
import { ownsPrefix, SnapshotWriter } from "./snapshot-writer.ts";
import { StoredDeletion } from "./stored-deletion.ts";
import { Suspender } from "./suspender.ts";
import { TagReconciler } from "./tag-reconciler.ts";
import { TemplateReconciler } from "./template-reconciler.ts";
import { Trials } from "./trials.ts";
import { UpgradeTags } from "./upgrade-tags.ts";
import { Waker } from "./wake.ts";

export interface OperatorOptions {
  client: KubeClient;
  namespace: string;
  /** `host:port` of the WakeService, for the Lease. */
  address: string;
  /** `host:port` of the aggregated API, likewise. */
  apiAddress: string;
  /** Root of the cluster's data in the stores. */
  clusterUid: string;
  tls: TlsSource;
  leaseDurationMs: number;
  registry: Registry;
  log: Logger;
  /** What beside actors, Templates and Snapshots is the leader's work; the signal aborts when it leads no more. */
  whileLeading: (signal: AbortSignal) => void;
  /** A node that doesn't answer is lost when its Lease was not renewed for so long, either. */
  nodeLostAfterMs: number;
}

interface Cache {
  actors: Reflector<Actor>;
  templates: Reflector<Template>;
  snapshots: Reflector<Snapshot>;
  nodes: Reflector<Node>;
  leases: Reflector<Lease>;
  operators: Reflector<Lease>;
}

type Kind = "Template" | "Actor" | "Snapshot";

const concurrency: Record<Kind, number> = { Template: 4, Actor: 16, Snapshot: 8 };

/** The operator's parts wired together: watches and reports only enqueue keys, one queue per kind converges them. */
export class Operator {
  readonly actors: Reflector<Actor>;
  readonly atelets: Atelets;
  readonly leadership: Leadership;
  readonly leaders: Leaders;
  readonly waker: Waker;
  readonly operations: Operations;
  readonly choices: Choices;
  readonly #cache: Cache;
  readonly #queues: Record<Kind, ReconcileQueue>;
  readonly #options: OperatorOptions;
  readonly #metrics: OperatorMetrics;
  readonly #residence: Residence;
  readonly #namespaceGuard: NamespaceGuard;
  #leading = false;

  constructor(options: OperatorOptions) {
    const { client, namespace, log, registry, clusterUid } = options;
    this.#options = options;
    this.#metrics = new OperatorMetrics(registry);
    this.#cache = {
      actors: new Reflector(client, actors, { log }),
      templates: new Reflector(client, templates, { log }),
      snapshots: new Reflector(client, snapshots, { log }),
      nodes: new Reflector(client, nodes, { log }),
      leases: new Reflector(client, leases, { log, namespace, labelSelector: ateletSelector }),
      operators: new Reflector(client, leases, { log, namespace, labelSelector: operatorSelector }),
    };
    this.actors = this.#cache.actors;
    const newHolder = (): LeaseHolder =>
      new LeaseHolder({
        client,
        namespace,
        name: operatorLease,
        identity: randomUUID(),
        durationMs: options.leaseDurationMs,
        labels: operatorLabels,
        annotations: { "substrate.run/address": options.address, [apiAddressAnnotation]: options.apiAddress },
        takeOver: "WhenExpired",
        // the atelets refuse terms below the highest they have heard, also after somebody has deleted the Lease
        firstTerm: unixSeconds,
        log,
      });
    this.leadership = new Leadership(newHolder, options.leaseDurationMs, log);
    this.leaders = new Leaders(this.#cache.operators, namespace, () => {
      this.leadership.kick();
    });
    const events = new EventRecorder(client, log);
    this.atelets = new Atelets({
      leases: this.#cache.leases,
      nodes: this.#cache.nodes,
      credentials: clientCredentials(options.tls),
      leader: () => this.leadership.proof(),
      log,
      lostAfterMs: options.nodeLostAfterMs,
      onActor: ({ namespace: where, name }) => {
        this.#queues.Actor.add(`${where}/${name}`);
      },
      onNode: (nodeName) => {
        this.#nodeChanged(nodeName);
      },
      onTrouble: (about, facts) => {
        events.record(about, facts);
      },
    });
    const freshActors = new Freshest(this.#cache.actors);
    this.#residence = new Residence(this.atelets, this.#cache.templates);
    const common = {
      client,
      templates: this.#cache.templates,
      atelets: this.atelets,
      residence: this.#residence,
      metrics: this.#metrics,
      log,
    };
    const onChange = (key: string): void => {
      this.#queues.Actor.add(key);
    };
    this.#namespaceGuard = new NamespaceGuard(client, namespace, events, log);
    const revisions = new Revisions(client);
    const assignments = new Assignments(client, freshActors, clusterUid, () => this.leadership.proof());
    const origins = new Origins(client, clusterUid);
    const environments = new Environments(client);
    const plans = new Plans({ templates: this.#cache.templates, revisions, origins, environments });
    const upgradeTags = new UpgradeTags(client, this.#cache.snapshots);
    const { snapshots: knownSnapshots, templates: knownTemplates } = this.#cache;
    const detachment = new Detachment({ assignments, templates: knownTemplates, snapshots: knownSnapshots });
    this.waker = new Waker({ ...common, assignments, detachment, plans, upgradeTags, onChange });
    this.choices = new Choices(client, origins, ({ metadata, status }) =>
      this.atelets.report(status?.assignment?.nodeName ?? "", metadata.uid ?? ""),
    );
    const suspender = new Suspender({ ...common, waker: this.waker });
    this.operations = new Operations({ suspender, waker: this.waker, metrics: this.#metrics, log, onChange });
    const actorReconciler = new ActorReconciler({
      ...common,
      actors: freshActors,
      snapshots: this.#cache.snapshots,
      assignments,
      deletion: new Deletion({ assignments, atelets: this.atelets, events, log }),
      plans,
      waker: this.waker,
      operations: this.operations,
      hold: new Hold(this.operations),
      detachment,
      briefings: new Briefings({ plans, environments, assignments }),
      keepRunning: new KeepRunning(this.operations),
      events,
      enqueueSnapshot: (key) => {
        this.#queues.Snapshot.add(key);
      },
    });
    const freshSnapshots = new Freshest(this.#cache.snapshots);
    const writer = new SnapshotWriter({ client, snapshots: freshSnapshots, metrics: this.#metrics });
    const trials = new Trials({ log });
    const enqueueTemplate = (key: string): void => {
      this.#queues.Template.add(key);
    };
    const golden = new Golden({
      ...common,
      snapshots: freshSnapshots,
      known: this.#cache.snapshots,
      actors: this.#cache.actors,
      origins,
      writer,
      trials,
      environments,
      events,
      enqueue: enqueueTemplate,
    });
    const templateReconciler = new TemplateReconciler({
      ...common,
      templates: new Freshest(this.#cache.templates),
      actors: this.#cache.actors,
      snapshots: this.#cache.snapshots,
      revisions,
      environments,
      trials,
      golden,
      events,
      enqueue: enqueueTemplate,
    });
    const stored = { ...common, calls: new BackgroundCalls<StoredSnapshot>(), origins, writer, events };
    const tags = new TagReconciler({
      ...stored,
      enqueue: (key) => {
        this.#queues.Snapshot.add(key);
      },
    });
    const storedDeletion = new StoredDeletion({ ...stored, stopTaking: (uid) => trials.stopTaking(uid) });
    const snapshotReconciler = new SnapshotReconciler({
      ...common,
      actors: freshActors,
      snapshots: freshSnapshots,
      writer,
      tags,
      storedDeletion,
      events,
    });
    this.#queues = {
      Template: this.#queue("Template", (key) => templateReconciler.reconcile(key)),
      Actor: this.#queue("Actor", (key) => actorReconciler.reconcile(key)),
      Snapshot: this.#queue("Snapshot", (key) => snapshotReconciler.reconcile(key)),
    };
    this.#watch(actorReconciler, trials, golden);
  }

  /** Follows the API server and leads while the Lease is ours; resolves after `signal` has aborted and all has ended. */
  async run(signal: AbortSignal): Promise<void> {
    const reflecting = Object.values(this.#cache).map((reflector: { run(signal: AbortSignal): Promise<void> }) =>
      reflector.run(signal),
    );
    const { log, whileLeading } = this.#options;
    let term = new AbortController();
    await this.leadership.run(signal, {
      started: (number) => {
        log.info("leading", { term: number });
        this.#leading = true;
        term = new AbortController();
        whileLeading(term.signal);
        void this.#namespaceGuard.run(term.signal);
        this.#lead().catch((error: unknown) => {
          log.error("cannot lead", { error });
        });
      },
      stopped: (reason) => {
        log.warn("not leading any more", { reason });
        this.#leading = false;
        term.abort();
        this.atelets.close();
        for (const queue of Object.values(this.#queues)) void queue.stop();
      },
    });
    await Promise.all(Object.values(this.#queues).map((queue) => queue.stop()));
    for (const queue of Object.values(this.#queues)) queue.clear();
    await Promise.all(reflecting);
  }

  /** Why this operator cannot do its work now; for /readyz. */
  problem(): string | undefined {
    const unsynced = Object.entries(this.#cache).find(
      ([, reflector]) => !(reflector as { isSynced: boolean }).isSynced,
    );
    if (unsynced !== undefined) return `${unsynced[0]} are not read yet`;
    if (!this.leadership.leading) return this.#standbyProblem();
    return this.atelets.problem(this.leadership.proof().term);
  }

  /** A standby is ready: it hands on to the leader. Our own predecessor's Lease is none to wait behind. */
  #standbyProblem(): string | undefined {
    const { apiAddress } = this.leaders;
    if (apiAddress === undefined) return "no operator holds the Lease substrate-operator";
    return apiAddress === this.#options.apiAddress ? "the Lease substrate-operator is not ours" : undefined;
  }

  async #lead(): Promise<void> {
    await Promise.all(Object.values(this.#cache).map((reflector: { synced: Promise<void> }) => reflector.synced));
    // the Lease may have been lost meanwhile
    if (!this.#leading) return;
    this.atelets.open();
    for (const queue of Object.values(this.#queues)) queue.start();
    for (const template of this.#cache.templates.list()) this.#queues.Template.add(keyOf(template));
    for (const actor of this.#cache.actors.list()) this.#queues.Actor.add(keyOf(actor));
    for (const snapshot of this.#cache.snapshots.list()) this.#queues.Snapshot.add(keyOf(snapshot));
  }

  #queue(kind: Kind, reconcile: Reconcile): ReconcileQueue {
    const { log } = this.#options;
    const queue = new ReconcileQueue({
      concurrency: concurrency[kind],
      reconcile,
      observer: {
        finished: (key, outcome, durationMs, error) => {
          this.#metrics.reconciled(kind, outcome, durationMs);
          if (error === undefined) return;
          const level = isConflict(error) || isUnreachable(error) ? "debug" : "warn";
          log.log(level, "reconcile failed", { kind, key, outcome, error });
        },
      },
    });
    this.#metrics.watch(kind, queue);
    return queue;
  }

  #watch(actorReconciler: ActorReconciler, trials: Trials, golden: Golden): void {
    const { Actor: actorQueue, Snapshot: snapshotQueue, Template: templateQueue } = this.#queues;
    this.#cache.actors.onChange((key, now, before) => {
      if (before !== undefined && now?.metadata.uid !== before.metadata.uid) {
        actorReconciler.forget(before.metadata.uid ?? "");
      }
      if (now === undefined) actorQueue.forget(key);
      actorQueue.add(key);
    });
    this.#cache.snapshots.onChange((key, now, before) => {
      snapshotQueue.add(key);
      const ofTemplate = (now ?? before)?.spec.templateRef?.name;
      if (ofTemplate !== undefined) templateQueue.add(`${key.slice(0, key.indexOf("/"))}/${ofTemplate}`);
      for (const actor of this.#cache.actors.list()) {
        const { namespace = "" } = actor.metadata;
        if (!isUnstartedFork(actor)) continue;
        if (`${namespace}/${actor.spec.source?.snapshotRef.name ?? ""}` === key) actorQueue.add(keyOf(actor));
      }
    });
    this.#cache.templates.onChange((key, now, before) => {
      if (now === undefined) {
        trials.forgetTemplate(before?.metadata.uid ?? "");
        golden.forget(before?.metadata.uid ?? "");
      }
      templateQueue.add(key);
      for (const actor of this.#cache.actors.list()) {
        const { namespace = "" } = actor.metadata;
        if (`${namespace}/${actor.spec.templateRef.name}` === key) actorQueue.add(keyOf(actor));
      }
    });
  }

  #nodeChanged(nodeName: string): void {
    for (const actor of this.#cache.actors.list()) {
      const holder = actor.status?.assignment?.nodeName;
      const waitsForAnyNode = holder === undefined && actor.metadata.deletionTimestamp !== undefined;
      const mayLeave = this.#residence.isStranded(actor.metadata.uid ?? "");
      if (holder === nodeName || waitsForAnyNode || mayLeave) this.#queues.Actor.add(keyOf(actor));
    }
    for (const snapshot of this.#cache.snapshots.list()) {
      const waits = snapshot.status?.storageState === "SNAPSHOT_STORAGE_STATE_PENDING";
      if (ownsPrefix(snapshot) && (waits || snapshot.metadata.deletionTimestamp !== undefined)) {
        this.#queues.Snapshot.add(keyOf(snapshot));
      }
    }
    // also those that are Ready: their golden snapshot may be of no use with the nodes' runtime any more
    for (const template of this.#cache.templates.list()) this.#queues.Template.add(keyOf(template));
  }
}

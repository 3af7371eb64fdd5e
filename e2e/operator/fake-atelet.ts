import { randomUUID } from "node:crypto";
import { type ServerDuplexStream } from "@grpc/grpc-js";
import { SubstrateError } from "@substrate/lib/errors.ts";
import {
  AteletServiceService,
  type AssignRequest,
  type AteletServiceServer,
  type ExecRequest,
  type ExecResponse,
  type Leader,
  type NodeTrouble,
  type ReadLogRequest,
  type ReadLogResponse,
  type ReleaseRequest,
  type ResumeRequest,
  type SetHoldRequest,
  type StartFrom,
  SuspendMode,
  type SuspendRequest,
  type TagRequest,
  type TagResponse,
  type WatchActorsRequest,
  type WatchActorsResponse,
} from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import {
  type ActorReport,
  ActorState,
  type Environment,
  Fidelity,
  type Generation,
  type Operation,
  OperationResult,
  OperationType,
  type Origin,
  StorageState,
  type StoredPrefix,
  type StoredSnapshot,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { leases, microTime } from "@substrate/lib/kube/types.ts";
import { createLogger } from "@substrate/lib/log.ts";
import {
  duplexHandler,
  type RpcServer,
  send,
  startRpcServer,
  streamHandler,
  unaryHandler,
} from "@substrate/lib/rpc/server.ts";
import { serverCredentials, type TlsSource } from "@substrate/lib/rpc/tls.ts";

function notScripted(method: string): never {
  throw new SubstrateError("INVALID", `the scripted atelet has no ${method}`);
}

/** A program that prints its arguments, then what it reads. */
async function echo(call: ServerDuplexStream<ExecRequest, ExecResponse>, signal: AbortSignal): Promise<void> {
  for await (const { message } of call as AsyncIterable<ExecRequest>) {
    if (message?.$case === "start") {
      const value = Buffer.from(message.value.command.join(" "));
      await send(call, { message: { $case: "stdout", value } }, signal);
    }
    if (message?.$case === "stdin") await send(call, { message: { $case: "stdout", value: message.value } }, signal);
    if (message?.$case === "stdinClosed") break;
  }
  await send(call, { message: { $case: "exitCode", value: 0 } }, signal);
}

type Event = NonNullable<WatchActorsResponse["event"]>;

/** A call as it came, for assertions. */
export interface Call {
  method: "assign" | "resume" | "suspend" | "release" | "setHold" | "tryProgram" | "tag" | "deleteStored";
  uid: string;
  epoch: number;
  /** Monotonic clock. */
  atMs: number;
}

/**
 * AteletService over real gRPC, with records in memory in place of sandboxes: it keeps the contract's rules of
 * sessions, epochs, releases and holds, and does what a test asks it to (refuse, hang, lose its session).
 */
export class FakeAtelet {
  readonly nodeName: string;
  readonly calls: Call[] = [];
  readonly actors = new Map<string, ActorReport>();
  readonly released = new Map<string, number>();
  /** Thrown by the next calls of the method, once each. */
  readonly refusals: { method: Call["method"]; error: SubstrateError }[] = [];
  /** What trial runs of an image fail with, each time. */
  readonly badImages = new Map<string, SubstrateError>();
  /** Awaited by resume before it answers. */
  resumeGate: Promise<void> = Promise.resolve();
  /** What is stored under the prefixes of Snapshot objects, by their uid. */
  readonly stored = new Map<string, StoredSnapshot & { prefix: StoredPrefix }>();
  /** Awaited by tag before it stores anything. */
  tagGate: Promise<void> = Promise.resolve();
  /** Awaited by a deleting release before it answers. */
  deleteGate: Promise<void> = Promise.resolve();
  /** Awaited before each report to the operator is sent. */
  reportGate: Promise<void> = Promise.resolve();
  /** Revisions of actors that are only in the store. */
  readonly storedRevisions = new Map<string, string>();
  /** Origins of the newest assignments, by the actor's uid. */
  readonly origins = new Map<string, Origin | undefined>();
  /** Environments of the newest assignments and trials, by the actor's or the Template's uid. */
  readonly environments = new Map<string, Environment>();
  /** Actors whose local wakes would wait for the operator. */
  readonly upgradePending = new Map<string, boolean>();
  /** Every start, in its order. */
  readonly starts: { uid: string; revision: string; startFrom: StartFrom["from"] }[] = [];
  runtime = "fake";
  /** What it says that a person should hear of. */
  troubles: NodeTrouble[] = [];
  /** What keeps trial runs from being saved; empty: nothing. */
  goldenFailure = "";
  session: string = randomUUID();
  /** As an atelet does, it refuses terms below the highest that it has heard. */
  highestTerm = 0n;
  readonly #client: KubeClient;
  readonly #tls: TlsSource;
  readonly #watchers = new Set<(event: Event) => void>();
  readonly #log = createLogger("fake-atelet", "error");
  #server: RpcServer | undefined;
  #sequence = 0n;
  #address = "127.0.0.1:0";

  /** Generations in the store of actors that were released, by the actor's uid; shared by the nodes of a cluster. */
  readonly #head: Map<string, Generation[]>;

  constructor(
    nodeName: string,
    client: KubeClient,
    tls: TlsSource,
    head: Map<string, Generation[]> = new Map<string, Generation[]>(),
  ) {
    this.nodeName = nodeName;
    this.#client = client;
    this.#tls = tls;
    this.#head = head;
  }

  async start(): Promise<void> {
    const allowed = ["system:serviceaccount:substrate-system:operator"];
    const options = { log: this.#log, allowed };
    const implementation: AteletServiceServer = {
      assign: unaryHandler(options, (request) => this.#assign(this.#follow(request))),
      resume: unaryHandler(options, (request) => this.#resume(this.#follow(request))),
      suspend: unaryHandler(options, (request) => this.#suspend(this.#follow(request))),
      release: unaryHandler(options, (request) => this.#release(this.#follow(request))),
      setHold: unaryHandler(options, (request) => this.#setHold(this.#follow(request))),
      tryProgram: unaryHandler(options, (request) => {
        this.#follow(request);
        this.#note("tryProgram", request.program?.templateUid ?? "", 0n);
        if (request.environment !== undefined) {
          this.environments.set(request.program?.templateUid ?? "", request.environment);
        }
        const failure = this.badImages.get(request.program?.image ?? "");
        if (failure !== undefined) throw failure;
        return Promise.resolve({
          imageDigest: `sha256:${"a".repeat(64)}`,
          readyMs: 12n,
          golden: request.golden && this.#golden(request.golden, request.program?.revision ?? ""),
          goldenFailure: request.golden === undefined ? "" : this.goldenFailure,
        });
      }),
      readOperations: unaryHandler(options, () => notScripted("readOperations")),
      readUsage: unaryHandler(options, () => notScripted("readUsage")),
      exec: duplexHandler<ExecRequest, ExecResponse>(options, (call, { signal }) => echo(call, signal)),
      tag: unaryHandler(options, (request) => this.#tag(this.#follow(request))),
      deleteStored: unaryHandler(options, (request) => {
        const uid = this.#follow(request).prefix?.uid ?? "";
        this.#note("deleteStored", uid, 0n);
        this.stored.delete(uid);
        return Promise.resolve({});
      }),
      watchActors: streamHandler<WatchActorsRequest, WatchActorsResponse>(options, async (call, { signal }) => {
        this.#follow(call.request);
        const pending: Event[] = [
          { $case: "node", value: this.#node() },
          ...[...this.actors.values()].map((value): Event => ({ $case: "actor", value })),
          { $case: "synced", value: {} },
        ];
        let wake = (): void => undefined;
        const watcher = (event: Event): void => {
          pending.push(event);
          wake();
        };
        this.#watchers.add(watcher);
        signal.addEventListener("abort", () => {
          this.#watchers.delete(watcher);
          wake();
        });
        while (!signal.aborted) {
          const event = pending.shift();
          await this.reportGate;
          if (event !== undefined) await send(call, { event }, signal);
          else await new Promise<void>((resolve) => (wake = resolve));
        }
      }),
      readLog: streamHandler<ReadLogRequest, ReadLogResponse>(options, async (call, { signal }) => {
        await send(call, { data: Buffer.from(`tail=${String(call.request.tailLines)}\n`) }, signal);
      }),
    };
    this.#server = await startRpcServer({
      address: this.#address,
      credentials: serverCredentials(this.#tls),
      services: [{ definition: AteletServiceService, implementation }],
    });
    this.#address = `127.0.0.1:${String(this.#server.port)}`;
    await this.#writeLease();
  }

  async stop(): Promise<void> {
    await this.#server?.stop(0);
  }

  /** As at a pod's end: nobody holds the node's Lease any more. */
  async giveLeaseBack(): Promise<void> {
    const lease = await this.#client.get(leases, this.nodeName, "substrate-system");
    if (lease === undefined) throw new Error(`node ${this.nodeName} has no Lease`);
    await this.#client.replace(leases, { ...lease, spec: { leaseDurationSeconds: 30 } });
  }

  /** As after a machine's restart: another session, no sandbox alive. */
  async newSession(): Promise<void> {
    this.session = randomUUID();
    await this.#writeLease();
  }

  change(uid: string, changes: Partial<ActorReport>): void {
    const report = this.actors.get(uid);
    if (report === undefined) throw new Error(`no actor ${uid}`);
    this.#sequence += 1n;
    const value = { ...report, ...changes, sequence: this.#sequence };
    this.actors.set(uid, value);
    for (const watcher of this.#watchers) watcher({ $case: "actor", value });
  }

  /** The newest generation's upload has ended, and with it an operation that waited for it. */
  complete(uid: string, lastOperation = this.actors.get(uid)?.lastOperation): void {
    const [newest] = this.actors.get(uid)?.generations ?? [];
    if (newest === undefined) throw new Error(`actor ${uid} has no generation`);
    const completed: Generation = {
      ...newest,
      storageState: StorageState.STORAGE_STATE_COMPLETED,
      storedBytes: 512n,
      location: `ns/${uid}/${String(newest.generation)}-1`,
      digest: "sha256:manifest",
      completedUnixMs: BigInt(Date.now()),
    };
    this.change(uid, { generations: [completed], lastOperation });
  }

  async #writeLease(): Promise<void> {
    await this.#client.apply(
      leases,
      {
        metadata: {
          name: this.nodeName,
          namespace: "substrate-system",
          labels: { "substrate.run/part": "atelet" },
          annotations: {
            "substrate.run/address": this.#address,
            "substrate.run/boot-id": "boot",
            "substrate.run/runtime": "fake",
          },
        },
        spec: { holderIdentity: this.session, leaseDurationSeconds: 30, renewTime: microTime(new Date()) },
      },
      { force: true },
    );
  }

  /** Says at once what a person should hear of. */
  report(troubles: NodeTrouble[]): void {
    this.troubles = troubles;
    for (const watcher of this.#watchers) watcher({ $case: "node", value: this.#node() });
  }

  #node(): Extract<Event, { $case: "node" }>["value"] {
    const mebibyte = 1024n ** 2n;
    return {
      session: this.session,
      bootId: "boot",
      limitBytes: 4_096n * mebibyte,
      bookedBytes: 0n,
      stores: [],
      lentBytes: 0n,
      reserveBytes: 128n * mebibyte,
      runtime: this.runtime,
      warmBytes: 0n,
      transferBytes: 0n,
      waiting: 0,
      troubles: this.troubles,
    };
  }

  #note(method: Call["method"], uid: string, epoch: bigint): void {
    this.calls.push({ method, uid, epoch: Number(epoch), atMs: performance.now() });
    const index = this.refusals.findIndex((refusal) => refusal.method === method);
    const [refusal] = index === -1 ? [] : this.refusals.splice(index, 1);
    if (refusal !== undefined) throw refusal.error;
  }

  #follow<Request extends { leader: Leader | undefined }>(request: Request): Request {
    const term = request.leader?.term ?? 0n;
    if (term < this.highestTerm) {
      throw new SubstrateError("STALE_TERM", `term ${term} is over: this node has heard of ${this.highestTerm}`);
    }
    this.highestTerm = term;
    return request;
  }

  #granted(uid: string, epoch: bigint): ActorReport {
    const report = this.actors.get(uid);
    if (report === undefined || report.grant?.epoch !== epoch)
      throw new SubstrateError("MOVED", `epoch ${String(epoch)}`);
    return report;
  }

  async #assign(request: AssignRequest): Promise<Record<string, never>> {
    const { actor, environment, grant, program, held, origin, upgradePending } = request;
    if (actor === undefined || grant === undefined) throw new SubstrateError("INVALID", "no actor or grant");
    this.#note("assign", actor.uid, grant.epoch);
    if (grant.session !== this.session) throw new SubstrateError("STALE_SESSION", "another session");
    if (grant.epoch <= BigInt(this.released.get(actor.uid) ?? 0)) throw new SubstrateError("MOVED", "released");
    const known = this.actors.get(actor.uid);
    if ((known?.grant?.epoch ?? 0n) > grant.epoch) throw new SubstrateError("MOVED", "surpassed");
    const report: ActorReport = known ?? {
      actor,
      grant,
      state: ActorState.ACTOR_STATE_SUSPENDED,
      held,
      generations: this.#head.get(actor.uid) ?? [],
      lastOperation: undefined,
      crash: undefined,
      lastActivityUnixMs: 0n,
      revision: program?.revision ?? "",
      sequence: 0n,
      envDigest: "",
      crashLoop: undefined,
      volumes: [],
      floor: 0n,
      nextStart: "anew",
      damage: "",
    };
    this.actors.set(actor.uid, report);
    this.origins.set(actor.uid, origin);
    if (environment !== undefined) this.environments.set(actor.uid, environment);
    this.upgradePending.set(actor.uid, upgradePending);
    this.change(actor.uid, { grant, held, revision: program?.revision ?? "" });
    return Promise.resolve({});
  }

  /** As the contract has it: what a memory image fits, what ends a crash loop, what a cold start leaves behind. */
  async #resume({ actorUid, epoch, operationId, startFrom }: ResumeRequest): Promise<{ generation: bigint }> {
    this.#note("resume", actorUid, epoch);
    const report = this.#granted(actorUid, epoch);
    const generation = report.generations[0]?.generation ?? 0n;
    const from = startFrom?.from;
    if (report.state === ActorState.ACTOR_STATE_RUNNING) {
      if (from !== undefined) throw new SubstrateError("OPERATION_IN_PROGRESS", "it runs: suspend it first");
      return { generation };
    }
    const wanted = from?.$case === "generation" ? from.value : undefined;
    const source = report.generations.find((one) =>
      wanted === undefined ? one.generation > report.floor : one.generation === wanted,
    );
    const isRestored = source !== undefined && (from === undefined || wanted !== undefined);
    if (isRestored && source.revision !== report.revision) {
      const message = `generation ${source.generation} is of ${source.revision}, the program of ${report.revision}`;
      throw new SubstrateError("RESTORE_FAILED", message);
    }
    this.starts.push({ uid: actorUid, revision: report.revision, startFrom: from });
    this.change(actorUid, {
      crashLoop: undefined,
      ...(isRestored ? {} : { envDigest: this.environments.get(actorUid)?.digest ?? "" }),
      ...(from?.$case === "boot" || from?.$case === "tag" ? { floor: generation } : {}),
    });
    const startUnixMs = BigInt(Date.now());
    this.change(actorUid, { state: ActorState.ACTOR_STATE_RESUMING });
    await this.resumeGate;
    this.change(actorUid, {
      state: ActorState.ACTOR_STATE_RUNNING,
      crash: undefined,
      lastOperation: {
        id: operationId,
        type: OperationType.OPERATION_TYPE_RESUME,
        result: OperationResult.OPERATION_RESULT_SUCCEEDED,
        reason: "",
        message: "",
        startUnixMs,
        endUnixMs: BigInt(Date.now()),
        phases: [],
      },
    });
    return { generation };
  }

  async #suspend(request: SuspendRequest): Promise<{ generation: Generation }> {
    const { actorUid, epoch, targetGeneration, mode, operationId } = request;
    this.#note("suspend", actorUid, epoch);
    const report = this.#granted(actorUid, epoch);
    const startUnixMs = BigInt(Date.now());
    const isSync = mode === SuspendMode.SUSPEND_MODE_SYNC;
    const operation: Operation = {
      id: operationId,
      type: OperationType.OPERATION_TYPE_SUSPEND,
      result: OperationResult.OPERATION_RESULT_SUCCEEDED,
      reason: "",
      message: "",
      startUnixMs,
      endUnixMs: startUnixMs,
      phases: [],
    };
    if (report.generations[0]?.generation !== targetGeneration) {
      const made: Generation = {
        generation: targetGeneration,
        epoch,
        storageState: StorageState.STORAGE_STATE_PENDING,
        local: true,
        sizeBytes: 1_024n,
        storedBytes: 0n,
        location: "",
        digest: "",
        revision: report.revision,
        runtime: "fake",
        createdUnixMs: startUnixMs,
        completedUnixMs: 0n,
        message: "",
        fidelity: Fidelity.FIDELITY_MEMORY,
        reason: "",
      };
      this.change(actorUid, {
        state: ActorState.ACTOR_STATE_SUSPENDED,
        generations: [made, ...report.generations],
        lastOperation: {
          ...operation,
          result: isSync ? OperationResult.OPERATION_RESULT_RUNNING : OperationResult.OPERATION_RESULT_SUCCEEDED,
        },
      });
    }
    // a sync suspend has a result only when its generation is stored
    if (isSync) this.complete(actorUid, operation);
    const [newest] = this.actors.get(actorUid)?.generations ?? [];
    if (newest === undefined) throw new Error("unreachable: a generation was made");
    return Promise.resolve({ generation: newest });
  }

  async #release({ actor, epoch, deleting }: ReleaseRequest): Promise<{ done: boolean; message: string }> {
    const uid = actor?.uid ?? "";
    this.#note("release", uid, epoch);
    const report = this.actors.get(uid);
    const [newest] = report?.generations ?? [];
    const isUnsaved = newest !== undefined && newest.storageState !== StorageState.STORAGE_STATE_COMPLETED;
    if (!deleting && (report?.state === ActorState.ACTOR_STATE_RUNNING || isUnsaved))
      throw new SubstrateError("NOT_RELEASABLE", "runs, or is not saved");
    if (deleting) await this.deleteGate;
    else if (report !== undefined) {
      this.storedRevisions.set(uid, report.revision);
      const stored = report.generations.map((generation) => ({ ...generation, local: false }));
      this.#head.set(uid, stored);
    }
    this.released.set(uid, Number(epoch));
    this.actors.delete(uid);
    for (const watcher of this.#watchers) watcher({ $case: "gone", value: { uid, epoch } });
    return { done: true, message: "" };
  }

  async #tag({ actor, epoch, target }: TagRequest): Promise<TagResponse> {
    const uid = actor?.uid ?? "";
    this.#note("tag", uid, epoch);
    if (target === undefined) throw new SubstrateError("INVALID", "no target");
    await this.tagGate;
    const already = this.stored.get(target.uid);
    if (already !== undefined) return { stored: already };
    const report = epoch === 0n ? undefined : this.#granted(uid, epoch);
    if (epoch !== 0n && report?.generations.length === 0 && report.state !== ActorState.ACTOR_STATE_RUNNING) {
      throw new SubstrateError("INVALID", `Actor ${actor?.namespace ?? ""}/${actor?.name ?? ""} has no state yet`);
    }
    const revision = report?.revision ?? this.storedRevisions.get(uid);
    if (revision === undefined) throw new SubstrateError("UNKNOWN_ACTOR", `nothing of ${uid} is in the store`);
    const stored = this.#store(target, { generation: report?.generations[0]?.generation ?? 1n, revision });
    return { stored };
  }

  #golden(prefix: StoredPrefix, revision: string): StoredSnapshot | undefined {
    return this.goldenFailure === "" ? this.#store(prefix, { generation: 0n, revision }) : undefined;
  }

  #store(prefix: StoredPrefix, of: Pick<StoredSnapshot, "generation" | "revision">): StoredSnapshot {
    const stored = {
      ...of,
      prefix,
      location: `${prefix.clusterUid}/${prefix.namespaceUid}/${prefix.uid}/1-1`,
      digest: "sha256:stored",
      sizeBytes: 2_048n,
      storedBytes: 1_024n,
      fidelity: Fidelity.FIDELITY_MEMORY,
      runtime: this.runtime,
    };
    this.stored.set(prefix.uid, stored);
    return stored;
  }

  async #setHold({ actorUid, epoch, held }: SetHoldRequest): Promise<Record<string, never>> {
    this.#note("setHold", actorUid, epoch);
    this.#granted(actorUid, epoch);
    this.change(actorUid, { held });
    return Promise.resolve({});
  }
}

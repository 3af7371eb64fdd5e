import { SubstrateError } from "@substrate/lib/errors.ts";
import {
  ActorState,
  Fidelity as WireFidelity,
  type ActorKey as WireActorKey,
  type ActorReport,
  type Environment as WireEnvironment,
  type Generation as WireGeneration,
  OperationResult,
  OperationType,
  type Origin as WireOrigin,
  type Operation as WireOperation,
  type Program as WireProgram,
  StorageState,
  type StoredPrefix as WireStoredPrefix,
  type StoredSnapshot,
} from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { type StartFrom as WireStartFrom } from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import { type Route, RouteState } from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import { type Actor } from "../actors/actor.ts";
import { type Environment } from "../actors/environment.ts";
import { type StartFrom } from "../actors/start-from.ts";
import {
  type ActorKey,
  type Fidelity,
  type FinishedOperation,
  type Generation,
  type Origin,
  type Program,
  type StoredPrefix,
} from "../actors/record.ts";
import { type Stored } from "../store/snapshots.ts";
import { type RouteLevel } from "../actors/route-level.ts";

const uidPattern = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

function need<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new SubstrateError("INVALID", `the request has no ${what}`);
  return value;
}

/** Epochs, generations and sizes stay far below 2^53. */
export function number(value: bigint): number {
  return Number(value);
}

export function keyFromWire(key: WireActorKey | undefined): ActorKey {
  const { uid, namespace, name, namespaceUid } = need(key, "actor");
  if (!uidPattern.test(uid)) {
    throw new SubstrateError("INVALID", `"${uid}" is not the UID of an actor`);
  }
  return { uid, namespace, name, namespaceUid };
}

/** Throws INVALID for what could reach beyond the prefix of one Snapshot object. */
export function storedPrefixFromWire(wire: WireStoredPrefix | undefined): StoredPrefix {
  const { namespaceUid, uid, name, store, clusterUid } = need(wire, "prefix");
  for (const part of [namespaceUid, uid, clusterUid]) {
    if (!uidPattern.test(part))
      throw new SubstrateError("INVALID", `"${part}" is not a UID (prefix of Snapshot ${name})`);
  }
  return { prefix: { clusterUid, namespaceUid, actorUid: uid }, name, store };
}

export function originFromWire({ prefix, golden }: WireOrigin): Origin {
  return { stored: storedPrefixFromWire(prefix), golden, floor: 0, chosen: false };
}

/** Absent when the caller leaves it open. */
export function environmentFromWire(wire: WireEnvironment | undefined): Environment | undefined {
  return wire && { variables: wire.variables.map(({ name, value }) => ({ name, value })), digest: wire.digest };
}

/** Absent when the caller leaves it open. */
export function startFromWire(wire: WireStartFrom | undefined): StartFrom | undefined {
  if (wire === undefined) return undefined;
  const from = need(wire.from, "choice of what to start from");
  switch (from.$case) {
    case "generation":
      return { kind: "generation", generation: number(from.value) };
    case "boot":
      return { kind: "boot" };
    case "tag":
      return { kind: "tag", tag: storedPrefixFromWire(from.value) };
  }
}

export function grantFromWire(grant: { epoch: bigint; session: string } | undefined): {
  epoch: number;
  session: string;
} {
  const { epoch, session } = need(grant, "grant");
  return { epoch: number(epoch), session };
}

export function programFromWire(wire: WireProgram | undefined): Program {
  const program = need(wire, "program");
  const snapshots = need(program.snapshots, "snapshot policy");
  return {
    templateUid: program.templateUid,
    templateName: program.templateName,
    revision: program.revision,
    containerName: program.containerName,
    image: program.image,
    command: program.command,
    args: program.args,
    ports: program.ports.map(({ name, containerPort }) => ({ name, containerPort })),
    ...(program.readyz && { readyz: { path: program.readyz.path, port: program.readyz.port } }),
    memoryBytes: number(program.memoryBytes),
    cpuMillis: program.cpuMillis,
    store: snapshots.store,
    uploadDelayMs: number(snapshots.uploadDelayMs),
    uploadWithinMs: number(snapshots.uploadWithinMs),
    drainTimeoutMs: number(program.drainTimeoutMs),
    wakeTimeoutMs: number(program.wakeTimeoutMs),
    volumeMounts: program.volumeMounts.map(({ name, mountPath, sizeLimitBytes }) => ({
      name,
      mountPath,
      sizeLimitBytes: number(sizeLimitBytes),
    })),
    ...(program.afterRestore && {
      afterRestore: { path: program.afterRestore.path, port: program.afterRestore.port },
    }),
    history: Math.max(1, snapshots.history),
    onSuspend: fidelityFromWire(snapshots.onSuspend) ?? "Memory",
  };
}

const fidelities = {
  Memory: WireFidelity.FIDELITY_MEMORY,
  Rootfs: WireFidelity.FIDELITY_ROOTFS,
  Data: WireFidelity.FIDELITY_DATA,
} as const;

/** Undefined for what the caller left open. */
export function fidelityFromWire(wire: WireFidelity): Fidelity | undefined {
  return (Object.keys(fidelities) as Fidelity[]).find((fidelity) => fidelities[fidelity] === wire);
}

export function storedToWire({ manifest, location, digest, storedBytes }: Stored): StoredSnapshot {
  return {
    location,
    digest,
    sizeBytes: BigInt(manifest.sizeBytes),
    storedBytes: BigInt(storedBytes),
    fidelity: fidelities[manifest.fidelity],
    revision: manifest.revision,
    runtime: manifest.sandbox.runtime,
    generation: BigInt(manifest.copyOf?.generation ?? 0),
  };
}

const storageStates = {
  PENDING: StorageState.STORAGE_STATE_PENDING,
  COMPLETED: StorageState.STORAGE_STATE_COMPLETED,
  FAILED: StorageState.STORAGE_STATE_FAILED,
  LOST: StorageState.STORAGE_STATE_LOST,
} as const;

export function generationToWire(generation: Generation, local: boolean): WireGeneration {
  const { storage } = generation;
  return {
    generation: BigInt(generation.generation),
    epoch: BigInt(generation.epoch),
    storageState: storageStates[storage.state],
    local,
    sizeBytes: BigInt(generation.sizeBytes),
    storedBytes: BigInt(storage.storedBytes),
    location: storage.location,
    digest: storage.digest,
    revision: generation.revision,
    runtime: generation.runtime,
    createdUnixMs: BigInt(generation.createdAtMs),
    completedUnixMs: BigInt(storage.completedAtMs),
    message: storage.message,
    fidelity: fidelities[generation.fidelity],
    reason: storage.reason,
  };
}

const actorStates = {
  SUSPENDED: ActorState.ACTOR_STATE_SUSPENDED,
  RESUMING: ActorState.ACTOR_STATE_RESUMING,
  RUNNING: ActorState.ACTOR_STATE_RUNNING,
  SUSPENDING: ActorState.ACTOR_STATE_SUSPENDING,
  CRASHED: ActorState.ACTOR_STATE_CRASHED,
  DELETING: ActorState.ACTOR_STATE_DELETING,
} as const;

const operationTypes = {
  RESUME: OperationType.OPERATION_TYPE_RESUME,
  SUSPEND: OperationType.OPERATION_TYPE_SUSPEND,
  TAG: OperationType.OPERATION_TYPE_TAG,
} as const;

const operationResults = {
  RUNNING: OperationResult.OPERATION_RESULT_RUNNING,
  SUCCEEDED: OperationResult.OPERATION_RESULT_SUCCEEDED,
  FAILED: OperationResult.OPERATION_RESULT_FAILED,
} as const;

export function operationToWire(operation: FinishedOperation): WireOperation {
  return {
    id: operation.id,
    type: operationTypes[operation.type],
    result: operationResults[operation.result],
    reason: operation.reason,
    message: operation.message,
    startUnixMs: BigInt(operation.startMs),
    endUnixMs: BigInt(operation.endMs),
    phases: operation.phases,
  };
}

export function reportToWire(actor: Actor, sequence: number): ActorReport {
  const { record } = actor;
  const { lastOperation, crash, crashLoop } = record;
  return {
    actor: record.actor,
    grant: { epoch: BigInt(record.grant.epoch), session: record.grant.session },
    state: actorStates[actor.state],
    held: record.held,
    generations: actor.generations
      .all()
      .map((generation) => generationToWire(generation, actor.generations.local(generation.generation) !== undefined)),
    lastOperation: lastOperation && operationToWire({ ...lastOperation, phases: [] }),
    crash: crash && { message: crash.message, timeUnixMs: BigInt(crash.timeMs) },
    lastActivityUnixMs: BigInt(record.lastActivityMs),
    revision: record.program.revision,
    sequence: BigInt(sequence),
    envDigest: record.envDigest,
    crashLoop: crashLoop && {
      generation: BigInt(crashLoop.generation),
      message: crashLoop.message,
      sinceUnixMs: BigInt(crashLoop.sinceMs),
    },
    volumes: actor.volumeUsage().map(({ name, usedBytes, limitBytes }) => ({
      name,
      usedBytes: BigInt(usedBytes),
      limitBytes: BigInt(limitBytes),
    })),
    floor: BigInt(record.floor),
    nextStart: actor.nextStart,
    damage: actor.damage,
  };
}

const routeStates = {
  ASLEEP: RouteState.ROUTE_STATE_ASLEEP,
  RUNNING: RouteState.ROUTE_STATE_RUNNING,
  GATED: RouteState.ROUTE_STATE_GATED,
  HELD: RouteState.ROUTE_STATE_HELD,
  FAILING: RouteState.ROUTE_STATE_FAILING,
} as const;

/** @param address the pod's, at which outer ports are open. */
export function routeToWire(route: RouteLevel, address: string): Route {
  return {
    actor: route.actor,
    epoch: BigInt(route.epoch),
    state: routeStates[route.state],
    gateId: BigInt(route.gateId),
    endpoints: route.endpoints.map((endpoint) => ({ ...endpoint, address })),
    wakeTimeoutMs: BigInt(route.wakeTimeoutMs),
    message: route.message,
    retryAfterMs: BigInt(route.retryAfterMs),
    reason: route.reason,
  };
}

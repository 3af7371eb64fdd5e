import { type UntypedServiceImplementation } from "@grpc/grpc-js";
import { SubstrateError } from "@substrate/lib/errors.ts";
import {
  type AssignRequest,
  type AssignResponse,
  AteletServiceService,
  type DeleteStoredRequest,
  type DeleteStoredResponse,
  type ExecRequest,
  type ExecResponse,
  type ExecStart,
  type Leader,
  type ReadLogRequest,
  type ReadLogResponse,
  type ReadOperationsRequest,
  type ReadOperationsResponse,
  type ReadUsageRequest,
  type ReadUsageResponse,
  type ReleaseRequest,
  type ReleaseResponse,
  type ResumeRequest,
  type ResumeResponse,
  type SetHoldRequest,
  type SetHoldResponse,
  SuspendMode,
  type SuspendRequest,
  type SuspendResponse,
  type TagRequest,
  type TagResponse,
  type TryProgramRequest,
  type TryProgramResponse,
  type WatchActorsRequest,
  type WatchActorsResponse,
} from "@substrate/lib/gen/substrate/atelet/v1/atelet.ts";
import {
  type AttachRequest,
  type AttachResponse,
  RouteServiceService,
  type WakeRequest,
  type WakeResponse,
} from "@substrate/lib/gen/substrate/atelet/v1/route.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { duplexHandler, type RpcServerOptions, streamHandler, unaryHandler } from "@substrate/lib/rpc/server.ts";
import { type Actor } from "../actors/actor.ts";
import { noEnvironment } from "../actors/environment.ts";
import { type NodeActors } from "../actors/node-actors.ts";
import { type Tags } from "../actors/tags.ts";
import { type Trials } from "../actors/trial.ts";
import {
  fidelityFromWire,
  environmentFromWire,
  generationToWire,
  grantFromWire,
  keyFromWire,
  number,
  operationToWire,
  originFromWire,
  programFromWire,
  routeToWire,
  startFromWire,
  storedPrefixFromWire,
  storedToWire,
} from "./convert.ts";
import { type Cgroups } from "../cgroups/cgroups.ts";
import { type ExecSessions } from "../exec/sessions.ts";
import { serveExec } from "./exec-stream.ts";
import { readUsage } from "./usage.ts";
import { followLog } from "./log-stream.ts";
import { type RouteHub, peerAddress } from "./route-hub.ts";
import { type ReportStream } from "./report-stream.ts";

export interface ServicesOptions {
  actors: NodeActors;
  trials: Trials;
  tags: Tags;
  hub: RouteHub;
  reports: ReportStream;
  sessions: ExecSessions;
  cgroups: Cgroups;
  podAddress: string;
  /** Certificate names: who may call what. */
  callers: { operator: string; router: string };
  log: Logger;
}

/** The atelet's gRPC services: conversion and authorisation only; what they do is in actors/. */
export function ateletServices(options: ServicesOptions): RpcServerOptions["services"] {
  return [
    { definition: AteletServiceService, implementation: operatorService(options) },
    { definition: RouteServiceService, implementation: routeService(options) },
  ];
}

function operatorService({
  actors,
  trials,
  tags,
  reports,
  sessions,
  cgroups,
  callers,
  log,
}: ServicesOptions): UntypedServiceImplementation {
  const handler = { log, allowed: [callers.operator] };
  let highestTerm = 0n;
  const follow = (leader: Leader | undefined): void => {
    const term = leader?.term ?? 0n;
    if (term < highestTerm) {
      throw new SubstrateError("STALE_TERM", `term ${term} is over: this node has heard of leader term ${highestTerm}`);
    }
    highestTerm = term;
  };
  return {
    assign: unaryHandler<AssignRequest, AssignResponse>(handler, async (request) => {
      follow(request.leader);
      const environment = environmentFromWire(request.environment);
      await actors.assign({
        actor: keyFromWire(request.actor),
        grant: grantFromWire(request.grant),
        program: programFromWire(request.program),
        held: request.held,
        clusterUid: request.clusterUid,
        upgradePending: request.upgradePending,
        ...(request.origin && { origin: originFromWire(request.origin) }),
        ...(environment && { environment }),
      });
      return {};
    }),
    resume: unaryHandler<ResumeRequest, ResumeResponse>(handler, async (request) => {
      follow(request.leader);
      const actor = actors.withEpoch(request.actorUid, number(request.epoch));
      const from = startFromWire(request.startFrom);
      await actor.resume({ operationId: request.operationId, ...(from && { from }) });
      return { generation: BigInt(actor.record.sandbox?.fromGeneration ?? 0) };
    }),
    suspend: unaryHandler<SuspendRequest, SuspendResponse>(handler, async (request) => {
      follow(request.leader);
      const actor = actors.withEpoch(request.actorUid, number(request.epoch));
      const generation = await actor.suspend({
        operationId: request.operationId,
        mode: request.mode === SuspendMode.SUSPEND_MODE_SYNC ? "SYNC" : "ASYNC",
        force: request.force,
        targetGeneration: number(request.targetGeneration),
        fidelity: fidelityFromWire(request.fidelity),
      });
      if (generation === undefined) return { generation: undefined };
      const local = actor.generations.local(generation.generation) !== undefined;
      return { generation: generationToWire(generation, local) };
    }),
    release: unaryHandler<ReleaseRequest, ReleaseResponse>(handler, async (request) => {
      follow(request.leader);
      const { deleting, clusterUid } = request;
      await actors.release(keyFromWire(request.actor), number(request.epoch), { deleting, clusterUid });
      return { done: true, message: "" };
    }),
    tag: unaryHandler<TagRequest, TagResponse>(handler, async (request) => {
      follow(request.leader);
      const { actor, epoch, target, operationId } = request;
      const stored = await tags.tag({
        actor: keyFromWire(actor),
        epoch: number(epoch),
        target: storedPrefixFromWire(target),
        operationId,
      });
      return { stored: storedToWire(stored) };
    }),
    deleteStored: unaryHandler<DeleteStoredRequest, DeleteStoredResponse>(handler, async (request) => {
      follow(request.leader);
      await tags.delete(storedPrefixFromWire(request.prefix));
      return {};
    }),
    setHold: unaryHandler<SetHoldRequest, SetHoldResponse>(handler, async (request) => {
      follow(request.leader);
      await actors.withEpoch(request.actorUid, number(request.epoch)).hold(request.held);
      return {};
    }),
    tryProgram: unaryHandler<TryProgramRequest, TryProgramResponse>(handler, async (request) => {
      follow(request.leader);
      const { imageDigest, readyMs, golden, goldenFailure } = await trials.run({
        program: programFromWire(request.program),
        environment: environmentFromWire(request.environment) ?? noEnvironment,
        ...(request.golden && { golden: storedPrefixFromWire(request.golden) }),
      });
      return {
        imageDigest,
        readyMs: BigInt(readyMs),
        golden: golden && storedToWire(golden),
        goldenFailure: goldenFailure ?? "",
      };
    }),
    readOperations: unaryHandler<ReadOperationsRequest, ReadOperationsResponse>(handler, ({ actorUid }) =>
      Promise.resolve({ operations: actors.get(actorUid).record.operations.map(operationToWire) }),
    ),
    watchActors: streamHandler<WatchActorsRequest, WatchActorsResponse>(handler, async (call, { signal }) => {
      follow(call.request.leader);
      await reports.serve(call, signal);
    }),
    readLog: streamHandler<ReadLogRequest, ReadLogResponse>(handler, async (call, { signal }) => {
      const { actorUid, tailLines, follow: following } = call.request;
      await followLog(actors.get(actorUid).files.log, { tailLines, follow: following }, call, signal);
    }),
    readUsage: unaryHandler<ReadUsageRequest, ReadUsageResponse>(handler, ({ actorUid }) =>
      readUsage(actors.get(actorUid), cgroups),
    ),
    exec: duplexHandler<ExecRequest, ExecResponse>(handler, async (call, { signal }) => {
      const find = (start: ExecStart): Actor => {
        follow(start.leader);
        return actors.get(start.actorUid);
      };
      await serveExec(call, signal, { sessions, find, log });
    }),
  };
}

function routeService({ actors, hub, callers, podAddress, log }: ServicesOptions): UntypedServiceImplementation {
  const handler = { log, allowed: [callers.router] };
  return {
    attach: duplexHandler<AttachRequest, AttachResponse>(handler, async (call, { signal }) => {
      await hub.attach(call, peerAddress(call.getPeer()), signal);
    }),
    wake: unaryHandler<WakeRequest, WakeResponse>(handler, async ({ actorUid }) => {
      const actor = actors.get(actorUid);
      await actor.wake();
      return { route: routeToWire(actor.route(), podAddress) };
    }),
  };
}

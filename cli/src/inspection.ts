import { type ActorAddress, subresourcePath } from "./address.ts";
import { type Connection } from "./connection.ts";
import { type CommandFailure } from "./failure.ts";
import { messageOf, refusal } from "./refusal.ts";

/** What an actor takes of its node, as actors/usage has it. */
export interface Usage {
  nodeName: string;
  sampledAt: string;
  memoryBytes: number;
  memoryLimitBytes: number;
  cpuNanoseconds: number;
  cpuLimitMillis: number;
  localBytes: number;
  volumes: { name: string; usedBytes: number; limitBytes?: number }[];
}

/** One of the past, as actors/operations has it. */
export interface PastOperation {
  id: string;
  type: string;
  result: string;
  reason?: string;
  message?: string;
  startTime: string;
  endTime?: string;
  phases: { name: string; ms: number }[];
}

/** A node's room, as nodes has it; without figures while the operator does not reach it. */
export interface NodeUsage {
  metadata: { name: string };
  address: string;
  runtime: string;
  reachable: boolean;
  /** Silent for so long that its actors say NodeLost; an operator of an earlier version doesn't say it. */
  lost?: boolean;
  unschedulable: boolean;
  /** Why it is none for new actors, beside a cordon: `is not Ready`. */
  trouble?: string;
  actors: number;
  running: number;
  limitBytes?: number;
  bookedBytes?: number;
  lentBytes?: number;
  reserveBytes?: number;
  warmBytes?: number;
  transferBytes?: number;
  waiting?: number;
  /** Stores that it cannot use, and why; an operator of an earlier version doesn't say it. */
  stores?: { name: string; message: string }[];
}

export interface NodeUsageList {
  operator: { version: string; term: number; time: string };
  items: NodeUsage[];
}

export const nodesPath = "/apis/subresources.substrate.run/v1alpha1/nodes";
const group = "subresources.substrate.run";

interface Documents {
  usage: Usage;
  operations: { items: PastOperation[] };
}

/** What the node says, or why it says nothing: a table or a description goes on without it. */
export async function ask<S extends keyof Documents>(
  connection: Connection,
  address: ActorAddress,
  subresource: S,
): Promise<{ value: Documents[S] } | { why: string }> {
  const { status, body } = await connection.ask(subresourcePath(address, subresource));
  if (status === 200) return { value: JSON.parse(body) as Documents[S] };
  return { why: messageOf(status, body) };
}

/** @throws {CommandFailure} */
export async function listNodes(connection: Connection): Promise<NodeUsageList> {
  const { status, body } = await connection.ask(nodesPath);
  if (status === 200) return JSON.parse(body) as NodeUsageList;
  throw await nodesRefusal(connection, status, body);
}

function nodesRefusal(connection: Connection, status: number, body: string): Promise<CommandFailure> {
  return refusal(connection, undefined, { verb: "list", resource: "nodes", group }, status, body);
}

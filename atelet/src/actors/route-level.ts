import { type ErrorCode } from "@substrate/lib/errors.ts";
import { type ActorKey } from "./record.ts";

export interface RouteEndpoint {
  portName: string;
  containerPort: number;
  port: number;
}

/** What routers are told of an actor; the newest replaces every older one (lib/proto …/route.proto). */
export interface RouteLevel {
  actor: ActorKey;
  epoch: number;
  state: "ASLEEP" | "RUNNING" | "GATED" | "HELD" | "FAILING";
  gateId: number;
  endpoints: RouteEndpoint[];
  wakeTimeoutMs: number;
  message: string;
  retryAfterMs: number;
  /** While FAILING: what it is refused with; empty: restarts are slowed down, or given up. */
  reason: ErrorCode | "";
}

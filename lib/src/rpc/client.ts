import {
  type CallOptions,
  type ChannelCredentials,
  type ClientOptions,
  type ClientUnaryCall,
  Metadata,
  type ServiceError,
} from "@grpc/grpc-js";
import { SubstrateError } from "../errors.ts";
import { fromServiceError } from "./errors.ts";

/** The parts that serve gRPC, as in their certificates' names. */
export type Part = "operator" | "atelet";

/** The name in a part's server certificate, checked whatever address is dialled (docs/architecture.md). */
export function serverName(part: Part): string {
  return `${part}.substrate.internal`;
}

/**
 * Options of a channel to a part. Keepalive pings find a dead peer within 15 s; an unused connection closes after
 * 30 min; reconnecting never waits longer than 2 s, because a restarted part is back sooner.
 */
function dialOptions(part: Part): ClientOptions {
  return {
    "grpc.ssl_target_name_override": serverName(part),
    "grpc.default_authority": serverName(part),
    "grpc.keepalive_time_ms": 10_000,
    "grpc.keepalive_timeout_ms": 5_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 2_000,
    "grpc.client_idle_timeout_ms": 30 * 60_000,
    // channels to one address but with other credentials must not share a connection
    "grpc.use_local_subchannel_pool": 1,
  };
}

/** A client of `address` (`host:port`), for instance `dial(AteletServiceClient, address, "atelet", credentials)`. */
export function dial<C>(
  client: new (address: string, credentials: ChannelCredentials, options?: Partial<ClientOptions>) => C,
  address: string,
  part: Part,
  credentials: ChannelCredentials,
): C {
  return new client(address, credentials, dialOptions(part));
}

/** A client's unary method, bound: `client.assign.bind(client)`. */
export type UnaryMethod<Request, Response> = (
  request: Request,
  metadata: Metadata,
  options: Partial<CallOptions>,
  callback: (error: ServiceError | null, response: Response) => void,
) => ClientUnaryCall;

export interface UnaryOptions {
  /** From now, in milliseconds; every call has one. */
  deadlineMs: number;
  /** Cancels the call; the error is then TIMEOUT with "cancelled" in its message. */
  signal?: AbortSignal;
}

/** One call as a promise; rejects with the SubstrateError that the other side threw (rpc/errors.ts). */
export function unary<Request, Response>(
  method: UnaryMethod<Request, Response>,
  request: Request,
  { deadlineMs, signal }: UnaryOptions,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(new SubstrateError("TIMEOUT", "cancelled before the call was sent", { cause: signal.reason }));
      return;
    }
    const call = method(request, new Metadata(), { deadline: Date.now() + deadlineMs }, (error, response) => {
      signal?.removeEventListener("abort", cancel);
      if (error === null) resolve(response);
      else if (signal?.aborted === true)
        reject(new SubstrateError("TIMEOUT", "cancelled by the caller", { cause: signal.reason }));
      else reject(fromServiceError(error));
    });
    const cancel = (): void => {
      call.cancel();
    };
    signal?.addEventListener("abort", cancel, { once: true });
  });
}

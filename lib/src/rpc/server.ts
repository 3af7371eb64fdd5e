import {
  type handleBidiStreamingCall,
  type handleServerStreamingCall,
  type handleUnaryCall,
  type Metadata,
  Server,
  type ServerCredentials,
  type ServerDuplexStream,
  type ServerWritableStream,
  type ServiceDefinition,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import { errorCatalogue, SubstrateError } from "../errors.ts";
import { type Logger } from "../log.ts";
import { toStatus } from "./errors.ts";

export interface RpcServerOptions {
  /** `host:port`; port 0 takes a free one. */
  address: string;
  credentials: ServerCredentials;
  services: { definition: ServiceDefinition; implementation: UntypedServiceImplementation }[];
}

export interface RpcServer {
  /** The port that is bound. */
  port: number;
  /** Refuses new calls, lets open ones end for `graceMs`, then cuts them. */
  stop(graceMs: number): Promise<void>;
}

/** Starts listening; rejects when the address cannot be bound. */
export async function startRpcServer({ address, credentials, services }: RpcServerOptions): Promise<RpcServer> {
  const server = new Server({
    // clients ping every 10 s (rpc/client.ts); a faster one is told to go away
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 10_000,
  });
  for (const { definition, implementation } of services) server.addService(definition, implementation);
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(address, credentials, (error, bound) => {
      if (error === null) resolve(bound);
      else reject(new Error(`cannot listen on ${address}: ${error.message}`, { cause: error }));
    });
  });
  return { port, stop: (graceMs) => stop(server, graceMs) };
}

function stop(server: Server, graceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      server.forceShutdown();
    }, graceMs);
    server.tryShutdown(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** A call of any kind: who is asking. */
interface Caller {
  getAuthContext(): { sslPeerCertificate?: { subject: { CN?: string | string[] } } };
}

/** The common name in the peer's certificate; undefined without mutual TLS. */
function peerCommonName(call: Caller): string | undefined {
  const name = call.getAuthContext().sslPeerCertificate?.subject.CN;
  return typeof name === "string" ? name : undefined;
}

/** Throws FORBIDDEN unless the peer's common name is one of `allowed`. */
function authorize(call: Caller, allowed: readonly string[]): void {
  const name = peerCommonName(call);
  if (name !== undefined && allowed.includes(name)) return;
  throw new SubstrateError(
    "FORBIDDEN",
    `peer ${name === undefined ? "without a certificate" : `"${name}"`} may not call this; allowed: ${allowed.join(", ")}`,
  );
}

/** What a handler knows of its call beside the request. */
export interface CallContext {
  metadata: Metadata;
  /** Aborts when the caller cancels, its deadline passes or its connection breaks. */
  signal: AbortSignal;
}

export interface HandlerOptions {
  log: Logger;
  /** Common names that may call; every peer of our authority when left out. */
  allowed?: readonly string[];
}

/** A unary handler from an async function: errors become statuses, unexpected ones are logged. */
export function unaryHandler<Request, Response>(
  { log, allowed }: HandlerOptions,
  handle: (request: Request, context: CallContext) => Promise<Response>,
): handleUnaryCall<Request, Response> {
  return (call, callback) => {
    const run = async (): Promise<Response> => {
      if (allowed !== undefined) authorize(call, allowed);
      return handle(call.request, { metadata: call.metadata, signal: cancellation(call) });
    };
    run().then(
      (response) => {
        callback(null, response);
      },
      (error: unknown) => {
        logUnexpected(log, call.getPath(), error);
        callback(toStatus(error));
      },
    );
  };
}

/** A server-stream handler: the stream ends when the function does. Write with `send`. */
export function streamHandler<Request, Response>(
  { log, allowed }: HandlerOptions,
  handle: (call: ServerWritableStream<Request, Response>, context: CallContext) => Promise<void>,
): handleServerStreamingCall<Request, Response> {
  return (call) => {
    runStream(log, allowed, call, (context) => handle(call, context));
  };
}

/** A bidirectional handler; as streamHandler. */
export function duplexHandler<Request, Response>(
  { log, allowed }: HandlerOptions,
  handle: (call: ServerDuplexStream<Request, Response>, context: CallContext) => Promise<void>,
): handleBidiStreamingCall<Request, Response> {
  return (call) => {
    runStream(log, allowed, call, (context) => handle(call, context));
  };
}

/** What server-stream and bidirectional calls have in common. */
interface StreamCall extends Caller {
  metadata: Metadata;
  cancelled: boolean;
  getPath(): string;
  end(): unknown;
  on(event: "cancelled", listener: () => void): unknown;
  on(event: "error", listener: (error: unknown) => void): unknown;
  emit(event: "error", error: unknown): boolean;
}

function runStream(
  log: Logger,
  allowed: readonly string[] | undefined,
  call: StreamCall,
  handle: (context: CallContext) => Promise<void>,
): void {
  const signal = cancellation(call);
  // without a listener a broken connection would end the process; the handler sees it by its signal
  call.on("error", (error) => {
    log.debug("stream broke", { method: call.getPath(), error });
  });
  const run = async (): Promise<void> => {
    if (allowed !== undefined) authorize(call, allowed);
    await handle({ metadata: call.metadata, signal });
  };
  run().then(
    () => {
      call.end();
    },
    (error: unknown) => {
      if (signal.aborted) return;
      logUnexpected(log, call.getPath(), error);
      // grpc-js sends an emitted error as the stream's final status
      call.emit("error", toStatus(error));
    },
  );
}

function cancellation(call: {
  cancelled: boolean;
  on(event: "cancelled", listener: () => void): unknown;
}): AbortSignal {
  const controller = new AbortController();
  if (call.cancelled) controller.abort();
  else
    call.on("cancelled", () => {
      controller.abort();
    });
  return controller.signal;
}

/** Writes one message and waits while the peer is slow; rejects when `signal` aborts meanwhile. */
export async function send<Response>(
  call: { write(message: Response): boolean; once(event: "drain", listener: () => void): unknown },
  message: Response,
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted();
  if (call.write(message)) return;
  const { promise, resolve, reject } = Promise.withResolvers<undefined>();
  const abort = (): void => {
    reject(new Error("the peer went away", { cause: signal.reason }));
  };
  signal.addEventListener("abort", abort, { once: true });
  call.once("drain", () => {
    resolve(undefined);
  });
  try {
    await promise;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** Errors that we throw on purpose are the caller's to report; anything else is a defect here. */
function logUnexpected(log: Logger, method: string, error: unknown): void {
  if (error instanceof SubstrateError && errorCatalogue[error.code] !== errorCatalogue.INTERNAL) return;
  log.error("call failed", { method, error });
}

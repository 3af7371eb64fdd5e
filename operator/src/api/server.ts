import { type IncomingMessage, type ServerResponse } from "node:http";
import { createServer } from "node:https";
import { type Duplex } from "node:stream";
import { type SecureContextOptions, type TLSSocket } from "node:tls";
import { type Actor, actors } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { listen, type Listening } from "@substrate/lib/listen.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type TlsSource } from "@substrate/lib/rpc/tls.ts";
import { type Caller } from "./access.ts";
import { discovery, groupVersion } from "./discovery.ts";
import { type Forward, noLeader } from "./forward.ts";
import { type FrontProxy } from "./front-proxy.ts";
import { type ActorPath, parseActorPath } from "./paths.ts";
import { type Peer, peerOf } from "./peers.ts";
import { badRequest, MethodNotAllowed, PathNotFound, statusOf, type StatusObject } from "./status-error.ts";
import { refuseUpgrade, type UpgradeHandler, Upgrades } from "./upgrades.ts";

/** What a subresource does with a request for an actor that exists. */
export type Handler = (request: ApiRequest) => Promise<void>;

export interface ApiRequest {
  actor: Actor;
  path: ActorPath;
  query: URLSearchParams;
  /** As it came, with "?" if there is one. */
  search: string;
  caller: Caller;
  incoming: IncomingMessage;
  response: ServerResponse;
  /** Aborts when the client goes away. */
  signal: AbortSignal;
}

export interface ApiServerOptions {
  /** `host:port`; port 0 takes a free one. */
  listen: string;
  /** Of this part: what it serves with, and the authorities of other operators. */
  tls: TlsSource;
  frontProxy: FrontProxy;
  /** Common name of an operator's certificate. */
  operatorName: string;
  client: KubeClient;
  /** By subresource, each with its methods. */
  handlers: Record<string, { methods: readonly string[] | "any"; handle: Handler }>;
  /** By subresource, for WebSockets. */
  upgrades?: Record<string, UpgradeHandler>;
  /** GET of the cluster's nodes. */
  nodes?: (response: ServerResponse) => void;
  /** Where several operators are: to the one that leads. */
  forward?: Forward;
  log: Logger;
}

/**
 * The aggregated API. Only kube-apiserver, by the certificate of its front proxy, and other operators, which hand on
 * what it has asked them, may talk to it: their X-Remote headers are believed, and kube-apiserver has done the RBAC.
 */
export async function startApiServer(options: ApiServerOptions): Promise<Listening> {
  const { frontProxy, log, tls } = options;
  const context = (): SecureContextOptions => {
    const { ca, cert, key } = tls.current;
    return { cert, key, ca: [frontProxy.current.authorities, ca] };
  };
  const verification = { requestCert: true, rejectUnauthorized: true };
  // a log may be followed for hours; kube-apiserver bounds the short calls
  const server = createServer({ ...context(), ...verification, requestTimeout: 0 }, (incoming, response) => {
    serve(options, incoming, response).catch((error: unknown) => {
      answerError(options, incoming, response, error);
    });
  });
  const renew = (): void => {
    server.setSecureContext(context());
  };
  const stopRenewing = tls.onRenewal(renew);
  frontProxy.onChange(renew);
  const upgrades = new Upgrades();
  server.on("upgrade", (incoming: IncomingMessage, socket: Duplex, head: Buffer) => {
    upgrade(options, upgrades, incoming, socket, head).catch((error: unknown) => {
      const status = statusOf(error, parseActorPath((incoming.url ?? "/").split("?")[0] ?? "/")?.name);
      logRefusal(log, incoming, status, error);
      refuseUpgrade(socket, status);
    });
  });
  server.on("tlsClientError", (error) => {
    log.debug("connection refused", { error });
  });
  const listening = await listen(server, options.listen, "aggregated API");
  return {
    port: listening.port,
    close: async () => {
      stopRenewing();
      upgrades.close();
      options.forward?.close();
      await listening.close();
    },
  };
}

async function upgrade(
  options: ApiServerOptions,
  upgrades: Upgrades,
  incoming: IncomingMessage,
  socket: Duplex,
  head: Buffer,
): Promise<void> {
  const peer = identify(options, incoming);
  if (mustForward(options, peer)) {
    options.forward?.upgrade(incoming, socket, head);
    return;
  }
  const [pathname = "/"] = (incoming.url ?? "/").split("?");
  const path = parseActorPath(pathname);
  const handle = path === undefined ? undefined : options.upgrades?.[path.subresource];
  if (path === undefined || handle === undefined) throw new PathNotFound(`${pathname} takes no WebSocket`);
  await handle({
    actor: await actorOf(options.client, path),
    query: new URLSearchParams((incoming.url ?? "").slice(pathname.length)),
    caller: callerOf(incoming.headersDistinct),
    accept: () => upgrades.accept(incoming, socket, head),
  });
}

/** Throws SHUTTING_DOWN when another operator has taken this one for the leader. */
function mustForward({ forward }: ApiServerOptions, peer: Peer): boolean {
  if (forward?.isNeeded !== true) return false;
  if (peer === "operator") throw noLeader();
  return true;
}

async function actorOf(client: KubeClient, { name, namespace }: ActorPath): Promise<Actor> {
  const actor = await client.get(actors, name, namespace);
  if (actor === undefined) throw new SubstrateError("UNKNOWN_ACTOR", `Actor ${namespace}/${name} does not exist`);
  return actor;
}

async function serve(options: ApiServerOptions, incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  const peer = identify(options, incoming);
  const url = incoming.url ?? "/";
  const [pathname = "/"] = url.split("?");
  const search = url.slice(pathname.length);
  if (["/healthz", "/readyz", "/livez"].includes(pathname)) {
    response.writeHead(200, { "content-type": "text/plain" }).end("ok\n");
    return;
  }
  const document = discovery(pathname);
  if (document !== undefined) {
    answerJson(response, 200, document);
    return;
  }
  const path = parseActorPath(pathname);
  // a router answers for the actor, whoever leads
  if (path?.subresource !== "proxy" && mustForward(options, peer)) {
    await options.forward?.web(incoming, response);
    return;
  }
  if (options.nodes !== undefined && pathname === `/apis/${groupVersion}/nodes` && incoming.method === "GET") {
    options.nodes(response);
    return;
  }
  const handler = path === undefined ? undefined : options.handlers[path.subresource];
  if (path !== undefined && options.upgrades?.[path.subresource] !== undefined) {
    throw badRequest(
      `actors/${path.subresource} is a WebSocket: ask for an upgrade, as "kubectl ate ${path.subresource}" does`,
    );
  }
  if (path === undefined || handler === undefined) {
    const known = [...Object.keys(options.handlers), ...Object.keys(options.upgrades ?? {})].join(", ");
    throw new PathNotFound(`${pathname}: there is only /apis/${groupVersion}/namespaces/NS/actors/NAME/(${known})`);
  }
  const method = incoming.method ?? "GET";
  if (handler.methods !== "any" && !handler.methods.includes(method)) {
    throw new MethodNotAllowed(
      `${method} is not supported on actors/${path.subresource}: use ${handler.methods.join(" or ")}`,
    );
  }
  const actor = await actorOf(options.client, path);
  const abort = new AbortController();
  response.on("close", () => {
    abort.abort();
  });
  const caller = callerOf(incoming.headersDistinct);
  const query = new URLSearchParams(search);
  await handler.handle({ actor, path, query, search, caller, incoming, response, signal: abort.signal });
}

/** Throws FORBIDDEN. */
function identify({ frontProxy, operatorName, tls }: ApiServerOptions, { socket }: IncomingMessage): Peer {
  const partAuthorities = tls.current.ca.toString();
  return peerOf((socket as TLSSocket).getPeerX509Certificate(), {
    frontProxy: frontProxy.current,
    partAuthorities,
    operatorName,
  });
}

const extraPrefix = "x-remote-extra-";

/** The front proxy's headers; keys of extra are percent-encoded in their names. */
export function callerOf(headers: NodeJS.Dict<string[]>): Caller {
  const [uid] = headers["x-remote-uid"] ?? [];
  const extra = Object.entries(headers).flatMap(([name, values]) =>
    name.startsWith(extraPrefix) && values !== undefined
      ? [[decodeURIComponent(name.slice(extraPrefix.length)), values] as const]
      : [],
  );
  return {
    user: headers["x-remote-user"]?.[0] ?? "unknown",
    groups: headers["x-remote-group"] ?? [],
    extra: Object.fromEntries(extra),
    ...(uid === undefined ? {} : { uid }),
  };
}

export function answerJson(
  response: ServerResponse,
  code: number,
  body: object,
  headers: Record<string, string> = {},
): void {
  response.writeHead(code, { "content-type": "application/json", ...headers }).end(`${JSON.stringify(body)}\n`);
}

function logRefusal(log: Logger, { method, url }: IncomingMessage, status: StatusObject, error: unknown): void {
  const facts = { method, path: url, code: status.code };
  if (status.code >= 500 && status.code !== 503) log.error("request failed", { ...facts, error });
  // kube-apiserver looks for documents that not every API has (/openapi/v2), again and again
  else if (error instanceof PathNotFound) log.debug("request refused", { ...facts, message: status.message });
  else log.info("request refused", { ...facts, message: status.message });
}

function answerError(
  { log }: ApiServerOptions,
  incoming: IncomingMessage,
  response: ServerResponse,
  error: unknown,
): void {
  const status = statusOf(error, parseActorPath((incoming.url ?? "/").split("?")[0] ?? "/")?.name);
  logRefusal(log, incoming, status, error);
  if (response.headersSent) {
    // the reader must see that what it got is not the whole
    response.destroy();
    return;
  }
  const { retryAfterSeconds } = status.details;
  answerJson(
    response,
    status.code,
    status,
    retryAfterSeconds === undefined ? {} : { "retry-after": String(retryAfterSeconds) },
  );
}

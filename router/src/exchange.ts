import { type IncomingMessage, type ServerResponse } from "node:http";
import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type Dispatcher } from "undici";
import { Admission, type AdmissionDeps } from "./admission.ts";
import { hasBody, RequestBody } from "./body.ts";
import { requestHeaders, responseHeaders } from "./headers.ts";
import { sendError } from "./replies.ts";
import * as refusals from "./refusals.ts";
import { Ticket } from "./ticket.ts";
import { Tries } from "./tries.ts";
import { type UpstreamConnection, type UpstreamDispatch } from "./upstream-client.ts";

export interface ExchangeDeps extends AdmissionDeps {
  log: Logger;
  /** How long one unchanged Route may refuse connections before its program is taken to be the reason. */
  refusedPatienceMs: number;
  /** New connections aren't kept open any more. */
  isDraining(): boolean;
}

/**
 * Methods that may be sent twice (RFC 9110 §9.2.2). One is, once, when a kept connection breaks before any answer: its
 * program may have closed it just when the request came. A new connection that breaks was broken by the request.
 */
const idempotent: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"]);

/** One request and its response, from arrival to end; the handler of its own dispatches. */
export class Exchange implements Dispatcher.DispatchHandler {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #deps: ExchangeDeps;
  readonly #admission: Admission;
  readonly #tries: Tries;
  #ticket: Ticket | undefined;
  #body: RequestBody | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #connection: UpstreamConnection | undefined;
  #onKeptConnection = false;
  #clientGone = false;
  #repeated = false;
  #wroteBody = false;
  #result: string | undefined;

  constructor(request: IncomingMessage, response: ServerResponse, deps: ExchangeDeps) {
    this.#request = request;
    this.#response = response;
    this.#deps = deps;
    this.#admission = new Admission(deps);
    this.#tries = new Tries(deps.refusedPatienceMs);
  }

  start(): void {
    this.#response.on("close", () => {
      this.#closed();
    });
    try {
      const ticket = this.#admission.enter(this.#request);
      if (ticket instanceof Ticket) this.#send(ticket);
      else this.#sendLater(ticket);
    } catch (error) {
      this.#refuse(asSubstrateError(error));
    }
  }

  onUpstream(connection: UpstreamConnection): void {
    this.#connection = connection;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    this.#onKeptConnection = this.#connection?.use() === true;
    if (this.#clientGone) controller.abort(new Error("the client has gone"));
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    _headers: unknown,
    statusMessage?: string,
  ): void {
    // 100 has been answered by this server itself; 102 and 103 are hints that a client can do without
    if (status < 200) return;
    this.#result = resultClasses[Math.floor(status / 100)] ?? "other";
    if (this.#deps.isDraining()) this.#response.shouldKeepAlive = false;
    const headers = responseHeaders((controller.rawHeaders ?? []) as (Buffer | string)[]);
    this.#response.writeHead(status, statusMessage ?? "", headers);
    // Headers go with the first of the body where it is there already, else at once: an event stream may begin silent.
    process.nextTick(() => {
      if (!this.#wroteBody && !this.#response.destroyed) this.#response.flushHeaders();
    });
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#wroteBody = true;
    if (this.#response.write(chunk)) return;
    controller.pause();
    this.#response.once("drain", () => {
      controller.resume();
    });
  }

  onResponseEnd(): void {
    this.#wroteBody = true;
    this.#ticket?.close();
    this.#response.end();
  }

  onResponseError(_controller: Dispatcher.DispatchController | undefined, error: Error): void {
    const ticket = this.#ticket;
    ticket?.close();
    if (this.#clientGone || ticket === undefined) return;
    const code = "code" in error ? error.code : undefined;
    if (this.#response.headersSent) {
      this.#deps.log.debug("response cut", { actor: this.#admission.key, error });
      this.#response.destroy();
    } else if (code === "UND_ERR_INVALID_ARG" || code === "UND_ERR_REQ_CONTENT_LENGTH_MISMATCH") {
      this.#refuse(new SubstrateError("INVALID", `this request cannot be passed on: ${error.message}`));
    } else if (this.#controller === undefined) {
      this.#tryAgain(ticket, error);
    } else if (ticket.isCut) {
      // not sent again though it might be: who cut it wanted the actor stopped, not woken
      this.#refuse(refusals.cut(this.#admission.key));
    } else if (code === "UND_ERR_HEADERS_TIMEOUT") {
      this.#refuse(new SubstrateError("TIMEOUT", `actor ${this.#admission.key ?? ""} did not answer in time`));
    } else if (this.#mayRepeat(ticket)) {
      this.#repeated = true;
      this.#tryAgain(ticket, error);
    } else {
      this.#refuse(unreachable(this.#admission.key, `broke the connection before it had answered`, error));
    }
  }

  /** Once; while the atelet is away as often as is needed: all kept connections to the pod that was there may be dead. */
  #mayRepeat({ holding }: Ticket): boolean {
    if (!this.#onKeptConnection || (this.#repeated && holding.isAttached)) return false;
    return this.#body === undefined && idempotent.has(this.#request.method ?? "");
  }

  #sendLater(ticket: Promise<Ticket>): void {
    ticket.then(
      (granted) => {
        if (this.#clientGone) granted.close();
        else this.#send(granted);
      },
      (error: unknown) => {
        if (!this.#clientGone) this.#refuse(asSubstrateError(error));
      },
    );
  }

  #send(ticket: Ticket): void {
    this.#ticket = ticket;
    this.#controller = undefined;
    if (hasBody(this.#request)) {
      this.#body = new RequestBody(this.#request);
      this.#body.on("error", (error) => {
        this.#controller?.abort(error);
      });
    }
    const { method = "GET" } = this.#request;
    const path = originForm(this.#request.url ?? "/");
    const headers = requestHeaders(this.#request);
    const options: UpstreamDispatch = { path, method, headers, body: this.#body ?? null, user: this };
    ticket.upstream.pool.dispatch(options, this);
  }

  #tryAgain(ticket: Ticket, error: Error): void {
    const after = this.#tries.failed(ticket);
    if (after === undefined || this.#body?.begun === true) {
      const port = `${ticket.upstream.portName} (${ticket.upstream.containerPort})`;
      this.#refuse(unreachable(this.#admission.key, `accepts no connection on its port ${port}`, error));
      return;
    }
    this.#sendLater(this.#admission.hold(after));
  }

  #refuse(error: SubstrateError): void {
    this.#result = error.code;
    if (error.code === "INTERNAL") this.#deps.log.error("request failed", { actor: this.#admission.key, error });
    if (this.#response.headersSent) {
      this.#response.destroy();
      return;
    }
    if (this.#deps.isDraining()) this.#response.shouldKeepAlive = false;
    sendError(this.#response, error, this.#admission.key);
  }

  /** The response has ended, or its client has gone before that. */
  #closed(): void {
    if (!this.#response.writableFinished) {
      this.#clientGone = true;
      this.#result = "client_gone";
      this.#admission.leave();
      this.#controller?.abort(new Error("the client has gone"));
      this.#ticket?.close();
    }
    const seconds = (performance.now() - this.#admission.arrivedAt) / 1000;
    this.#deps.metrics.answered(this.#result ?? "other", seconds);
  }
}

const resultClasses: Readonly<Record<number, string>> = { 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx" };

/** The path and query of a request line; proxies may be sent the whole URL (RFC 9112 §3.2.2). */
function originForm(url: string): string {
  if (url.startsWith("/") || !URL.canParse(url)) return url;
  const { pathname, search } = new URL(url);
  return pathname + search;
}

function unreachable(key: string | undefined, what: string, cause: Error): SubstrateError {
  return new SubstrateError("ACTOR_UNREACHABLE", `actor ${key ?? ""} ${what}: ${cause.message}`, { cause });
}

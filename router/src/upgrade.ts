import { type ClientRequest, type IncomingMessage, request as httpRequest } from "node:http";
import { type Duplex } from "node:stream";
import { asSubstrateError, SubstrateError } from "@substrate/lib/errors.ts";
import { Admission } from "./admission.ts";
import { type ExchangeDeps } from "./exchange.ts";
import { requestHeaders } from "./headers.ts";
import { sendErrorRaw } from "./replies.ts";
import * as refusals from "./refusals.ts";
import { Ticket } from "./ticket.ts";
import { Tries } from "./tries.ts";

/**
 * A request that asks for another protocol (WebSocket): its two connections are joined, and it counts as open until
 * one of them ends. An answer other than 101 is passed on as it is.
 */
export class Upgrade {
  readonly #request: IncomingMessage;
  readonly #socket: Duplex;
  readonly #head: Buffer;
  readonly #deps: ExchangeDeps;
  readonly #admission: Admission;
  readonly #tries: Tries;
  #ticket: Ticket | undefined;
  #outgoing: ClientRequest | undefined;
  #clientGone = false;
  #result = "upgraded";

  constructor(request: IncomingMessage, socket: Duplex, head: Buffer, deps: ExchangeDeps) {
    this.#request = request;
    this.#socket = socket;
    this.#head = head;
    this.#deps = deps;
    this.#admission = new Admission(deps);
    this.#tries = new Tries(deps.refusedPatienceMs);
  }

  start(): void {
    this.#socket.on("error", (error) => {
      this.#deps.log.debug("upgraded connection broke", { actor: this.#admission.key, error });
    });
    this.#socket.on("close", () => {
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
    if (ticket.isCut) {
      this.#failed(ticket, new Error("its route changed"), false);
      return;
    }
    const headers = [
      ...requestHeaders(this.#request),
      "Connection",
      "Upgrade",
      "Upgrade",
      this.#request.headers.upgrade ?? "",
    ];
    const { address, port } = ticket.upstream;
    const { method = "GET", url = "/" } = this.#request;
    const outgoing = httpRequest({ host: address, port, method, path: url, headers, agent: false, setHost: false });
    this.#outgoing = outgoing;
    let connected = false;
    outgoing.on("socket", (socket) => {
      socket.once("connect", () => {
        connected = true;
      });
    });
    let answered = false;
    ticket.onCut = () => {
      if (answered) this.#socket.destroy();
      else outgoing.destroy(new Error("the actor was stopped"));
    };
    outgoing.on("upgrade", (response: IncomingMessage, upstream: Duplex, upstreamHead: Buffer) => {
      answered = true;
      this.#join(ticket, response, upstream, upstreamHead);
    });
    outgoing.on("response", (response) => {
      answered = true;
      this.#result = "not_upgraded";
      this.#socket.write(statusAndHeaders(response, "close"));
      response.on("close", () => {
        ticket.close();
        if (!response.complete) this.#socket.destroy();
      });
      response.pipe(this.#socket);
    });
    outgoing.on("error", (error) => {
      ticket.close();
      if (!this.#clientGone) this.#failed(ticket, error, connected);
    });
    outgoing.end();
  }

  #failed(ticket: Ticket, error: Error, connected: boolean): void {
    const after = connected ? undefined : this.#tries.failed(ticket);
    if (connected && ticket.isCut) {
      this.#refuse(refusals.cut(this.#admission.key));
      return;
    }
    if (after === undefined) {
      const message = `actor ${this.#admission.key ?? ""} did not accept the upgrade: ${error.message}`;
      this.#refuse(new SubstrateError("ACTOR_UNREACHABLE", message, { cause: error }));
      return;
    }
    this.#sendLater(this.#admission.hold(after));
  }

  #join(ticket: Ticket, response: IncomingMessage, upstream: Duplex, upstreamHead: Buffer): void {
    this.#socket.write(statusAndHeaders(response, "Upgrade"));
    if (upstreamHead.length > 0) this.#socket.write(upstreamHead);
    if (this.#head.length > 0) upstream.write(this.#head);
    upstream.on("error", (error) => {
      this.#deps.log.debug("upgraded connection to the actor broke", { actor: this.#admission.key, error });
    });
    // An orderly end travels through the pipes, with all that was sent before it; anything else ends both at once.
    upstream.on("close", () => {
      ticket.close();
      if (!upstream.readableEnded) this.#socket.destroy();
    });
    this.#socket.on("close", () => upstream.destroy());
    upstream.pipe(this.#socket).pipe(upstream);
  }

  #refuse(error: SubstrateError): void {
    this.#result = error.code;
    if (error.code === "INTERNAL") this.#deps.log.error("upgrade failed", { actor: this.#admission.key, error });
    sendErrorRaw(this.#socket, error, this.#admission.key);
  }

  #closed(): void {
    this.#clientGone = true;
    this.#admission.leave();
    this.#outgoing?.destroy();
    this.#ticket?.close();
    this.#deps.metrics.answered(this.#result, (performance.now() - this.#admission.arrivedAt) / 1000);
  }
}

function statusAndHeaders(response: IncomingMessage, connection: string): string {
  const { statusCode = 502, statusMessage = "", rawHeaders } = response;
  const lines = [`HTTP/1.1 ${statusCode} ${statusMessage}`];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? "";
    const lower = name.toLowerCase();
    // the parser has undone the chunks; the connection's end is the body's end
    if (lower === "connection" || lower === "transfer-encoding" || lower === "keep-alive") continue;
    lines.push(`${name}: ${rawHeaders[i + 1] ?? ""}`);
  }
  lines.push(`Connection: ${connection}`);
  return `${lines.join("\r\n")}\r\n\r\n`;
}

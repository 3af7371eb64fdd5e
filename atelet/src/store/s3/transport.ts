import { connect as connectPlain, isIP, type Socket } from "node:net";
import { Readable } from "node:stream";
import { connect as connectSecure } from "node:tls";
import pLimit from "p-limit";
import { type S3Limits } from "./limits.ts";
import { Wire, type Answer } from "./wire.ts";

/** The SDK's, as far as it is used here. */
interface Request {
  method: string;
  protocol: string;
  hostname: string;
  port?: number;
  path: string;
  query?: Record<string, string | string[] | null>;
  headers: Record<string, string>;
  body?: unknown;
}

interface Response {
  statusCode: number;
  headers: Record<string, string>;
  body?: unknown;
}

interface Handler {
  handle(request: Request, options?: object): Promise<{ response: Response }>;
  destroy?: () => void;
}

/** Options of one request: what the SDK's `send` takes, and more. */
export interface Bound {
  abortSignal: AbortSignal;
  requestTimeout: number;
  /** Where the body of the answer goes. */
  into?: Uint8Array;
  /** The answer is a document that counts only whole: one that breaks off is asked for again. */
  whole?: boolean;
}

/** Less than this goes by the SDK's own handler. */
const leastBodyBytes = 128 << 10;
/** What is read at once; all connections share the buffer, since nothing of it is used after a read. */
const readBytes = 256 << 10;
/** Servers close a connection that rests longer. */
const restMs = 8_000;

/**
 * How the SDK's requests get to the server: large bodies and documents on wires of our own, all
 * else by its own handler. Signatures,
 * repetitions and errors stay the SDK's for both.
 */
export class Transport implements Handler {
  /** The SDK names it in its requests. */
  readonly metadata = { handlerProtocol: "http/1.1" };
  readonly #inner: Handler;
  readonly #limits: S3Limits;
  readonly #authorities: () => Buffer | undefined;
  readonly #turn: ReturnType<typeof pLimit>;
  readonly #shared = Buffer.allocUnsafeSlow(readBytes);
  readonly #sockets = new Set<Socket>();
  /** The one that was used last comes first again. */
  readonly #resting = new Map<string, Wire[]>();
  #session: Buffer | undefined;

  /** @param authorities that are believed, in PEM; undefined: the public ones. */
  constructor(inner: Handler, limits: S3Limits, authorities: () => Buffer | undefined) {
    this.#inner = inner;
    this.#limits = limits;
    this.#authorities = authorities;
    this.#turn = pLimit(limits.connections);
  }

  destroy(): void {
    this.#inner.destroy?.();
    for (const socket of this.#sockets) socket.destroy();
  }

  handle(request: Request, given: object = {}): Promise<{ response: Response }> {
    // of the connection, the only one who sends
    const options = given as Partial<Bound>;
    const bytes = request.body instanceof Uint8Array ? request.body : undefined;
    const own = options.into !== undefined || options.whole === true || (bytes?.length ?? 0) >= leastBodyBytes;
    if (!own) return this.#inner.handle(request, options);
    return this.#turn(async () => {
      const { statusCode, headers, body: answered } = await this.#ask(request, bytes, options);
      const stream = Readable.from(answered.length === 0 ? [] : [answered]);
      return { response: { statusCode, headers, body: stream } };
    });
  }

  async #ask(request: Request, body: Uint8Array | undefined, options: Partial<Bound>): Promise<Answer> {
    const signal = options.abortSignal;
    const question = {
      head: headOf(request),
      body,
      into: options.into,
      signal,
      answerMs: options.requestTimeout ?? this.#limits.partAttemptMs,
    };
    const origin = `${request.protocol}//${request.hostname}:${request.port ?? ""}`;
    for (;;) {
      const rested = this.#rested(origin);
      const wire = rested ?? (await this.#connect(request, signal));
      try {
        const answer = await wire.ask(question);
        this.#rest(origin, wire);
        return answer;
      } catch (error) {
        // The server had closed it meanwhile: no failure of the store. A new connection has no such excuse.
        if (rested === undefined || !(error instanceof Error) || !("stale" in error)) throw error;
      }
    }
  }

  #rested(origin: string): Wire | undefined {
    const wires = this.#resting.get(origin) ?? [];
    for (let wire = wires.pop(); wire !== undefined; wire = wires.pop()) if (wire.usable) return wire;
    return undefined;
  }

  #rest(origin: string, wire: Wire): void {
    if (!wire.usable) return;
    wire.rest(restMs);
    const wires = (this.#resting.get(origin) ?? []).filter(({ usable }) => usable);
    this.#resting.set(origin, [...wires, wire]);
  }

  async #connect(request: Request, signal: AbortSignal | undefined): Promise<Wire> {
    let take: (bytes: Buffer) => void = () => undefined;
    const secure = request.protocol === "https:";
    const host = request.hostname.replace(/^\[|\]$/g, "");
    const ca = this.#authorities();
    const options = {
      host,
      port: request.port ?? (secure ? 443 : 80),
      noDelay: true,
      ...(isIP(host) === 0 ? { servername: host } : {}),
      ...(ca === undefined ? {} : { ca }),
      ...(this.#session === undefined ? {} : { session: this.#session }),
      onread: {
        buffer: this.#shared,
        callback: (lengthBytes: number): boolean => {
          take(this.#shared.subarray(0, lengthBytes));
          return true;
        },
      },
    };
    const socket = secure ? connectSecure(options) : connectPlain(options);
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    socket.on("session", (session: Buffer) => {
      this.#session = session;
    });
    await this.#connected(socket, secure ? "secureConnect" : "connect", signal);
    const wire = new Wire(socket, this.#limits);
    take = (bytes) => {
      wire.take(bytes);
    };
    return wire;
  }

  #connected(socket: Socket, event: string, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (error?: Error): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", stop);
        socket.removeListener("error", end);
        if (error === undefined) {
          resolve();
          return;
        }
        // a session that the server does not take is not offered again
        this.#session = undefined;
        socket.on("error", () => undefined);
        socket.destroy();
        reject(error);
      };
      const stop = (): void => {
        end(Object.assign(new Error("not done in time"), { name: "AbortError" }));
      };
      const timer = setTimeout(() => {
        const message = `no connection within ${this.#limits.connectMs} ms`;
        end(Object.assign(new Error(message), { code: "ETIMEDOUT" }));
      }, this.#limits.connectMs);
      socket.once(event, () => {
        end();
      });
      socket.once("error", end);
      socket.once("close", () => {
        end(Object.assign(new Error("the connection was closed at once"), { code: "ECONNRESET" }));
      });
      if (signal?.aborted === true) stop();
      signal?.addEventListener("abort", stop, { once: true });
    });
  }
}

function headOf(request: Request): string {
  const query = Object.entries(request.query ?? {})
    .flatMap(([name, value]) =>
      value === null ? [escaped(name)] : [value].flat().map((one) => `${escaped(name)}=${escaped(one)}`),
    )
    .join("&");
  const lines = Object.entries(request.headers).map(([name, value]) => {
    if (/[\r\n]/.test(`${name}${value}`)) throw new Error(`the header ${name} has a line break`);
    return `${name}: ${value}\r\n`;
  });
  const hasHost = Object.keys(request.headers).some((name) => name.toLowerCase() === "host");
  const port = request.port === undefined ? "" : `:${request.port}`;
  const host = hasHost ? "" : `host: ${request.hostname}${port}\r\n`;
  const path = `${request.path}${query === "" ? "" : `?${query}`}`;
  return `${request.method} ${path} HTTP/1.1\r\n${host}${lines.join("")}\r\n`;
}

/** As the signature has it: RFC 3986. */
function escaped(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

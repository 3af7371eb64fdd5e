import { once } from "node:events";
import { createServer, request as send, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type AddressInfo } from "node:net";
import { type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as delay } from "node:timers/promises";

/** What goes wrong with one request. */
export interface Fault {
  /** Answered by the proxy; the server never sees the request. */
  answer?: { status: number; code: string; headers?: Record<string, string> };
  /** The connection is lost once so many bytes of the body went up, or came down. */
  cutUpAt?: number;
  cutDownAt?: number;
  /** The answer says so many bytes less than it has, and ends there. */
  shorterBy?: number;
  /** One byte of the body is another one. */
  mangled?: "up" | "down";
  /** Of each body. */
  bytesPerSecond?: number;
}

export type Faults = (request: IncomingMessage, nth: number) => Fault | undefined;

/** Between a client and a server that speaks HTTP: passes requests on, but for those that faults are wanted for. */
export class FaultyProxy {
  readonly #server: Server;
  readonly #target: number;
  /** Requests so far, by method. */
  readonly seen: string[] = [];
  faults: Faults = () => undefined;

  private constructor(target: number) {
    this.#target = target;
    this.#server = createServer((request, answer) => {
      this.seen.push(request.method ?? "");
      const { socket } = request;
      // a connection that is lost is the client's to notice
      this.#pass(request, answer, this.faults(request, this.seen.length) ?? {}).catch(() => socket.destroy());
    });
    this.#server.on("checkContinue", (request, answer) => {
      answer.writeContinue();
      this.#server.emit("request", request, answer);
    });
  }

  static async start(target: number): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(target);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #pass(request: IncomingMessage, answer: ServerResponse, fault: Fault): Promise<void> {
    if (fault.answer !== undefined) {
      const { status, code, headers = {} } = fault.answer;
      request.resume();
      await once(request, "end");
      answer.writeHead(status, { "content-type": "application/xml", ...headers });
      answer.end(`<Error><Code>${code}</Code><Message>said the proxy</Message></Error>`);
      return;
    }
    const { method, url: path, rawHeaders: headers } = request;
    const far = send({ host: "127.0.0.1", port: this.#target, method, path, headers });
    const answered = once(far, "response") as Promise<[IncomingMessage]>;
    // also without a listener yet
    answered.catch(() => undefined);
    try {
      await carry(request, far, { ...fault, cutAt: fault.cutUpAt, mangled: fault.mangled === "up" });
      const [response] = await answered;
      const length = Number(response.headers["content-length"]) - (fault.shorterBy ?? 0);
      const said = fault.shorterBy === undefined ? {} : { "content-length": length };
      answer.writeHead(response.statusCode ?? 500, { ...response.headers, ...said });
      const cutAt = fault.shorterBy === undefined ? fault.cutDownAt : length;
      await carry(response, answer, { ...fault, cutAt, mangled: fault.mangled === "down" });
    } finally {
      far.destroy();
    }
  }
}

async function carry(
  from: IncomingMessage,
  to: Writable,
  fault: { cutAt: number | undefined; mangled: boolean; bytesPerSecond?: number },
): Promise<void> {
  const { cutAt = Infinity, bytesPerSecond } = fault;
  await pipeline(
    from,
    async function* (source: AsyncIterable<Buffer>) {
      let carried = 0;
      for await (const chunk of source) {
        const atOnce = bytesPerSecond === undefined ? chunk.length : Math.ceil(bytesPerSecond / 20);
        for (let start = 0; start < chunk.length; start += atOnce) {
          const some = chunk.subarray(start, Math.min(start + atOnce, start + cutAt - carried));
          if (fault.mangled && carried === 0 && some.length > 0) some[0] = (some[0] ?? 0) ^ 1;
          carried += some.length;
          yield some;
          if (bytesPerSecond !== undefined) await delay(50);
          if (carried < cutAt) continue;
          // what was passed on is to be seen by the other side
          await delay(20);
          throw new Error("the connection is lost");
        }
      }
    },
    to,
  );
}

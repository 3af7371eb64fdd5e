import { type Socket } from "node:net";
import { MalformedAnswer, readChunks, readHead, type AnswerHead } from "./answer.ts";

export interface Question {
  /** The request up to its empty line. */
  head: string;
  body: Uint8Array | undefined;
  /** Where the body of a successful answer goes, which must be as long; what is there after a failure is anything. */
  into: Uint8Array | undefined;
  signal: AbortSignal | undefined;
  /** How long the answer may begin after the request was handed over. */
  answerMs: number;
}

export interface Answer {
  statusCode: number;
  headers: Record<string, string>;
  /** Empty if it went elsewhere, or was not as long as its place. */
  body: Buffer;
}

export interface Pace {
  idleMs: number;
  leastBytesPerSecond: number;
}

/** An answer that has no place is a document. */
const maxBodyBytes = 16 << 20;
const firstChunkBytes = 64 << 10;
const maxChunkBytes = 2 << 20;
/** A chunk that takes less than half of it is followed by a larger one, one that takes twice of it by a smaller one. */
const chunkMs = 200;
/** The kernel takes in steps what goes out slowly: progress is seen less often. */
const sendingFactor = 3;

interface Exchange {
  question: Question;
  resolve: (answer: Answer) => void;
  reject: (error: Error) => void;
  /** All that has gone or come. */
  movedBytes: number;
  cameBytes: number;
  sent: boolean;
  head: AnswerHead | undefined;
  gathered: Buffer;
  filledBytes: number;
  timer: NodeJS.Timeout | undefined;
  stop: () => void;
}

/**
 * A connection that carries one request after the other by HTTP/1.1, made for large bodies: one goes out as it lies in
 * memory, one that comes goes to its place with a single copy. Node's own client and undici make a buffer of every 64
 * KiB that come, and cost two to three times the CPU.
 */
export class Wire {
  readonly #socket: Socket;
  readonly #pace: Pace;
  #exchange: Exchange | undefined;
  #usable = true;
  #used = false;

  /** @param socket connected, whose `onread` calls `take`. */
  constructor(socket: Socket, pace: Pace) {
    this.#socket = socket;
    this.#pace = pace;
    socket.on("error", (error) => {
      this.#fail(error);
    });
    socket.on("close", () => {
      this.#closed();
    });
    // of one that rests
    socket.on("timeout", () => {
      this.destroy();
    });
  }

  /** Whether it may carry another request. */
  get usable(): boolean {
    return this.#usable && this.#exchange === undefined;
  }

  destroy(): void {
    this.#usable = false;
    this.#socket.destroy();
  }

  /** Waits to be used again, this long at most. */
  rest(ms: number): void {
    this.#socket.unref();
    this.#socket.setTimeout(ms);
  }

  /** Rejects with an Error whose `code` says what went wrong; `unused` of it: the server had closed the connection. */
  ask(question: Question): Promise<Answer> {
    this.#socket.ref();
    this.#socket.setTimeout(0);
    return new Promise<Answer>((resolve, reject) => {
      const stop = (): void => {
        this.#fail(coded("AbortError", "not done in time"));
      };
      const exchange: Exchange = {
        question,
        resolve,
        reject,
        movedBytes: 0,
        cameBytes: 0,
        sent: false,
        head: undefined,
        gathered: Buffer.alloc(0),
        filledBytes: 0,
        timer: undefined,
        stop,
      };
      this.#exchange = exchange;
      if (question.signal?.aborted === true) {
        stop();
        return;
      }
      question.signal?.addEventListener("abort", stop, { once: true });
      this.#watchPace(exchange, sendingFactor);
      void this.#send(exchange);
    });
  }

  /** What came; nothing of it is used after the call. */
  take(bytes: Buffer): void {
    const exchange = this.#exchange;
    // nobody asked
    if (exchange === undefined) {
      this.destroy();
      return;
    }
    exchange.movedBytes += bytes.length;
    exchange.cameBytes += bytes.length;
    try {
      this.#read(exchange, bytes);
    } catch (error) {
      this.#fail(error instanceof Error ? error : new MalformedAnswer(String(error)));
    }
  }

  async #send(exchange: Exchange): Promise<void> {
    const { head, body } = exchange.question;
    this.#socket.write(head, "latin1");
    const sizeBytes = body?.byteLength ?? 0;
    let chunkBytes = firstChunkBytes;
    for (let sent = 0; body !== undefined && sent < sizeBytes && this.#exchange === exchange;) {
      const chunk = body.subarray(sent, sent + chunkBytes);
      const startedAt = performance.now();
      await new Promise<void>((resolve) => {
        // an error is the socket's, and told there
        this.#socket.write(chunk, () => {
          resolve();
        });
      });
      const tookMs = performance.now() - startedAt;
      exchange.movedBytes += chunk.length;
      sent += chunk.length;
      if (tookMs < chunkMs / 2) chunkBytes = Math.min(2 * chunkBytes, maxChunkBytes);
      if (tookMs > chunkMs * 2) chunkBytes = Math.max(chunkBytes / 2, firstChunkBytes);
    }
    exchange.sent = true;
    if (this.#exchange === exchange && exchange.head === undefined) this.#watchAnswer(exchange);
  }

  #read(exchange: Exchange, bytes: Buffer): void {
    let rest = bytes;
    if (exchange.head === undefined) {
      exchange.gathered = Buffer.concat([exchange.gathered, bytes]);
      const read = readHead(exchange.gathered);
      if (read === undefined) return;
      rest = exchange.gathered.subarray(read.lengthBytes);
      exchange.gathered = Buffer.alloc(0);
      exchange.head = read.head;
      this.#watchPace(exchange, 1);
    }
    const { head, question } = exchange;
    const { into } = question;
    const fills = into !== undefined && head.statusCode < 300;
    if (fills && head.body !== into.length) {
      // its reader sees that by the headers
      this.#finish(exchange, head, Buffer.alloc(0), { keep: false });
    } else if (fills) {
      if (exchange.filledBytes + rest.length > into.length) throw new MalformedAnswer("more came than was announced");
      into.set(rest, exchange.filledBytes);
      exchange.filledBytes += rest.length;
      if (exchange.filledBytes === into.length) this.#finish(exchange, head, Buffer.alloc(0));
    } else {
      this.#gather(exchange, head, rest);
    }
  }

  #gather(exchange: Exchange, head: AnswerHead, rest: Buffer): void {
    const gathered = Buffer.concat([exchange.gathered, rest]);
    exchange.gathered = gathered;
    if (gathered.length > maxBodyBytes) throw new MalformedAnswer("the answer is longer than any that was expected");
    if (head.body === "toEnd") return;
    if (head.body === "chunked") {
      const body = readChunks(gathered);
      if (body !== undefined) this.#finish(exchange, head, body);
    } else if (gathered.length >= head.body) {
      this.#finish(exchange, head, gathered.subarray(0, head.body), { keep: gathered.length === head.body });
    }
  }

  #closed(): void {
    this.#usable = false;
    const exchange = this.#exchange;
    if (exchange === undefined) return;
    const { head, question, filledBytes } = exchange;
    if (head?.body === "toEnd") this.#finish(exchange, head, exchange.gathered, { keep: false });
    else if (head === undefined) this.#fail(coded("ECONNRESET", "the connection was closed before an answer"));
    else {
      const all = question.into?.length ?? head.body;
      this.#fail(coded("ShortBody", `the connection was closed after ${filledBytes} of ${all} bytes`));
    }
  }

  #finish(exchange: Exchange, head: AnswerHead, body: Buffer, { keep = true } = {}): void {
    this.#end(exchange);
    // one who answers before all was sent reads no more of it
    if (!keep || !head.keep || !exchange.sent) this.destroy();
    if (!exchange.sent && head.statusCode < 300) {
      exchange.reject(new MalformedAnswer("the server was content before it had all"));
      return;
    }
    exchange.resolve({ statusCode: head.statusCode, headers: head.headers, body });
  }

  #fail(error: Error): void {
    const exchange = this.#exchange;
    if (exchange !== undefined) {
      this.#end(exchange);
      const stale =
        this.#used && exchange.cameBytes === 0 && !["AbortError", "TooSlow", "AnswerTimeout"].includes(codeOf(error));
      exchange.reject(stale ? Object.assign(error, { stale }) : error);
    }
    this.destroy();
  }

  #end(exchange: Exchange): void {
    clearTimeout(exchange.timer);
    exchange.question.signal?.removeEventListener("abort", exchange.stop);
    this.#exchange = undefined;
    this.#used = true;
  }

  #watchAnswer(exchange: Exchange): void {
    clearTimeout(exchange.timer);
    exchange.timer = setTimeout(() => {
      this.#fail(coded("AnswerTimeout", `no answer within ${exchange.question.answerMs} ms`));
    }, exchange.question.answerMs);
  }

  #watchPace(exchange: Exchange, factor: number): void {
    clearTimeout(exchange.timer);
    const windowMs = this.#pace.idleMs * factor;
    const leastBytes = (this.#pace.leastBytesPerSecond * windowMs) / 1000;
    const before = exchange.movedBytes;
    exchange.timer = setTimeout(() => {
      const moved = exchange.movedBytes - before;
      if (moved >= leastBytes) this.#watchPace(exchange, factor);
      else this.#fail(coded("TooSlow", `${moved} bytes went through a connection in ${windowMs / 1000} s`));
    }, windowMs);
  }
}

function codeOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : "";
}

function coded(code: string, message: string): Error {
  return Object.assign(new Error(message), { code, ...(code === "AbortError" ? { name: code } : {}) });
}

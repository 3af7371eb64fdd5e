import { type IncomingMessage } from "node:http";
import { Readable } from "node:stream";

export function hasBody(request: IncomingMessage): boolean {
  const { headers } = request;
  if (headers["transfer-encoding"] !== undefined) return true;
  const length = headers["content-length"];
  return length !== undefined && length !== "0";
}

/**
 * A request's body on its way to an actor. Nothing of the request is read before the upstream asks, so that a
 * connection which fails leaves it whole for the next try; destroying this leaves the client's connection alone.
 */
export class RequestBody extends Readable {
  readonly #request: IncomingMessage;
  #begun = false;

  constructor(request: IncomingMessage) {
    super({ highWaterMark: 64 * 1024 });
    this.#request = request;
  }

  get begun(): boolean {
    return this.#begun;
  }

  override _read(): void {
    if (this.#begun) {
      this.#request.resume();
      return;
    }
    this.#begun = true;
    this.#request.on("data", this.#onData);
    this.#request.on("end", this.#onEnd);
    this.#request.on("error", this.#onError);
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    if (this.#begun) {
      this.#request.off("data", this.#onData);
      this.#request.off("end", this.#onEnd);
      this.#request.off("error", this.#onError);
    }
    callback(error);
  }

  readonly #onData = (chunk: Buffer): void => {
    if (!this.push(chunk)) this.#request.pause();
  };

  readonly #onEnd = (): void => {
    this.push(null);
  };

  readonly #onError = (error: Error): void => {
    this.destroy(error);
  };
}

import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { type LinkAnswer, type LinkOrder, type LinkShape } from "./link.ts";

/** What a router on the way would hold before it stops its senders. */
const QUEUE_BYTES = 4 * 2 ** 20;
/** Of one receiver that does not read. */
const RECEIVER_BYTES = 2 ** 20;

interface Chunk {
  bytes: Buffer;
  to: Socket;
  dueMs: number;
}

/** One direction of the link, shared by all connections: chunks leave it in order, at its rate, after its delay. */
class Direction {
  carriedBytes = 0;
  readonly #shape: () => LinkShape;
  readonly #queue: Chunk[] = [];
  readonly #stopped = new Set<Socket>();
  #freeMs = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(shape: () => LinkShape) {
    this.#shape = shape;
  }

  join(from: Socket, to: Socket): void {
    from.on("data", (bytes: Buffer) => {
      this.#take(bytes, to);
      if (this.#waitingBytes() > QUEUE_BYTES) this.#stop(from);
      else if (to.writableLength > RECEIVER_BYTES) {
        from.pause();
        to.once("drain", () => from.resume());
      }
    });
    from.once("close", () => this.#stopped.delete(from));
  }

  #take(bytes: Buffer, to: Socket): void {
    this.carriedBytes += bytes.length;
    const { mibPerSecond, delayMs } = this.#shape();
    const now = performance.now();
    this.#freeMs = Math.max(this.#freeMs, now);
    if (mibPerSecond > 0) this.#freeMs += (bytes.length / 2 ** 20 / mibPerSecond) * 1000;
    const dueMs = this.#freeMs + delayMs / 2;
    if (dueMs <= now && this.#queue.length === 0) {
      to.write(bytes);
      return;
    }
    this.#queue.push({ bytes, to, dueMs });
    this.#timer ??= setTimeout(this.#pass, dueMs - now);
  }

  readonly #pass = (): void => {
    this.#timer = undefined;
    const now = performance.now();
    let passed = 0;
    for (const { bytes, to, dueMs } of this.#queue) {
      if (dueMs > now) break;
      if (!to.destroyed) to.write(bytes);
      passed += 1;
    }
    this.#queue.splice(0, passed);
    if (this.#waitingBytes() < QUEUE_BYTES / 2) {
      for (const socket of this.#stopped) socket.resume();
      this.#stopped.clear();
    }
    const next = this.#queue[0];
    if (next !== undefined) this.#timer = setTimeout(this.#pass, Math.max(0, next.dueMs - now));
  };

  /** For their turn at the rate; what is on its way already is in nobody's queue, however long that is. */
  #waitingBytes(): number {
    return (Math.max(0, this.#freeMs - performance.now()) / 1000) * this.#shape().mibPerSecond * 2 ** 20;
  }

  #stop(socket: Socket): void {
    socket.pause();
    this.#stopped.add(socket);
  }

  /** After what is under way on this direction. */
  end(to: Socket): void {
    const last = this.#queue.findLast((chunk) => chunk.to === to);
    if (last === undefined) to.end();
    else setTimeout(() => to.end(), Math.max(0, last.dueMs - performance.now()) + 2);
  }
}

function main(target: number): void {
  let shape: LinkShape = { mibPerSecond: 0, delayMs: 0 };
  const up = new Direction(() => shape);
  const down = new Direction(() => shape);
  const server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true }, (client) => {
    const far = connect({ port: target, host: "127.0.0.1", allowHalfOpen: true, noDelay: true });
    up.join(client, far);
    down.join(far, client);
    client.once("end", () => {
      up.end(far);
    });
    far.once("end", () => {
      down.end(client);
    });
    // either end's failure is the other's too
    for (const [one, other] of [
      [client, far],
      [far, client],
    ] as const) {
      one.on("error", () => other.destroy());
    }
    // the handshake of a real link takes a round trip before the first byte leaves
    void delay(shape.delayMs).then(() => client.resume());
  });
  server.listen(0, "127.0.0.1", () => {
    say({ kind: "listening", port: (server.address() as AddressInfo).port });
  });
  process.on("message", (order: LinkOrder) => {
    if (order.kind === "shape") shape = order.shape;
    say({ kind: "state", carriedUpBytes: up.carriedBytes, carriedDownBytes: down.carriedBytes });
  });
  // whoever started it is gone
  process.once("disconnect", () => process.exit(0));
}

function say(answer: LinkAnswer): void {
  process.send?.(answer);
}

main(Number(process.argv[2]));

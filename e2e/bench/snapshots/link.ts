import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";

/** A line to somewhere. */
export interface LinkShape {
  /** Of each direction, for all connections together; 0: as fast as it can. */
  mibPerSecond: number;
  /** Of a round trip. */
  delayMs: number;
}

export type LinkOrder = { kind: "shape"; shape: LinkShape } | { kind: "state" };
export type LinkAnswer =
  { kind: "listening"; port: number } | { kind: "state"; carriedUpBytes: number; carriedDownBytes: number };

/** A TCP proxy with a rate and a delay, in a process of its own so that nobody's event loop pays for it. */
export class Link {
  readonly port: number;
  readonly #process: ChildProcess;

  private constructor(child: ChildProcess, port: number) {
    this.#process = child;
    this.port = port;
  }

  /** @param target port of this machine that it leads to. */
  static async start(target: number): Promise<Link> {
    const child = fork(join(import.meta.dirname, "link-process.ts"), [`${target}`], { stdio: "inherit" });
    const [first] = (await once(child, "message", { signal: AbortSignal.timeout(10_000) })) as [LinkAnswer];
    if (first.kind !== "listening") throw new Error("the link did not say where it listens");
    return new Link(child, first.port);
  }

  async shape(shape: LinkShape): Promise<void> {
    await this.#ask({ kind: "shape", shape });
  }

  async carriedUpBytes(): Promise<number> {
    return (await this.#ask({ kind: "state" })).carriedUpBytes;
  }

  async stop(): Promise<void> {
    // it may have ended by itself
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = once(this.#process, "exit");
    this.#process.disconnect();
    await ended;
  }

  async #ask(order: LinkOrder): Promise<LinkAnswer & { kind: "state" }> {
    const answered = once(this.#process, "message", { signal: AbortSignal.timeout(10_000) });
    this.#process.send(order);
    const [answer] = (await answered) as [LinkAnswer];
    if (answer.kind !== "state") throw new Error("the link did not answer what it was asked");
    return answer;
  }
}

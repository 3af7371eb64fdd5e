import { closeSync, openSync } from "node:fs";
import { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { ReadStream } from "node:tty";
import { type SandboxExec, type SandboxRuntime } from "../sandbox/sandbox.ts";
import { type Descriptors, type TerminalSize } from "./descriptors.ts";
import { Pump } from "./pump.ts";

export interface ExecRequest {
  command: readonly string[];
  /** A terminal instead of three pipes; then all output is stdout. */
  tty: boolean;
  stdin: boolean;
  size: TerminalSize;
}

/** Where a program's output goes; a promise that waits holds the program back. */
export interface ExecOutput {
  stdout(chunk: Buffer): Promise<void>;
  stderr(chunk: Buffer): Promise<void>;
}

/** How long output is read on when the program has ended and something that it started still holds its descriptors. */
const lingerMs = 500;
const pollMs = 10;

interface Ends {
  input: Socket | undefined;
  outputs: { stream: Socket; name: keyof ExecOutput }[];
  /** Of the terminal, to tell it its size. */
  mainFd: number | undefined;
}

/** One program beside an actor's own, with its descriptors' other ends. */
export class ExecSession {
  readonly #exec: SandboxExec;
  readonly #ends: Ends;
  readonly #descriptors: Descriptors;

  private constructor(exec: SandboxExec, ends: Ends, descriptors: Descriptors) {
    this.#exec = exec;
    this.#ends = ends;
    this.#descriptors = descriptors;
  }

  /** Resolves when the program has begun. Throws INVALID when there is none of that name. */
  static async start(
    runtime: Pick<SandboxRuntime, "exec">,
    descriptors: Descriptors,
    id: string,
    { command, tty, stdin, size }: ExecRequest,
  ): Promise<ExecSession> {
    const { ends, stdio } = tty ? terminal(descriptors, size) : pipes(descriptors, stdin);
    try {
      const exec = await runtime.exec(id, { command, tty, stdio });
      return new ExecSession(exec, ends, descriptors);
    } catch (error) {
      destroy(ends);
      throw error;
    } finally {
      for (const fd of new Set(Object.values(stdio))) closeSync(fd);
    }
  }

  /** Resolves when the program can take more. What it does not want any more is dropped. */
  async write(chunk: Buffer): Promise<void> {
    const { input } = this.#ends;
    if (input === undefined || input.destroyed || input.writableEnded || input.write(chunk)) return;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const go = (): void => {
      resolve(undefined);
    };
    input.once("drain", go).once("close", go);
    await promise;
    input.off("drain", go).off("close", go);
  }

  /** The end of the input; in a terminal it is what Ctrl-D gives. */
  async endInput(): Promise<void> {
    if (this.#ends.mainFd === undefined) this.#ends.input?.end();
    else await this.write(Buffer.from([0x04]));
  }

  resize(size: TerminalSize): void {
    const { mainFd, input } = this.#ends;
    if (mainFd === undefined || input?.destroyed === true) return;
    this.#descriptors.resize(mainFd, size);
  }

  kill(): Promise<void> {
    return this.#exec.kill();
  }

  /** Passes its output on; the program's exit code when it has ended and its output is read. */
  async run(output: ExecOutput): Promise<number> {
    const pumps = this.#ends.outputs.map(({ stream, name }) => new Pump(stream, (chunk) => output[name](chunk)));
    const read = Promise.all(pumps.map(({ done }) => done));
    const reading = { over: false };
    read.then(
      () => (reading.over = true),
      () => (reading.over = true),
    );
    try {
      // a client that takes no more output ends the session
      const code = await Promise.race([this.#exec.ended, read.then(() => this.#exec.ended)]);
      const exitedMs = performance.now();
      while (
        !reading.over &&
        Math.min(performance.now() - exitedMs, ...pumps.map((pump) => pump.silentMs())) < lingerMs
      ) {
        await sleep(pollMs);
      }
      return code;
    } finally {
      destroy(this.#ends);
    }
  }
}

function pipes(descriptors: Descriptors, stdin: boolean) {
  const out = descriptors.pipe();
  const err = descriptors.pipe();
  const input = stdin ? descriptors.pipe() : undefined;
  const ends: Ends = {
    input: input && watched(new Socket({ fd: input.writeFd, readable: false, writable: true })),
    outputs: [
      { stream: watched(new Socket({ fd: out.readFd, readable: true, writable: false })), name: "stdout" },
      { stream: watched(new Socket({ fd: err.readFd, readable: true, writable: false })), name: "stderr" },
    ],
    mainFd: undefined,
  };
  const stdinFd = input?.readFd ?? openSync("/dev/null", "r");
  return { ends, stdio: { stdinFd, stdoutFd: out.writeFd, stderrFd: err.writeFd } };
}

function terminal(descriptors: Descriptors, size: TerminalSize) {
  const { mainFd, replicaFd } = descriptors.terminal(size);
  const stream = watched(new ReadStream(mainFd));
  const ends: Ends = { input: stream, outputs: [{ stream, name: "stdout" }], mainFd };
  return { ends, stdio: { stdinFd: replicaFd, stdoutFd: replicaFd, stderrFd: replicaFd } };
}

/** EPIPE: the program reads no more. EIO: nobody has the terminal any more. Both are seen as the stream's end. */
function watched<S extends Socket>(stream: S): S {
  stream.on("error", () => stream.destroy());
  stream.pause();
  return stream;
}

function destroy({ input, outputs }: Ends): void {
  input?.destroy();
  for (const { stream } of outputs) stream.destroy();
}

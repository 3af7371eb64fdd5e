import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";

/** A process of the test's in other namespaces, whose functions are called over Node's IPC channel. */
export class Remote {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  #lastId = 0;

  /** @param enter arguments of nsenter that say where, e.g. ["-t", "42", "-n"] */
  constructor(enter: readonly string[], script: URL, ...args: string[]) {
    this.#child = spawn("nsenter", [...enter, process.execPath, script.pathname, ...args], {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    this.#child.on("message", (message: { id: number; value?: unknown; error?: string }) => {
      const waiting = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      if (message.error === undefined) waiting?.resolve(message.value);
      else waiting?.reject(new Error(message.error));
    });
    this.#child.on("exit", () => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`${script.pathname} ended`));
      this.#waiting.clear();
    });
  }

  call<T>(method: string, ...args: unknown[]): Promise<T> {
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId;
      this.#waiting.set(id, {
        resolve: (value) => {
          resolve(value as T);
        },
        reject,
      });
      this.#child.send({ id, method, args });
    });
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill("SIGKILL");
    await once(this.#child, "exit");
  }
}

/** The other side: answers calls with the functions given, one process each. */
export function serveRemote(functions: Record<string, (...args: never[]) => unknown>): void {
  process.on("message", (message: { id: number; method: string; args: never[] }) => {
    const { id, method, args } = message;
    new Promise((resolve) => {
      resolve(functions[method]?.(...args));
    }).then(
      (value) => process.send?.({ id, value }),
      (error: unknown) => process.send?.({ id, error: error instanceof Error ? error.message : String(error) }),
    );
  });
  process.on("disconnect", () => process.exit(0));
}

import { spawn } from "node:child_process";
import { homedir } from "node:os";
import { started } from "./processes/started.ts";

const TIMEOUT_MS = 30_000;
/** Programs of the distribution only; a root shell without login may lack the sbin folders. HOME is where kubectl caches. */
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

export interface CommandOptions {
  /** What the program reads; default nothing. */
  input?: string;
  /** Kills the program; the command then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Default 30 s. */
  timeoutMs?: number;
  /** Variables besides PATH and HOME. */
  environment?: NodeJS.ProcessEnv;
}

/** Runs a program to its end and returns its stdout. @throws with its stderr unless it ends with 0 in time. */
export async function command(program: string, args: readonly string[], options: CommandOptions = {}): Promise<string> {
  const { input = "", signal, timeoutMs = TIMEOUT_MS, environment } = options;
  signal?.throwIfAborted();
  const child = await started(program, () =>
    // a session of its own: Ctrl-C in the terminal reaches this process alone, which decides what ends
    spawn(program, args, {
      stdio: "pipe",
      env: { PATH, HOME: homedir(), ...environment },
      timeout: timeoutMs,
      detached: true,
    }),
  );
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => out.push(chunk));
  child.stderr.on("data", (chunk: Buffer) => err.push(chunk));
  // a program that ends without reading its input is judged by its exit code
  child.stdin.once("error", () => undefined);
  child.stdin.end(input);
  const kill = (): void => {
    child.kill("SIGKILL");
  };
  signal?.addEventListener("abort", kill, { once: true });
  const end = Promise.withResolvers<string>();
  child.once("close", (code, signalName) => {
    signal?.removeEventListener("abort", kill);
    if (code === 0) end.resolve(Buffer.concat(out).toString("utf8"));
    else {
      const why = Buffer.concat(err).toString("utf8").trim();
      end.reject(new Error(`${program} ${args.join(" ")} ended with ${code ?? signalName}: ${why}`));
    }
  });
  try {
    return await end.promise;
  } catch (error) {
    // it ended because it was given up
    signal?.throwIfAborted();
    throw error;
  }
}

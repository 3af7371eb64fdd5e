import { spawn } from "node:child_process";
import { homedir } from "node:os";

const TIMEOUT_MS = 30_000;
/** Programs of the distribution only; a root shell without login may lack the sbin folders. HOME is where kubectl caches. */
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** Runs a program to its end and returns its stdout. @throws with its stderr unless it ends with 0 within 30 s. */
export async function command(program: string, args: readonly string[], input = ""): Promise<string> {
  const child = spawn(program, args, { stdio: "pipe", env: { PATH, HOME: homedir() }, timeout: TIMEOUT_MS });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => out.push(chunk));
  child.stderr.on("data", (chunk: Buffer) => err.push(chunk));
  const end = Promise.withResolvers<string>();
  child.once("error", end.reject);
  // a program that ends without reading its input is judged by its exit code
  child.stdin.once("error", () => undefined);
  child.stdin.end(input);
  child.once("close", (code, signal) => {
    if (code === 0) end.resolve(Buffer.concat(out).toString("utf8"));
    else {
      const why = Buffer.concat(err).toString("utf8").trim();
      end.reject(new Error(`${program} ${args.join(" ")} ended with ${code ?? signal}: ${why}`));
    }
  });
  return end.promise;
}

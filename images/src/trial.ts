import { spawn } from "node:child_process";
import { BUNDLES, NODE, type PartImage } from "./table.ts";
import { run } from "./program.ts";

const RUNS = 3;
const startTimeoutMs = 30_000;
const checkTimeoutMs = 20_000;

/**
 * Starts what is in an image's root, as its user.
 * @returns how long its main program takes from exec until it has read its flags, the median of a few, in milliseconds.
 * @throws if a program that it needs does not start there.
 */
export async function tryImage(root: string, image: PartImage, origin: string): Promise<number> {
  for (const [program = "", ...args] of image.checks) {
    await run("unshare", inside(root, "0:0", program, args), { timeoutMs: checkTimeoutMs }).catch((error: unknown) => {
      throw new Error(`${program} does not start in an image of ${origin}: ${String(error)}`, { cause: error });
    });
  }
  const times: number[] = [];
  for (let n = 0; n < RUNS; n++) times.push(await startTime(root, image));
  return Math.round(times.sort((a, b) => a - b)[Math.floor(RUNS / 2)] ?? 0);
}

/** For unshare(1): a program in this root, with a /proc of its own. */
function inside(root: string, owner: string, program: string, args: readonly string[]): string[] {
  const [uid = "0", gid = "0"] = owner.split(":");
  const spaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", `--root=${root}`, "--wd=/"];
  return [...spaces, `--setgid=${gid}`, `--setuid=${uid}`, "--", program, ...args];
}

/** Until it says that it has no flags: then every module of it is loaded. */
function startTime(root: string, image: PartImage): Promise<number> {
  const started = performance.now();
  const child = spawn("unshare", inside(root, image.user, NODE, [`${BUNDLES}/${image.main}`]), {
    stdio: ["ignore", "ignore", "pipe"],
    timeout: startTimeoutMs,
    killSignal: "SIGKILL",
    env: { PATH: "/usr/local/bin:/usr/sbin:/usr/bin" },
  });
  return new Promise((resolve, reject) => {
    let said = "";
    let readyMs: number | undefined;
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said += text;
      if (image.complains.test(said)) readyMs ??= performance.now() - started;
    });
    child.once("error", reject);
    child.once("close", () => {
      if (readyMs === undefined) reject(new Error(`${image.main} does not start in its image: ${said.slice(0, 2000)}`));
      else resolve(readyMs);
    });
  });
}

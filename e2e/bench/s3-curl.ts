import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { type S3Server } from "../store/s3-server.ts";

export interface CurlTransfer {
  key: string;
  upload: boolean;
  range?: string;
}

/** All transfers by one curl, whose CPU the shell tells. What is fetched goes to /dev/null, what is sent is cached. */
export async function curl(
  dir: string,
  server: S3Server,
  port: number,
  { transfers, parallel, signal }: { transfers: readonly CurlTransfer[]; parallel: number; signal: AbortSignal },
): Promise<{ ms: number; cpuMs: number }> {
  const pack = join(dir, "pack");
  if (!existsSync(pack)) writeFileSync(pack, randomBytes(16 << 20));
  const url = (key: string): string => `http://127.0.0.1:${port}/${server.bucket}/${key}`;
  const common = [
    ...["silent", "show-error", "fail", `aws-sigv4 = "aws:amz:us-east-1:s3"`, `user = "key:hush"`],
    ...[`header = "x-amz-content-sha256: UNSIGNED-PAYLOAD"`, `header = "Expect:"`],
  ];
  const each = transfers.map(({ key, upload, range }) => [
    ...common,
    `url = "${url(key)}"`,
    upload ? `upload-file = "${pack}"` : `output = "/dev/null"`,
    ...(range === undefined ? [] : [`range = "${range}"`]),
  ]);
  const config = [
    "parallel",
    "parallel-immediate",
    `parallel-max = ${parallel}`,
    each.map((one) => one.join("\n")).join("\nnext\n"),
  ];
  const child = spawn("bash", ["-c", "TIMEFORMAT='%R %U %S'; time curl --config -"], {
    stdio: ["pipe", "ignore", "pipe"],
    timeout: 180_000,
    killSignal: "SIGKILL",
    signal,
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  child.stdin.end(`${config.join("\n")}\n`);
  const [code, said] = await Promise.all([ended, text(child.stderr)]);
  const [, real, user, system] = /([\d.]+) ([\d.]+) ([\d.]+)\s*$/.exec(said) ?? [];
  if (code !== 0 || real === undefined) throw new Error(`curl ended with ${code}: ${said.trim()}`);
  return { ms: Number(real) * 1000, cpuMs: (Number(user) + Number(system)) * 1000 };
}

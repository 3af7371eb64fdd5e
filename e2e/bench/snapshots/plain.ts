import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, existsSync, openSync, writeSync } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";

/** As large as what the product puts at once. */
const PART_MIB = 16;
const PARALLEL = 16;
const TIMEOUT_MS = 180_000;

export interface PlainServer {
  bucket: string;
  accessKeyId: string;
  secretAccessKey: string;
}

interface Part {
  number: number;
  mib: number;
}

/** Parts that are exactly so much together. */
function partsOf(mib: number): Part[] {
  const all = Math.max(1, mib);
  const count = Math.ceil(all / PART_MIB);
  return Array.from({ length: count }, (_, number) => ({ number, mib: Math.min(PART_MIB, all - number * PART_MIB) }));
}

function nameOf({ number, mib }: Part): string {
  return `part-${number}-${mib}`;
}

/** What the product's way to the store is measured against: one curl that sends or fetches parts in parallel. */
export class PlainClient {
  readonly #server: PlainServer;
  readonly #dir: string;
  readonly #signal: AbortSignal;

  /** @param dir absolute; for files that are sent and fetched. */
  constructor(server: PlainServer, dir: string, signal: AbortSignal) {
    this.#server = server;
    this.#dir = dir;
    this.#signal = signal;
  }

  /** Milliseconds to send that much, one MiB at least. @param port of the server or of a link to it. */
  async upload(mib: number, port: number): Promise<number> {
    await mkdir(this.#dir, { recursive: true });
    const parts = partsOf(mib).map((part) => [
      `upload-file = "${this.#file(part)}"`,
      `url = "${this.#url(port, part)}"`,
    ]);
    return this.#curl(parts);
  }

  /** Milliseconds to fetch into files what was sent before. */
  async download(mib: number, port: number): Promise<number> {
    const folder = join(this.#dir, "fetched");
    await mkdir(folder, { recursive: true });
    const ms = await this.#curl(
      partsOf(mib).map((part) => [`output = "${join(folder, nameOf(part))}"`, `url = "${this.#url(port, part)}"`]),
    );
    await rm(folder, { recursive: true });
    return ms;
  }

  #url(port: number, part: Part): string {
    return `http://127.0.0.1:${port}/${this.#server.bucket}/plain/${nameOf(part)}`;
  }

  /** Random bytes, made once. */
  #file(part: Part): string {
    const path = join(this.#dir, nameOf(part));
    if (existsSync(path)) return path;
    const file = openSync(path, "w");
    for (let piece = 0; piece < part.mib; piece++) writeSync(file, randomBytes(2 ** 20));
    closeSync(file);
    return path;
  }

  async #curl(transfers: readonly (readonly string[])[]): Promise<number> {
    const { accessKeyId, secretAccessKey } = this.#server;
    const config = [
      ...["silent", "show-error", "fail", "parallel", "parallel-immediate", `parallel-max = ${PARALLEL}`],
      ...[`aws-sigv4 = "aws:amz:us-east-1:s3"`, `user = "${accessKeyId}:${secretAccessKey}"`],
      // as fast as it can be: no digest of what is sent
      `header = "x-amz-content-sha256: UNSIGNED-PAYLOAD"`,
      `header = "Expect:"`,
      ...transfers.flat(),
    ];
    const startMs = performance.now();
    const child = spawn("curl", ["--config", "-"], {
      stdio: ["pipe", "ignore", "pipe"],
      timeout: TIMEOUT_MS,
      killSignal: "SIGKILL",
      signal: this.#signal,
    });
    const ended = new Promise<number | null>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", resolve);
    });
    child.stdin.end(`${config.join("\n")}\n`);
    const [code, said] = await Promise.all([ended, text(child.stderr)]);
    if (code !== 0) throw new Error(`curl ended with ${code}: ${said.trim()}`);
    return performance.now() - startMs;
  }
}

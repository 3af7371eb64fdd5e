import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, openSync, writeSync } from "node:fs";
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

/** What the product's way to the store is measured against: one curl that sends or fetches parts in parallel. */
export class PlainClient {
  readonly #server: PlainServer;
  readonly #dir: string;
  /** One file more than any measurement sends. */
  readonly #parts = new Map<number, string>();

  /** @param dir absolute; for files that are sent and fetched. */
  constructor(server: PlainServer, dir: string) {
    this.#server = server;
    this.#dir = dir;
  }

  /** Milliseconds to send that much. @param port of the server or of a link to it. */
  async upload(mib: number, port: number): Promise<number> {
    const parts = await this.#files(mib);
    return this.#curl(parts.map((path, i) => [`upload-file = "${path}"`, `url = "${this.#url(port, i)}"`]));
  }

  /** Milliseconds to fetch into files what was sent before. */
  async download(mib: number, port: number): Promise<number> {
    const folder = join(this.#dir, "fetched");
    await mkdir(folder, { recursive: true });
    const count = Math.ceil(mib / PART_MIB);
    const ms = await this.#curl(
      Array.from({ length: count }, (_, i) => [
        `output = "${join(folder, `part-${i}`)}"`,
        `url = "${this.#url(port, i)}"`,
      ]),
    );
    await rm(folder, { recursive: true });
    return ms;
  }

  #url(port: number, part: number): string {
    return `http://127.0.0.1:${port}/${this.#server.bucket}/plain/part-${part}`;
  }

  async #files(mib: number): Promise<string[]> {
    await mkdir(this.#dir, { recursive: true });
    const count = Math.ceil(mib / PART_MIB);
    for (let i = this.#parts.size; i < count; i++) {
      const path = join(this.#dir, `part-${i}`);
      const file = openSync(path, "w");
      for (let piece = 0; piece < PART_MIB; piece++) writeSync(file, randomBytes(2 ** 20));
      closeSync(file);
      this.#parts.set(i, path);
    }
    return [...this.#parts.values()].slice(0, count);
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

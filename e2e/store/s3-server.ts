import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { type BucketSettings, storeSettings } from "@substrate/atelet/store/settings.ts";
import { toolSettings } from "@substrate/local/config.ts";
import { findTool } from "@substrate/local/tools/find.ts";
import { toolTable } from "@substrate/local/tools/table.ts";
import { eventually } from "../support/poll.ts";

function versitygw(): string {
  const tool = toolTable.cluster.find(({ name }) => name === "versitygw");
  const found = tool === undefined ? undefined : findTool(tool, toolSettings());
  if (found === undefined) throw new Error("versitygw is missing; run: node local/setup.mjs --with-cluster");
  return found.path;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** A server that speaks S3 on loopback, with one bucket in a folder. */
export class S3Server {
  readonly bucket = "snapshots";
  /** Where its objects lie as files. */
  readonly bucketDir: string;
  readonly credentialsDir: string;
  readonly port: number;
  readonly #dir: string;
  readonly #virtualDomain: string | undefined;
  #process: ChildProcess | undefined;

  private constructor(dir: string, port: number, virtualDomain: string | undefined) {
    this.#dir = dir;
    this.#virtualDomain = virtualDomain;
    this.port = port;
    this.bucketDir = join(dir, "data", this.bucket);
    this.credentialsDir = join(dir, "credentials");
  }

  /**
   * @param dir absolute; the data lies in `dir/data`, which may be a mount.
   * @param options.virtualDomain names of hosts below it are those of buckets.
   */
  static async start(dir: string, options: { virtualDomain?: string } = {}): Promise<S3Server> {
    const server = new S3Server(dir, await freePort(), options.virtualDomain);
    await mkdir(server.bucketDir, { recursive: true });
    await mkdir(server.credentialsDir);
    await server.writeKeys("key", "hush");
    await server.run("key", "hush");
    return server;
  }

  async writeKeys(accessKeyId: string, secretAccessKey: string): Promise<void> {
    await writeFile(join(this.credentialsDir, "accessKeyId"), accessKeyId);
    await writeFile(join(this.credentialsDir, "secretAccessKey"), `${secretAccessKey}\n`);
  }

  async run(accessKeyId: string, secretAccessKey: string): Promise<void> {
    const args = ["--port", `127.0.0.1:${this.port}`, "--quiet", "--keep-alive"];
    if (this.#virtualDomain !== undefined) args.push("--virtual-domain", this.#virtualDomain);
    args.push("posix", join(this.#dir, "data"));
    this.#process = spawn(versitygw(), args, {
      stdio: "ignore",
      env: { ROOT_ACCESS_KEY_ID: accessKeyId, ROOT_SECRET_ACCESS_KEY: secretAccessKey },
    });
    await eventually(
      async () => {
        await (await fetch(`http://127.0.0.1:${this.port}/`)).arrayBuffer();
      },
      { deadlineMs: 10_000 },
    );
  }

  async kill(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    // it may have ended by itself
    if (child?.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  /** @param options.port of a proxy; @param options.bucket another than its own. */
  settings(options: { port?: number; bucket?: string; prefix?: string; credentialsDir?: string } = {}): BucketSettings {
    const { port = this.port, bucket = this.bucket, prefix = "", credentialsDir = this.credentialsDir } = options;
    const url = `s3://${bucket}${prefix}?endpoint=http://127.0.0.1:${port}`;
    const settings = storeSettings("default", url, { credentialsDir });
    if (settings.kind !== "bucket") throw new Error("no bucket");
    return settings;
  }
}

/** Between a client and a server: counts what goes up, and can stand still. */
export class Proxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #still = false;
  sentBytes = 0;
  /** Runs at every chunk that goes up. */
  onSent: () => void = () => undefined;

  constructor(target: number) {
    this.#server = createServer((client) => {
      const server = connect(target, "127.0.0.1");
      for (const [from, to] of [
        [client, server],
        [server, client],
      ] as const) {
        this.#sockets.add(from);
        from.on("data", (chunk) => {
          if (this.#still) return;
          to.write(chunk);
          if (from !== client) return;
          this.sentBytes += chunk.length;
          this.onSent();
        });
        from.on("error", () => to.destroy());
        from.on("close", () => {
          this.#sockets.delete(from);
          to.destroy();
        });
      }
    });
  }

  async start(): Promise<number> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return (this.#server.address() as AddressInfo).port;
  }

  /** Takes everything and passes on nothing, or goes on with new connections. */
  standStill(still: boolean): void {
    this.#still = still;
    if (!still) for (const socket of this.#sockets) socket.destroy();
  }

  stop(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

import { readFileSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type LocalCluster, startLocalCluster } from "@substrate/local/cluster.ts";
import { buildGlutton } from "../../programs/glutton.ts";
import { openRig } from "../../sandbox/open-rig.ts";
import { answer, type Place, type SandboxRig } from "../../sandbox/rig.ts";
import { S3Server } from "../../store/s3-server.ts";
import { tools } from "../../support/tools.ts";
import { level } from "../level.ts";
import { Product } from "../product.ts";
import { rawClose, type RawSandbox, rawStart } from "../raw.ts";
import { Link } from "./link.ts";
import { PlainClient } from "./plain.ts";

const MIB = 2 ** 20;
const CLOCK_TICKS_PER_SECOND = 100;

/** A program in a raw sandbox, with folders for its images. */
export interface RawProgram {
  sandbox: RawSandbox;
  /** Absolute; images are below it. */
  imagesDir: string;
  /** An empty folder for the next image; the one before last goes, so that two are there at most. */
  nextImage: () => Promise<string>;
  /** Ends the sandbox and removes its images. */
  close: () => Promise<void>;
}

/** Everything that is measured on: a whole cluster, an S3 server with a link to it, raw sandboxes, a plain client. */
export class Ground {
  readonly cluster: LocalCluster;
  readonly product: Product;
  readonly rig: SandboxRig;
  readonly link: Link;
  readonly plain: PlainClient;
  /** Reference of the program's image. */
  readonly image: string;
  readonly serverPort: number;
  readonly #bucketDir: string;
  readonly #signal: AbortSignal;
  readonly #undo: AsyncDisposableStack;
  #raws = 0;

  private constructor(own: {
    cluster: LocalCluster;
    product: Product;
    rig: SandboxRig;
    link: Link;
    plain: PlainClient;
    image: string;
    server: S3Server;
    signal: AbortSignal;
    undo: AsyncDisposableStack;
  }) {
    this.cluster = own.cluster;
    this.product = own.product;
    this.rig = own.rig;
    this.link = own.link;
    this.plain = own.plain;
    this.image = own.image;
    this.serverPort = own.server.port;
    this.#bucketDir = own.server.bucketDir;
    this.#signal = own.signal;
    this.#undo = own.undo;
  }

  /** @param signal gives up the start, and what waits later. */
  static async open({ signal, say }: { signal: AbortSignal; say: (line: string) => void }): Promise<Ground> {
    await using undo = new AsyncDisposableStack();
    const stateDir = await mkdtemp(join(tmpdir(), "sub-bench-"));
    undo.defer(() => rm(stateDir, { recursive: true, force: true }));
    const server = await S3Server.start(await mkdtemp(join(stateDir, "s3-")));
    undo.defer(() => server.kill());
    const link = await Link.start(server.port);
    undo.defer(() => link.stop());
    const { reference } = await buildGlutton(join(stateDir, "glutton"), signal);
    const { bucket, credentialsDir } = server;
    const cluster = await startLocalCluster({
      ...{ stateDir, say: () => undefined, tools, signal },
      stores: [
        { name: "direct", bucket, port: server.port, credentialsDir },
        { name: "link", bucket, port: link.port, credentialsDir },
      ],
    });
    undo.defer(() => cluster.stop());
    const rig = await openRig(signal);
    undo.defer(() => rig.close());
    say(`measuring in ${stateDir} and ${rig.dir}`);
    const product = await Product.create(cluster, signal);
    undo.defer(() => product.close());
    const keys = { bucket, accessKeyId: "key", secretAccessKey: "hush" };
    const plain = new PlainClient(keys, join(stateDir, "plain"), signal);
    const own = { cluster, product, rig, link, plain, image: reference, server, signal };
    return new Ground({ ...own, undo: undo.move() });
  }

  /** Removes all of it, whatever fails; raw sandboxes that still run, too. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#undo.disposeAsync();
  }

  /** Runs the program raw, holding that much. @param memoryMib its limit. */
  async raw(size: { mib: number; kind: "random" | "zero" }, memoryMib?: number): Promise<RawProgram> {
    // an image's page cache is charged to it: a tighter limit would slow the raw side down
    const place = await this.rig.place("glutton", { memoryMiB: memoryMib ?? 2 * size.mib + 300 });
    const raw = await this.rawAt(place);
    await answer(place, "POST", `/hold?mib=${size.mib}&kind=${size.kind}`);
    return raw;
  }

  /** Runs the program of a place raw, until it answers. */
  async rawAt(place: Place): Promise<RawProgram> {
    this.#raws += 1;
    const own = join(this.rig.dir, `raw-${this.#raws}`);
    const sandbox: RawSandbox = {
      runscPath: tools.runsc,
      rootDir: join(own, "root"),
      spec: place.spec,
      url: place.url,
      putAddress: () => place.putAddress(),
      signal: this.#signal,
    };
    let images = 0;
    const nextImage = async (): Promise<string> => {
      images += 1;
      await rm(join(own, `image-${images - 2}`), { recursive: true, force: true });
      const dir = join(own, `image-${images}`);
      await mkdir(dir);
      return dir;
    };
    let isClosed = false;
    const close = async (): Promise<void> => {
      if (isClosed) return;
      isClosed = true;
      await rawClose(sandbox);
      await rm(own, { recursive: true, force: true });
    };
    await mkdir(sandbox.rootDir, { recursive: true });
    this.#undo.defer(close);
    await rawStart(sandbox);
    return { sandbox, imagesDir: own, nextImage, close };
  }

  /** See `level`. */
  level(mib: number): void {
    level(this.rig.dir, mib);
  }

  /** Seconds that the atelet has computed so far, its threads included. */
  ateletCpuSeconds(): number {
    const pid = this.cluster.pid("atelet");
    if (pid === undefined) throw new Error("the atelet does not run");
    // proc_pid_stat(5): the program's name may have spaces, fields are counted after it
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
    return (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS_PER_SECOND;
  }

  /** What the bucket holds. */
  async storedMib(): Promise<number> {
    const entries = await readdir(this.#bucketDir, { recursive: true, withFileTypes: true });
    let bytes = 0;
    for (const entry of entries) {
      if (!entry.isFile()) continue;
      bytes += (await stat(join(entry.parentPath, entry.name))).size;
    }
    return bytes / MIB;
  }
}

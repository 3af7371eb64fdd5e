import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type LocalCluster, startLocalCluster } from "@substrate/local/cluster.ts";
import { request } from "undici";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Product } from "../bench/product.ts";
import { gluttonTemplate } from "../bench/template.ts";
import { buildGlutton } from "../programs/glutton.ts";
import { S3Server } from "../store/s3-server.ts";
import { tools } from "../support/tools.ts";

const HOUR_MS = 3_600_000;
/** In turn: so far from the real time is what all parts take for it. Leases' and certificates' own times are real. */
const offsetsMs = [-24 * HOUR_MS, 2 * 24 * HOUR_MS, 0];

describe("a clock that jumps", { timeout: 240_000 }, () => {
  const undo: (() => unknown)[] = [];
  let dir: string;
  let cluster: LocalCluster;
  let product: Product;

  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), "sub-"));
    undo.push(() => {
      rmSync(dir, { recursive: true, force: true });
    });
    const server = await S3Server.start(mkdtempSync(join(dir, "s3-")));
    undo.push(() => server.kill());
    const { reference } = await buildGlutton(join(dir, "glutton"));
    const hook = pathToFileURL(join(import.meta.dirname, "clock/hook.ts"));
    hook.searchParams.set("control", join(dir, "offset"));
    const { bucket, port, credentialsDir } = server;
    cluster = await startLocalCluster({
      stateDir: dir,
      tools,
      fsync: false,
      say: () => undefined,
      environment: { NODE_OPTIONS: `--import=${hook.href}` },
      stores: [{ name: "bucket", bucket, port, credentialsDir }],
    });
    undo.push(() => cluster.stop());
    product = await Product.create(cluster);
    undo.push(() => product.close());
    await product.template(
      gluttonTemplate("glutton", reference, { store: "bucket", uploadDelay: "2s", detachDelay: "1s" }),
    );
    await product.actor("traveller", "glutton");
    await product.hold({ name: "traveller", mib: 8, kind: "random" });
  });
  afterAll(async () => {
    for (const step of undo.toReversed()) await step();
  });

  const digest = async (): Promise<string> => {
    const { statusCode, body } = await request(`${cluster.routerUrl}/digest`, {
      headers: { "substrate-actor": "default/traveller" },
    });
    const text = await body.text();
    expect(statusCode, text).toBe(200);
    return text;
  };

  const setClock = (offsetMs: number): void => {
    writeFileSync(join(dir, "offset.new"), String(offsetMs));
    renameSync(join(dir, "offset.new"), join(dir, "offset"));
  };

  it("delays no upload, loses no state and keeps no actor from its bucket", async () => {
    const held = await digest();
    for (const offsetMs of offsetsMs) {
      await product.suspend("traveller", "Async");
      // what was due a second from now is not due in a day, also for an atelet that begins only now
      setClock(offsetMs);
      process.kill(cluster.pid("atelet") ?? NaN, "SIGKILL");
      await product.detached("traveller");
      expect(await digest(), `after ${offsetMs} ms`).toBe(held);
      await product.suspend("traveller", "Sync");
      expect(await digest(), `on its node, after ${offsetMs} ms`).toBe(held);
    }
  });
});

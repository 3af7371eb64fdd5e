import { readdir, readFile, rename } from "node:fs/promises";
import { join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { afterEach, beforeEach, expect, it } from "vitest";
import { NotStartedError } from "../sandbox/sandbox.ts";
import { noEnvironment } from "./environment.ts";
import { program, snapshotPrefix, TestNode } from "./test-node.ts";

let node: TestNode;
beforeEach(async () => {
  node = await TestNode.create();
});
afterEach(async () => {
  await node.stop();
});

const golden = snapshotPrefix("golden");
const origins = () => readdir(join(node.dir, "origins"));

function expectNothingLeft(): void {
  expect(node.runtime.sandboxes.size + node.network.used.size + node.ledger.state().bookedBytes).toBe(0);
}

it("keeps a golden snapshot on the node and in the store, once", async () => {
  const trial = await node.trials.run({ environment: noEnvironment, program: program(), golden });
  expect(trial.goldenFailure).toBeUndefined();
  expect(trial.golden?.manifest).toMatchObject({ actor: { uid: "golden", name: "golden" }, revision: "r1" });
  expect(await readFile(join(node.dir, "origins", "golden", "image", "pages.img"), "utf8")).toBe("0");
  expectNothingLeft();
  const again = await node.trials.run({ environment: noEnvironment, program: program(), golden });
  expect(again.golden?.digest).toBe(trial.golden?.digest);
  expect((await node.storeKeys()).filter((path) => path.includes("golden")).sort()).toEqual([
    "c1/n/golden/1-1/manifest.json",
    "c1/n/golden/1-1/pages.index",
    "c1/n/golden/head.json",
    expect.stringMatching(/^c1\/n\/golden\/packs\/1-1-0-[0-9a-f]{16}$/),
  ]);
});

it("volumes are part of it", async () => {
  const data = [{ name: "data", mountPath: "/data", sizeLimitBytes: 0 }];
  const trial = await node.trials.run({ environment: noEnvironment, program: program({ volumeMounts: data }), golden });
  expect(trial.golden?.manifest).toMatchObject({ format: 3, volumes: [{ name: "data" }] });
  expect(trial.golden?.manifest.files.map(({ name }) => name)).toEqual(["volume-data.tar"]);
  expect(await readdir(join(node.dir, "origins", "golden", "volumes", "data"))).toEqual(["data"]);
  expectNothingLeft();
  // From the store it comes with its volume.
  await node.origins.forget("golden");
  const fetched = await node.origins.hold(golden);
  expect(fetched.record.volumes).toEqual(["data"]);
  expect(await readdir(fetched.imageDir)).toEqual(["pages.img"]);
  await fetched.release();
});

it("a wrong command was said twice: what the runtime writes into the output is not the program's", async () => {
  node.runtime.failNext.run = new NotStartedError("PROGRAM_EXITED", 'there is no program "pythn3" in the image');
  const failed = node.trials.run({ environment: noEnvironment, program: program() });
  await expect(failed).rejects.toMatchObject({
    code: "PROGRAM_EXITED",
    message: 'the trial run of Template t did not start: there is no program "pythn3" in the image',
  });
  expectNothingLeft();
});

it("a checkpoint or an upload that fails is no failure of the trial", async () => {
  node.runtime.failNext.checkpoint = new SubstrateError("CHECKPOINT_FAILED", "disk full");
  const first = await node.trials.run({ environment: noEnvironment, program: program(), golden });
  expect(first).toMatchObject({ imageDigest: "sha256:1", goldenFailure: "disk full" });
  expect(await origins()).toEqual([]);
  expectNothingLeft();
  // The store is opened, and then away.
  await node.trials.run({ environment: noEnvironment, program: program(), golden: snapshotPrefix("other") });
  await rename(node.storeDir, `${node.storeDir}.away`);
  const second = await node.trials.run({ environment: noEnvironment, program: program(), golden });
  expect(second.golden).toBeUndefined();
  expect(second.goldenFailure).toMatch(/in the store/);
  await rename(`${node.storeDir}.away`, node.storeDir);
  // What was kept on the node is what is stored then.
  expect(
    (await node.trials.run({ environment: noEnvironment, program: program(), golden })).golden?.manifest.actor.uid,
  ).toBe("golden");
  expectNothingLeft();
});

it("no golden snapshot is taken unasked", async () => {
  const trial = await node.trials.run({ environment: noEnvironment, program: program() });
  expect(trial.golden ?? trial.goldenFailure).toBeUndefined();
  expect(await origins()).toEqual([]);
});

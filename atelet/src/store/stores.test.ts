import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { storeSettings } from "./settings.ts";
import { PageEngine } from "../pages/page-engine.ts";
import { Stores } from "./stores.ts";

let dir: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "stores-"));
});
afterEach(async () => {
  await rm(dir, { recursive: true });
});

const prefix = (clusterUid: string) => ({ clusterUid, namespaceUid: "ns", actorUid: "uid" });
const open = () => new Stores(new Map([["default", storeSettings("default", `file://${dir}`)]]), new PageEngine());

it("says which store cannot be used and why, until it can be", async () => {
  await open().get("default").head(prefix("first"));
  const stores = open();
  expect(stores.troubles()).toEqual([]);
  await expect(stores.get("default").head(prefix("second"))).rejects.toMatchObject({ code: "STORE_FOREIGN" });
  expect(stores.troubles()).toEqual([
    { name: "default", message: expect.stringContaining("belongs to cluster first") as string },
  ]);
  await stores.get("default").head(prefix("first"));
  expect(stores.troubles()).toEqual([]);
});

import { mkdtemp, open, readFile, rm, stat, utimes, writeFile } from "node:fs/promises";
import { createHash } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { checkSeal, type FileChecks, type Seal, sealOf, stampsOf } from "./seal.ts";

const content = "0123456789";
const sha256 = createHash("sha256").update(content).digest("hex");
let dir: string;
let path: string;
let seal: Seal;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "seal-"));
  path = join(dir, "pages.img");
  await writeFile(path, content);
  // A volume's archive is stored beside the image, and is no file of it.
  seal = await sealOf(await stampsOf(dir, ["pages.img"]), [
    { name: "pages.img", sha256 },
    { name: "volume-data.tar", sha256: "0" },
  ]);
});
afterEach(async () => {
  await rm(dir, { recursive: true });
});

/** By a table, the pages are what `inTable` says. */
const checks: FileChecks = {
  digest: async (file) => ({
    sha256: createHash("sha256")
      .update(await readFile(file))
      .digest("hex"),
  }),
  verify: () => Promise.resolve(inTable),
};
let inTable: string | undefined;
const trusted = { distrusted: false, table: "pages.table", checks };

/** Other content of the same size, with the old modification time. */
async function damage(): Promise<void> {
  const { atime, mtime } = await stat(path);
  const file = await open(path, "r+");
  await file.write("x", 3);
  await file.close();
  await utimes(path, atime, mtime);
}

it("what looks as it did is not read", async () => {
  expect(seal.files.map(({ name }) => name)).toEqual(["pages.img"]);
  expect(await checkSeal(dir, seal, trusted)).toEqual({ seal });
  const [file] = seal.files;
  const otherContent = { ...seal, files: file ? [{ ...file, sha256: "0" }] : [] };
  expect(await checkSeal(dir, otherContent, trusted)).toEqual({ seal: otherContent });
});

it("other content is found though size and modification time are the same", async () => {
  await damage();
  expect(await checkSeal(dir, seal, trusted)).toEqual({ damage: "pages.img has other content than was written" });
});

it("what was touched and is the same is read once", async () => {
  await utimes(path, 1, 1);
  const checked = await checkSeal(dir, seal, trusted);
  expect(checked).not.toEqual({ seal });
  if (!("seal" in checked)) throw new Error(checked.damage);
  expect((await checkSeal(dir, checked.seal, trusted)) as object).toEqual({ seal: checked.seal });
});

it("after a restart of the machine, or when it is distrusted, it is read whatever it looks like", async () => {
  const [file] = seal.files;
  const rotten = { ...seal, files: file ? [{ ...file, sha256: "0" }] : [] };
  const found = { damage: "pages.img has other content than was written" };
  expect(await checkSeal(dir, { ...rotten, boot: "an earlier one" }, trusted)).toEqual(found);
  expect(await checkSeal(dir, rotten, { ...trusted, distrusted: true })).toEqual(found);
  expect(await checkSeal(dir, { ...seal, boot: "an earlier one" }, trusted)).toEqual({ seal });
});

it("pages are known by their table alone", async () => {
  const sealed = await sealOf(await stampsOf(dir, ["pages.img"]), [{ name: "pages.img" }]);
  inTable = "pages.img has other content than was written, in pages 0 to 1";
  expect(await checkSeal(dir, sealed, trusted)).toEqual({ seal: sealed });
  expect(await checkSeal(dir, sealed, { ...trusted, distrusted: true })).toEqual({ damage: inTable });
  inTable = undefined;
  expect(await checkSeal(dir, { ...sealed, boot: "an earlier one" }, trusted)).toEqual({ seal: sealed });
});

it("regression: what could not be read at the moment was taken for damaged, and the only copy removed", async () => {
  const failing: FileChecks = { ...checks, digest: () => Promise.reject(new Error("EMFILE: too many open files")) };
  const look = checkSeal(dir, { ...seal, boot: "an earlier one" }, { ...trusted, checks: failing });
  await expect(look).rejects.toThrow("EMFILE");
});

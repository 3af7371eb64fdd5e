import { mkdir, mkdtemp, readdir, readFile, readlink, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack } from "tar-stream";
import { afterAll, beforeAll, expect, test } from "vitest";
import { addTo, staysBelow, targetOf, Unpacking } from "./archive.ts";

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "cp-"));
});
afterAll(async () => {
  await rm(dir, { recursive: true });
});

test("what an actor calls its files cannot lead out of the copy", () => {
  expect(targetOf("logs/a/b", "logs", "/to")).toBe("/to/a/b");
  expect(targetOf("./logs/", "logs", "/to")).toBe("/to");
  for (const name of ["../x", "logs/../../x", "/etc/passwd", "logsx", "logs/.."]) {
    expect(targetOf(name, "logs", "/to")).toBeUndefined();
  }
  expect(staysBelow("/to", "/to/a/link", "../b")).toBe(true);
  for (const link of ["../../x", "/etc/passwd", "../.."]) expect(staysBelow("/to", "/to/a/link", link)).toBe(false);
});

test("an archive comes back as it was; what leads out of it is left out and said", async () => {
  const source = join(dir, "source");
  await writeFile(source, "text");
  const tar = pack();
  const unpacking = new Unpacking("logs", join(dir, "to"));
  tar.pipe(unpacking.stream);
  tar.entry({ name: "logs/", type: "directory" });
  expect(await addTo(tar, source, "logs/a/file")).toEqual([]);
  tar.entry({ name: "logs/good", type: "symlink", linkname: "a/file" });
  tar.entry({ name: "logs/evil", type: "symlink", linkname: "/etc" });
  tar.entry({ name: "logs/evil/passwd" }, "x");
  tar.entry({ name: "../escape" }, "x");
  tar.entry({ name: "logs/pipe", type: "fifo" });
  tar.finalize();
  expect(await unpacking.done).toEqual([
    "logs/evil: a link that leads out of the copy, to /etc",
    "../escape: it is outside of what was asked for",
    "logs/pipe: a fifo is not copied",
  ]);
  expect(await readFile(join(dir, "to", "a", "file"), "utf8")).toBe("text");
  expect(await readlink(join(dir, "to", "good"))).toBe("a/file");
});

test("links that are harmless one by one don't lead out of the copy together", async () => {
  const home = join(dir, "home");
  const target = join(home, "copies", "one");
  await mkdir(target, { recursive: true });
  await writeFile(join(home, "profile"), "the person's own");
  const tar = pack();
  const unpacking = new Unpacking("logs", target);
  tar.pipe(unpacking.stream);
  tar.entry({ name: "logs/top", type: "directory" });
  tar.entry({ name: "logs/a/b/in", type: "symlink", linkname: "../../top" });
  // it seems to lie three folders deep, but lies in top, from where it leads to home
  tar.entry({ name: "logs/a/b/in/out", type: "symlink", linkname: "../../.." });
  tar.entry({ name: "logs/a/b/in/out/profile", type: "symlink", linkname: "evil" });
  tar.finalize();
  const skipped = await unpacking.done;
  expect(await readFile(join(home, "profile"), "utf8")).toBe("the person's own");
  expect(await readdir(join(target, "top"))).toEqual([]);
  expect(skipped).toHaveLength(2);
  expect(skipped[0]).toContain("a/b/in/out: it lies behind a link, which is not followed");

  // nor do those of an earlier copy
  const again = pack();
  const second = new Unpacking("logs", target);
  again.pipe(second.stream);
  again.entry({ name: "logs/a/b/in/file" }, "x");
  again.finalize();
  expect(await second.done).toEqual(["logs/a/b/in/file: it lies behind a link, which is not followed"]);
});

import { lstat, mkdir, mkdtemp, readdir, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { inventory, lookUpUser, makeMountPoints, resolveInRootfs, RootfsError } from "./rootfs.ts";

let dir: string;
let rootfs: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "rootfs-"));
  rootfs = join(dir, "rootfs");
  await mkdir(rootfs);
  await mkdir(join(dir, "outside"));
});

afterEach(() => rm(dir, { recursive: true }));

it("makes the mount points and the working directory", async () => {
  await makeMountPoints(rootfs, "/srv/app");
  for (const path of ["proc", "sys", "dev/shm", "tmp", "run/ate", "srv/app"]) {
    expect((await lstat(join(rootfs, path))).isDirectory(), path).toBe(true);
  }
  expect((await lstat(join(rootfs, "tmp"))).mode & 0o7777).toBe(0o1777);
});

it("links hosts and resolv.conf to the actor's own, whatever the image brings there", async () => {
  await mkdir(join(rootfs, "etc"));
  await writeFile(join(rootfs, "etc/hosts"), "placeholder");
  await symlink("../../../../outside", join(rootfs, "etc/resolv.conf"));
  await makeMountPoints(rootfs, "/");
  expect(await readlink(join(rootfs, "etc/hosts"))).toBe("/run/ate/hosts");
  expect(await readlink(join(rootfs, "etc/resolv.conf"))).toBe("/run/ate/resolv.conf");
});

it("never follows a link out of the rootfs", async () => {
  await symlink(join(dir, "outside"), join(rootfs, "run"));
  await symlink("../../outside", join(rootfs, "dev"));
  await symlink("../../../../../../../../outside", join(rootfs, "sys"));
  await makeMountPoints(rootfs, "/dev/../work");
  expect(await readdir(join(dir, "outside"))).toEqual([]);
  expect(await readdir(join(rootfs, dir, "outside"))).toEqual(["ate"]);
  expect(await readdir(join(rootfs, "outside"))).toEqual(["shm"]);
  expect(await readdir(rootfs)).toContain("work");
});

it("follows links inside the rootfs", async () => {
  await mkdir(join(rootfs, "var"));
  await symlink("/var/run", join(rootfs, "run"));
  expect(await resolveInRootfs(rootfs, "/run/ate", { make: true })).toBe(join(rootfs, "var/run/ate"));
});

it("makes folders for several sandboxes that start at once: one that another made first was an error", async () => {
  const made = await Promise.all(
    Array.from({ length: 8 }, () => resolveInRootfs(rootfs, "/srv/deep/data", { make: true })),
  );
  expect(new Set(made)).toEqual(new Set([join(rootfs, "srv/deep/data")]));
});

it("refuses loops and files in the way", async () => {
  await symlink("/loop", join(rootfs, "loop"));
  await expect(resolveInRootfs(rootfs, "/loop/x", { make: true })).rejects.toThrow(RootfsError);
  await writeFile(join(rootfs, "run"), "");
  await expect(makeMountPoints(rootfs, "/")).rejects.toThrow("/run is a file");
});

it("looks users up in the image only", async () => {
  await mkdir(join(rootfs, "etc"));
  await writeFile(join(rootfs, "etc/passwd"), "root:x:0:0:::\napp:x:1000:1001:::\n");
  await writeFile(join(rootfs, "etc/group"), "root:x:0:\nweb:x:33:\n");
  expect(await lookUpUser(rootfs, "")).toEqual({ uid: 0, gid: 0 });
  expect(await lookUpUser(rootfs, "app")).toEqual({ uid: 1000, gid: 1001 });
  expect(await lookUpUser(rootfs, "1000")).toEqual({ uid: 1000, gid: 1001 });
  expect(await lookUpUser(rootfs, "7")).toEqual({ uid: 7, gid: 0 });
  expect(await lookUpUser(rootfs, "app:web")).toEqual({ uid: 1000, gid: 33 });
  expect(await lookUpUser(rootfs, "7:8")).toEqual({ uid: 7, gid: 8 });
  await expect(lookUpUser(rootfs, "nobody-here")).rejects.toThrow('"nobody-here" is not in its /etc/passwd');
  await expect(lookUpUser(rootfs, "app:nope")).rejects.toThrow('"nope" is not in its /etc/group');
  await rm(join(rootfs, "etc/passwd"));
  await symlink("/etc/passwd", join(rootfs, "etc/passwd"));
  await expect(lookUpUser(rootfs, "root")).rejects.toThrow(RootfsError);
});

it("counts files and bytes", async () => {
  await mkdir(join(rootfs, "a"));
  await writeFile(join(rootfs, "a/x"), "123");
  await writeFile(join(rootfs, "y"), "4567");
  await symlink("/a", join(rootfs, "l"));
  expect(await inventory(rootfs, { removeDevices: true })).toEqual({ files: 2, bytes: 7 });
});

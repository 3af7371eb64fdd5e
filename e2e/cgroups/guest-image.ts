import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdir, realpath, symlink, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";

import { buildCounter } from "@substrate/examples/programs.ts";

import { buildGlutton } from "../programs/glutton.ts";
import { tools } from "../support/tools.ts";
import { guestModules, type GuestTools } from "./guest-tools.ts";
import { insidePaths } from "./inside/place.ts";

const run = promisify(execFile);
const checkout = resolve(import.meta.dirname, "../..");
const diskMiB = 1024;

const applets = ["sh", "mount", "umount", "insmod", "poweroff"];

/** Finds the disk and goes on there. */
const initramfsInit = `#!/bin/sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox insmod /virtio_blk.ko
/bin/busybox mount -t ext4 /dev/vda /disk
exec /bin/busybox switch_root /disk /init
`;

/** memory_recursiveprot and nsdelegate: as systemd mounts it. */
const diskInit = `#!/bin/sh
export PATH=/bin:/sbin HOME=/ NO_COLOR=1
# nobody else ends it when the tests were killed
(/bin/busybox sleep 600; poweroff -f) &
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
insmod /veth.ko
/bin/busybox ip link set lo up
mount --bind / /container
${insidePaths.node} ${insidePaths.script} machine
poweroff -f
`;

export interface GuestImage {
  initramfs: string;
  disk: string;
}

/** The guest's files: this machine's node, runsc and ip, Debian's runc and busybox, and the checkout's code as one bundle. */
export async function buildGuestImage(dir: string, guest: GuestTools): Promise<GuestImage> {
  const root = join(dir, "root");
  for (const name of ["proc", "sys", "dev", "run", "tmp", "container", "bin", "sbin", "programs", insidePaths.shared]) {
    await mkdir(join(root, name), { recursive: true });
  }
  for (const name of ["glutton", "counter"] as const) {
    await (name === "glutton" ? buildGlutton : buildCounter)(join(dir, name));
    await copyFile(join(dir, name, "bin", name), join(root, insidePaths.programs[name]));
  }
  await build({
    absWorkingDir: checkout,
    entryPoints: ["e2e/cgroups/inside/main.ts"],
    outfile: join(root, insidePaths.script),
    bundle: true,
    platform: "node",
    target: "node24",
    format: "esm",
    banner: { js: 'import { createRequire as __cr } from "node:module"; const require = __cr(import.meta.url);' },
    logLevel: "error",
  });
  const { stdout: ip } = await run("sh", ["-c", 'PATH="$PATH:/usr/sbin:/sbin" command -v ip']);
  const programs = {
    [insidePaths.node]: process.execPath,
    [insidePaths.runsc]: tools.runsc,
    [insidePaths.runc]: guest.runc,
    "/bin/busybox": guest.busybox,
    // busybox's own has no network namespaces
    "/sbin/ip": ip.trim(),
  };
  for (const [to, path] of Object.entries(programs)) await copyProgram(path, join(root, to), root, guest);
  for (const name of applets) await symlink("busybox", join(root, "bin", name));
  for (const name of guestModules) await copyFile(join(guest.modules, `${name}.ko`), join(root, `${name}.ko`));
  await writeFile(join(root, "init"), diskInit, { mode: 0o755 });

  const disk = join(dir, "disk.ext4");
  await run("mke2fs", ["-q", "-t", "ext4", "-d", root, disk, `${diskMiB}M`]);
  return { disk, initramfs: await buildInitramfs(dir, guest) };
}

/** A program and the libraries that it is linked with, these in a folder in which the guest's loader looks by itself. */
async function copyProgram(path: string, to: string, root: string, guest: GuestTools): Promise<void> {
  const program = await realpath(path);
  await copyFile(program, to);
  const linked = await run("env", [`LD_LIBRARY_PATH=${guest.libraries}`, "ldd", program]).catch(() => undefined);
  // undefined: statically linked
  for (const [library] of linked?.stdout.matchAll(/\/\S+(?= \(0x)/g) ?? []) {
    const folder = basename(library).startsWith("ld-linux") ? dirname(library) : "/lib/x86_64-linux-gnu";
    await mkdir(join(root, folder), { recursive: true });
    await copyFile(library, join(root, folder, basename(library)));
  }
}

async function buildInitramfs(dir: string, guest: GuestTools): Promise<string> {
  const root = join(dir, "initramfs");
  for (const name of ["bin", "dev", "disk"]) await mkdir(join(root, name), { recursive: true });
  await copyFile(guest.busybox, join(root, "bin/busybox"));
  await symlink("busybox", join(root, "bin/sh"));
  await copyFile(join(guest.modules, "virtio_blk.ko"), join(root, "virtio_blk.ko"));
  await writeFile(join(root, "init"), initramfsInit, { mode: 0o755 });
  const archive = join(dir, "initramfs.cpio");
  const script = 'find . | "$1" cpio -o -H newc > "$2"';
  const child = spawn("sh", ["-c", script, "sh", guest.busybox, archive], { cwd: root, stdio: "ignore" });
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== 0) throw new Error("busybox could not pack the initramfs");
  return archive;
}

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

/** The guest's files: this machine's node, runsc, runc, ip and busybox, and the checkout's code as one bundle. */
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
  const programs = {
    node: process.execPath,
    runsc: tools.runsc,
    runc: await which("runc"),
    busybox: await which("busybox"),
  };
  for (const [name, path] of Object.entries(programs)) await copyProgram(path, root, `bin/${name}`);
  // busybox's ip has no network namespaces
  await copyProgram(await which("ip"), root, "sbin/ip");
  for (const name of applets) await symlink("busybox", join(root, "bin", name));
  for (const name of guestModules) await copyFile(join(guest.modules, `${name}.ko`), join(root, `${name}.ko`));
  await writeFile(join(root, "init"), diskInit, { mode: 0o755 });

  const disk = join(dir, "disk.ext4");
  await run("mke2fs", ["-q", "-t", "ext4", "-d", root, disk, `${diskMiB}M`]);
  return { disk, initramfs: await buildInitramfs(dir, guest) };
}

async function which(program: string): Promise<string> {
  const { stdout } = await run("sh", ["-c", 'PATH="$PATH:/usr/sbin:/sbin" command -v "$1"', "sh", program]).catch(
    () => {
      throw new Error(
        `${program} is not installed (npm run setup -- --with-cluster; busybox: Debian's busybox-static)`,
      );
    },
  );
  return stdout.trim();
}

/** A program and the libraries that it is linked with, these where it looks for them. */
async function copyProgram(path: string, root: string, to: string): Promise<void> {
  const program = await realpath(path);
  await copyFile(program, join(root, to));
  const { stdout } = await run("ldd", [program]).catch(() => ({ stdout: "" })); // statically linked
  for (const [library] of stdout.matchAll(/\/\S+(?= \(0x)/g)) {
    const place = join(root, library);
    await mkdir(dirname(place), { recursive: true });
    await copyFile(library, place);
  }
}

async function buildInitramfs(dir: string, guest: GuestTools): Promise<string> {
  const root = join(dir, "initramfs");
  for (const name of ["bin", "dev", "disk"]) await mkdir(join(root, name), { recursive: true });
  const busybox = await which("busybox");
  await copyFile(busybox, join(root, "bin/busybox"));
  await symlink("busybox", join(root, "bin/sh"));
  await copyFile(join(guest.modules, "virtio_blk.ko"), join(root, "virtio_blk.ko"));
  await writeFile(join(root, "init"), initramfsInit, { mode: 0o755 });
  const archive = join(dir, "initramfs.cpio");
  const script = 'find . | "$1" cpio -o -H newc > "$2"';
  const child = spawn("sh", ["-c", script, "sh", busybox, archive], { cwd: root, stdio: "ignore" });
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== 0) throw new Error(`${basename(busybox)} could not pack the initramfs`);
  return archive;
}

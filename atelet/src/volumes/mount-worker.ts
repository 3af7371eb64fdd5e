import koffi from "koffi";
import { parentPort } from "node:worker_threads";
import { type MountAnswer, type MountRequest, type Overlay } from "./mounts.ts";

const cloneFs = 0x200;
const msRdonly = 1;
const msNosuid = 2;
const msNodev = 4;
const msBind = 0x1000;
const msRec = 0x4000;
const msShared = 0x100000;
const umountNofollow = 8;

const c = koffi.load("libc.so.6");
const unshare = c.func("int unshare(int flags)") as (flags: number) => number;
const chdir = c.func("int chdir(const char *path)") as (path: string) => number;
const mount = c.func(
  "int mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data)",
) as (source: string, target: string, type: string, flags: number, data: string | null) => number;
const umount2 = c.func("int umount2(const char *target, int flags)") as (target: string, flags: number) => number;

function errno(): string {
  const number = koffi.errno();
  return Object.entries(koffi.os.errno).find(([, value]) => value === number)?.[0] ?? `errno ${number}`;
}

/**
 * redirect_dir: a program may rename folders of older layers. index and metacopy tie an upper layer to its lowers and
 * would make it useless as a lower one. volatile: without it every unmount writes out the whole disk (ADR 0009).
 */
function options({ lowers, upper }: Overlay): string {
  const lowerdir = `lowerdir=${lowers.join(":")}`;
  if (upper === undefined) return `${lowerdir},redirect_dir=follow,index=off,metacopy=off`;
  return `${lowerdir},upperdir=${upper.data},workdir=${upper.work},redirect_dir=on,index=off,metacopy=off,volatile`;
}

function perform(request: MountRequest): MountAnswer {
  if ("mount" in request) {
    const { home, target, upper } = request.mount;
    if (chdir(home) !== 0) return errno();
    const flags = msNosuid | msNodev | (upper === undefined ? msRdonly : 0);
    const failed = mount("overlay", target, "overlay", flags, options(request.mount)) === 0 ? undefined : errno();
    // A working folder in it would keep the volume's folder from being removed.
    return chdir("/") === 0 ? (failed ?? "done") : errno();
  }
  if ("bind" in request) {
    const { source, target } = request.bind;
    return mount(source, target, "none", msBind, null) === 0 ? "done" : errno();
  }
  if ("share" in request) {
    const dir = request.share;
    if (mount(dir, dir, "none", msBind, null) !== 0) return errno();
    return mount("none", dir, "none", msShared | msRec, null) === 0 ? "done" : errno();
  }
  while (umount2(request.unmount, umountNofollow) === 0);
  const failed = errno();
  return failed === "EINVAL" || failed === "ENOENT" ? "done" : failed;
}

const port = parentPort;
if (port === null) throw new Error("mount-worker.ts is started by mounts.ts as a worker thread");
// Only this thread has a working folder of its own: the process's stays as it is.
if (unshare(cloneFs) !== 0) throw new Error(`this thread cannot have a working folder of its own: ${errno()}`);
port.on("message", ({ id, request }: { id: number; request: MountRequest }) => {
  port.postMessage({ id, answer: perform(request) });
});

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readdir, rename, rm, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const aptTimeoutMs = 240_000;

/** The suite whose cloud kernel is 6.12; bookworm's own, 6.1, lacks pids.peak. */
const kernelSuite = "trixie";
/** Named all, as those that this machine has installed are not in apt's plan. */
const packages = ["qemu-system-x86", "qemu-system-data", "qemu-system-common", "seabios", "runc", "busybox-static"];
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
/** Modules of the kernel that the guest loads, each without dependencies. */
export const guestModules = ["virtio_blk", "veth"] as const;

export interface GuestTools {
  qemu: string;
  /** Folders of qemu's firmware. */
  firmware: string[];
  libraries: string;
  /** Debian's, for the guest. */
  runc: string;
  busybox: string;
  kernel: string;
  /** Uncompressed <name>.ko of guestModules. */
  modules: string;
}

/**
 * An emulator, a kernel and programs for it from Debian's packages, unpacked into a cache and not installed.
 * @param dir of the cache.
 * @throws Error with what is missing where they can't be had.
 */
export async function guestTools(dir: string): Promise<GuestTools> {
  const home = join(dir, `debian-${kernelSuite}`);
  if (!existsSync(home)) {
    const making = `${home}.${process.pid}`;
    try {
      await unpackPackages(making);
      await rename(making, home);
    } finally {
      await rm(making, { recursive: true, force: true });
    }
  }
  const root = join(home, "root");
  return {
    qemu: join(root, "usr/bin/qemu-system-x86_64"),
    firmware: ["qemu", "seabios"].map((name) => join(root, "usr/share", name)),
    libraries: [join(root, "usr/lib/x86_64-linux-gnu"), join(root, "lib/x86_64-linux-gnu")].join(delimiter),
    runc: join(root, "usr/sbin/runc"),
    busybox: join(root, "bin/busybox"),
    kernel: join(home, "vmlinuz"),
    modules: join(home, "modules"),
  };
}

async function unpackPackages(home: string): Promise<void> {
  if (!existsSync(keyring)) throw new Error(`the packages come from Debian, whose ${keyring} this machine lacks`);
  const debs = join(home, "debs");
  await mkdir(debs, { recursive: true });
  await downloadPrograms(debs);
  await downloadKernel(home, debs);
  const root = join(home, "root");
  for (const deb of await readdir(debs)) await run("dpkg-deb", ["--extract", join(debs, deb), root]);
  await takeKernel(root, home);
  for (const name of ["debs", "apt", "root/usr/lib/modules"]) await rm(join(home, name), { recursive: true });
}

/** The programs and those of their libraries that this machine lacks. */
async function downloadPrograms(debs: string): Promise<void> {
  const simulate = ["install", "--simulate", "--no-install-recommends", ...packages];
  const plan = await run("apt-get", simulate).catch(async () => {
    await run("apt-get", ["-qq", "update"], { timeout: aptTimeoutMs });
    return run("apt-get", simulate);
  });
  const planned = [...plan.stdout.matchAll(/^Inst (\S+)/gm)].map((match) => match[1] ?? "");
  await run("apt-get", ["-qq", "download", ...new Set([...planned, ...packages])], {
    cwd: debs,
    timeout: aptTimeoutMs,
  });
}

async function downloadKernel(home: string, debs: string): Promise<void> {
  const { stdout } = await run("apt-get", ["indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages"]);
  const mirror = /^(\S+) Debian$/m.exec(stdout)?.[1];
  if (mirror === undefined) throw new Error("none of this machine's package sources is Debian's");
  const apt = join(home, "apt");
  for (const name of ["lists/partial", "cache"]) await mkdir(join(apt, name), { recursive: true });
  await writeFile(join(apt, "sources.list"), `deb [signed-by=${keyring}] ${mirror} ${kernelSuite} main\n`);
  const settings = {
    "Dir::Etc::sourcelist": join(apt, "sources.list"),
    "Dir::Etc::sourceparts": "-",
    "Dir::State::lists": join(apt, "lists"),
    "Dir::Cache": join(apt, "cache"),
    "Acquire::Languages": "none",
    "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    "APT::Sandbox::User": "root",
  };
  const options = Object.entries(settings).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
  await run("apt-get", ["-qq", ...options, "update"], { timeout: aptTimeoutMs });
  const { stdout: depends } = await run("apt-cache", [...options, "depends", "linux-image-cloud-amd64"]);
  const image = /Depends: (linux-image-\S+)/.exec(depends)?.[1];
  if (image === undefined) throw new Error(`${mirror} has no linux-image-cloud-amd64 in ${kernelSuite}`);
  await run("apt-get", ["-qq", ...options, "download", image], { cwd: debs, timeout: aptTimeoutMs });
}

async function takeKernel(root: string, home: string): Promise<void> {
  const boot = await readdir(join(root, "boot"));
  const kernel = boot.find((name) => name.startsWith("vmlinuz-"));
  if (kernel === undefined) throw new Error("the kernel's package has no vmlinuz");
  await rename(join(root, "boot", kernel), join(home, "vmlinuz"));
  const modules = join(home, "modules");
  await mkdir(modules);
  const all = await readdir(join(root, "usr/lib/modules"), { recursive: true });
  for (const name of guestModules) {
    const file = all.find((path) => path.endsWith(`/${name}.ko.xz`));
    if (file === undefined) throw new Error(`the kernel's package has no module ${name}.ko.xz`);
    const { stdout } = await run("xz", ["--decompress", "--stdout", join(root, "usr/lib/modules", file)], {
      encoding: "buffer",
      maxBuffer: 2 ** 24,
    });
    await writeFile(join(modules, `${name}.ko`), stdout);
  }
}

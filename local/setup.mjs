// Makes a fresh checkout runnable: checks the machine, installs the packages, gets the tools. Plain JavaScript without
// dependencies, for it runs on the system's own Node before anything is installed.
import { spawnSync } from "node:child_process";
import { accessSync, constants, existsSync, mkdirSync, readFileSync, statfsSync, statSync } from "node:fs";
import { homedir, release } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { withSetupLock } from "./setup-lock.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const node24 = join(root, "node_modules/.bin/node");
const GIB = 1024 ** 3;
/** npm ci takes some ten seconds; ten minutes allow for a slow network. */
const LOCK_WAIT_S = 600;
/** local/tools/runsc/go.mod asks for it; an older Go with GOTOOLCHAIN=auto fetches it by itself. */
const GO = [1, 26, 3];
/** cachestat(2), by which the atelet sees what of a snapshot is on disk, came with 6.5. */
const KERNEL = [6, 5];
const localVariables = ["ETCD", "KUBE_APISERVER", "KUBE_CONTROLLER_MANAGER", "KUBECTL", "RUNSC", "CRANE", "UMOCI"];
const clusterVariables = [
  ...["KUBELET", "KUBE_SCHEDULER", "KUBE_PROXY", "COREDNS", "HELM", "VERSITYGW", "TESTPOD", "LUA_HEALTH"],
  ...["SOURCE_CONTROLLER", "KUSTOMIZE_CONTROLLER"],
];

const numbers = (version) => (version.match(/\d+/g) ?? []).map(Number);
const atLeast = (have, want) => {
  for (const [index, number] of want.entries()) {
    if ((have[index] ?? 0) !== number) return (have[index] ?? 0) > number;
  }
  return true;
};
const run = (program, args) => spawnSync(program, args, { encoding: "utf8" });

function cacheFolder() {
  const { SUBSTRATE_CACHE, XDG_CACHE_HOME } = process.env;
  return SUBSTRATE_CACHE ?? join(XDG_CACHE_HOME ?? join(homedir(), ".cache"), "substrate");
}

/** The nearest folder above `path` that exists: its file system is where `path` will be. */
function existing(path) {
  return existsSync(path) ? path : existing(dirname(path));
}

function checkNamedTools() {
  const wrong = [...localVariables, ...clusterVariables]
    .map((name) => `SUBSTRATE_${name}`)
    .filter((name) => {
      const path = process.env[name];
      if (!path) return false;
      try {
        accessSync(path, constants.X_OK);
        return !path.startsWith("/") || !statSync(path).isFile();
      } catch {
        return true;
      }
    });
  if (wrong.length === 0) return undefined;
  const list = wrong.map((name) => `${name}=${process.env[name]}`).join(", ");
  return `${list}: name the absolute path of an executable, or unset it to have the tool built`;
}

function checkGo() {
  // without Go the tools of a test cluster are missing, which only skips its tests
  if (localVariables.every((name) => process.env[`SUBSTRATE_${name}`])) return undefined;
  const wanted = GO.join(".");
  const fix = `install Go ${wanted} or newer from https://go.dev/dl and put its bin folder on PATH`;
  const { status, stdout } = run("go", ["env", "GOVERSION", "GOTOOLCHAIN"]);
  if (status !== 0) return `Go is not on PATH; the tools are built with it: ${fix}`;
  const [version, toolchain = ""] = stdout.trim().split("\n");
  if (atLeast(numbers(version), GO)) return undefined;
  if (atLeast(numbers(version), [1, 21]) && /auto|path/.test(toolchain)) return undefined;
  return `${version} is too old and may not fetch a newer one (GOTOOLCHAIN=${toolchain}): ${fix}, or set GOTOOLCHAIN=auto`;
}

function checkDisk() {
  const cache = cacheFolder();
  const wanted = existsSync(join(cache, "tools")) ? 2 : 8;
  const folder = existing(cache);
  const { bavail, bsize } = statfsSync(folder);
  const free = (bavail * bsize) / GIB;
  if (free >= wanted) return undefined;
  return `${free.toFixed(1)} GiB are free at ${folder}, ${wanted} GiB are needed: free some, or name a roomier folder in SUBSTRATE_CACHE`;
}

function checkCgroups() {
  const mounts = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  const root = "/sys/fs/cgroup";
  if (mounts.some((line) => line.includes(` ${root} `) && line.includes(" - cgroup2 "))) {
    const available = readFileSync(join(root, "cgroup.controllers"), "utf8").trim().split(/\s+/);
    const missing = ["cpu", "cpuset", "io", "memory", "pids"].filter((name) => !available.includes(name));
    if (missing.length === 0) return undefined;
    return (
      `${root}/cgroup.controllers lacks ${missing.join(", ")}: on a machine of your own, boot without cgroup_disable=; ` +
      "in a container, start that with these controllers delegated (privileged, under systemd with Delegate=yes)"
    );
  }
  const missing = ["memory", "cpu", "pids"].filter(
    (name) => !mounts.some((line) => new RegExp(` - cgroup \\S+ \\S*\\b${name}\\b`).test(line)),
  );
  if (missing.length === 0) return undefined;
  return `the cgroup v1 controllers ${missing.join(" and ")} are not mounted, nor is cgroup v2 at ${root}: mount one of them`;
}

/** What packages alone need; images of files are made without root, Go or a recent kernel. */
function checkPackages() {
  const problems = [];
  if (!atLeast(numbers(process.version), [20])) {
    problems.push(`Node ${process.version} is too old: install Node 20 or newer (https://nodejs.org)`);
  }
  if (run("npm", ["--version"]).status !== 0)
    problems.push("npm is not on PATH: install it with Node (apt-get install npm)");
  return problems;
}

/** What a cluster needs besides. */
function checkMachine() {
  const problems = [];
  if (process.getuid() !== 0)
    problems.push("root is needed for sandboxes and their networks: run it as root (sudo -i)");
  if (!atLeast(numbers(release()), KERNEL)) {
    problems.push(
      `kernel ${release()} is too old, ${KERNEL.join(".")} or newer is needed: ` +
        "install a newer one (on Debian 12: linux-image-amd64 from bookworm-backports) and reboot",
    );
  }
  for (const check of [checkNamedTools, checkGo, checkDisk, checkCgroups]) {
    const problem = check();
    if (problem !== undefined) problems.push(problem);
  }
  return problems;
}

/**
 * Whether node_modules is what package-lock.json says. npm writes node_modules/.package-lock.json last, so an
 * interrupted installation counts as none.
 */
function packagesAreInstalled() {
  const installed = join(root, "node_modules/.package-lock.json");
  if (!existsSync(installed) || !existsSync(node24)) return false;
  const packagesOf = (file) => JSON.parse(readFileSync(file, "utf8")).packages;
  const have = packagesOf(installed);
  return Object.entries(packagesOf(join(root, "package-lock.json"))).every(
    ([path, { version, integrity, optional }]) =>
      path === "" ||
      (have[path] === undefined ? optional : have[path].version === version && have[path].integrity === integrity),
  );
}

function installPackages(lock) {
  const started = performance.now();
  console.log("  installing npm packages (npm ci)");
  const { status, error } = spawnSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: root,
    stdio: ["ignore", "inherit", "inherit", lock],
  });
  if (status !== 0) {
    throw new Error(`npm ci failed${error ? `: ${error.message}` : ""}; its messages are above`);
  }
  console.log(`  installed npm packages in ${((performance.now() - started) / 1000).toFixed(1)} s`);
}

/** Everything that is missing, each with how to get it. Changes nothing. */
function preflight(packagesOnly) {
  if (process.platform !== "linux" || process.arch !== "x64") {
    return [`this is ${process.platform}/${process.arch}; Linux on x86-64 is needed`];
  }
  return [...checkPackages(), ...(packagesOnly ? [] : checkMachine())];
}

function main() {
  const started = performance.now();
  const { values } = parseArgs({
    options: {
      "packages-only": { type: "boolean", default: false },
      // the tools of a test cluster of real nodes too
      "with-cluster": { type: "boolean", default: false },
      // those and Flux's controllers
      "with-flux": { type: "boolean", default: false },
    },
  });
  const packagesOnly = values["packages-only"];
  const problems = preflight(packagesOnly);
  if (problems.length > 0) {
    console.error("setup: this machine lacks something; nothing has been changed:");
    for (const problem of problems) console.error(`  - ${problem}`);
    return 1;
  }
  const say = (line) => console.log(`  ${line}`);
  withSetupLock(join(root, ".setup.lock"), { waitSeconds: LOCK_WAIT_S, say }, (lock) => {
    if (!packagesAreInstalled()) installPackages(lock);
  });
  if (packagesOnly) return 0;
  mkdirSync(cacheFolder(), { recursive: true });
  const more = ["with-cluster", "with-flux"].filter((name) => values[name]).map((name) => `--${name}`);
  const { status } = spawnSync(node24, [join(root, "local/src/tools/main.ts"), ...more], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  if (status !== 0) return status ?? 1;
  console.log(`setup done in ${((performance.now() - started) / 1000).toFixed(1)} s`);
  return 0;
}

try {
  process.exitCode = main();
} catch (error) {
  console.error(`setup: ${error.message}`);
  process.exitCode = 1;
}

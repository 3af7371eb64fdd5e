import { match, ok, strictEqual, throws } from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { enterSupervisorLeaf } from "@substrate/atelet/cgroups/supervisor-leaf.ts";
import { requirePrivileges } from "@substrate/atelet/supervisor/privileges.ts";
import { PodCgroup } from "@substrate/local/pod/pod-cgroup.ts";

import { eventually } from "../../support/poll.ts";
import { Checks } from "./checks.ts";
import { execInContainer, startContainer } from "./containers.ts";
import { insidePaths } from "./place.ts";
import { podLimitBytes, podSeries, shortSeries } from "./pod.ts";

const localId = "guest";

async function end(child: ChildProcess): Promise<void> {
  const [code] = (await once(child, "exit")) as [number | null];
  strictEqual(code, 0);
}

/** The machine's own first process of the tests: all others are started by it. */
async function machineSeries(): Promise<void> {
  const machine = new Checks("the machine");
  await machine.check("its root group is refused", () => {
    throws(() => {
      enterSupervisorLeaf("/");
    }, /machine's root/);
  });

  const local = new Checks("local mode");
  const pod = new PodCgroup(localId);
  await local.check("the pod's group is made, used and removed with what is in it", async () => {
    pod.create(podLimitBytes);
    const shell = spawn(
      "/bin/sh",
      ["-c", 'read -r go && exec "$@"', "pod", insidePaths.node, insidePaths.script, "local"],
      {
        stdio: ["pipe", "inherit", "inherit"],
      },
    );
    if (shell.pid === undefined) throw new Error("the shell was not started");
    pod.add(shell.pid);
    shell.stdin.end("go\n");
    await end(shell);
    const left = spawn("/bin/busybox", ["sleep", "600"]);
    const killed = once(left, "exit");
    if (left.pid === undefined) throw new Error("sleep was not started");
    writeFileSync(join("/sys/fs/cgroup", pod.path, "supervisor/cgroup.procs"), String(left.pid));
    strictEqual(pod.members().join(), String(left.pid));
    await pod.remove();
    await killed;
    ok(!pod.folders().some((folder) => existsSync(folder)));
  });

  const unprivileged = new Checks("a container without privileges");
  await unprivileged.check("says so", async () => {
    await end(await startContainer("unprivileged", { ownCgroups: true, privileged: false }, "unprivileged"));
  });

  const host = new Checks("a container in the machine's cgroup namespace");
  await host.check("has actors, too", async () => {
    await end(await startContainer("host", { ownCgroups: false, privileged: true }, "host"));
  });

  const container = new Checks("a container in a cgroup namespace of its own");
  await container.check("has actors, and processes from outside begin in the supervisor's leaf", async () => {
    const child = await startContainer("pod", { ownCgroups: true, privileged: true }, "pod");
    const ended = end(child);
    try {
      await Promise.race([ended, eventually(podIsReady, { deadlineMs: 600_000 })]);
      const seen = await execInContainer("pod", ["/bin/busybox", "cat", "/proc/self/cgroup"]);
      match(seen, /^0::\/supervisor$/m);
    } finally {
      writeFileSync(join(insidePaths.shared, "pod-end"), "");
      await ended;
    }
  });
}

function podIsReady(): Promise<void> {
  if (!existsSync(join(insidePaths.shared, "pod-ready"))) throw new Error("the pod is not ready");
  return Promise.resolve();
}

function ownGroup(): string {
  return /^0::(.*)$/m.exec(readFileSync("/proc/self/cgroup", "utf8"))?.[1] ?? "";
}

const modes: Readonly<Record<string, () => Promise<void>>> = {
  machine: machineSeries,
  local: () => shortSeries("a pod of local mode", `/substrate-${localId}`, `/substrate-${localId}`),
  host: () => shortSeries("a pod in the machine's cgroup namespace", "/", ownGroup()),
  pod: podSeries,
  unprivileged: async () => {
    await new Checks("an atelet without privileges").check("names the read-only control groups and the setting", () => {
      throws(requirePrivileges, /write access to .*\/sys\/fs\/cgroup\/cgroup.procs.*securityContext.privileged/);
    });
  },
};

const mode = modes[process.argv[2] ?? ""];
if (mode === undefined) throw new Error(`usage: inside.mjs ${Object.keys(modes).join("|")}`);
await mode();

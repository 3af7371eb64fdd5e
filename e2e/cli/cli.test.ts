import { type ChildProcess, execFile, spawn } from "node:child_process";
import { join } from "node:path";
import { bundleCli } from "@substrate/cli/bundle.ts";
import { actors } from "@substrate/crds/actor.ts";
import { toolSettings } from "@substrate/local/config.ts";
import { writeKubeconfig } from "@substrate/local/kubeconfig.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startControlPlane, type TestControlPlane } from "../support/controlplane.ts";
import { eventually } from "../support/poll.ts";
import { ScriptedOperator } from "./scripted-operator.ts";

interface Run {
  code: number;
  stdout: string;
  stderr: string;
}

let plane: TestControlPlane;
let operator: ScriptedOperator;
let plugin: string;
let viewer: string;
let beforeInstalled: Run;

/** The plugin on the system's own node, as kubectl would start it, not on the project's. */
function environment(): NodeJS.ProcessEnv {
  const { environment: own, searchPath } = toolSettings();
  return { ...own, PATH: searchPath.filter((folder) => !folder.includes("node_modules")).join(":") };
}

function ate(args: string[], kubeconfig = plane.kubeconfig): Promise<Run> {
  return new Promise((resolve) => {
    const options = { env: environment(), timeout: 30_000 };
    const child: ChildProcess = execFile(
      plugin,
      [...args, "--kubeconfig", kubeconfig],
      options,
      (_, stdout, stderr) => {
        resolve({ code: child.exitCode ?? -1, stdout, stderr });
      },
    );
  });
}

async function createActor(name: string, state: "OnDemand" | "Suspended" = "OnDemand"): Promise<void> {
  await plane.plane.client.create(actors, {
    metadata: { name, namespace: "default" },
    spec: { templateRef: { name: "program" }, state },
  });
}

beforeAll(async () => {
  plane = await startControlPlane();
  plugin = join(plane.folder, "kubectl-ate");
  await bundleCli(plugin);
  await createActor("counter");
  beforeInstalled = await ate(["resume", "counter"]);
  operator = new ScriptedOperator(plane);
  await operator.start(plane);
  const pair = { cert: join(plane.folder, "viewer.crt"), key: join(plane.folder, "viewer.key") };
  await plane.issue({ subject: "CN=viewer" }, pair);
  const { authority } = plane.plane.pki.files;
  viewer = writeKubeconfig(join(plane.folder, "viewer.yaml"), plane.server, authority, pair);
  await createActor("held", "Suspended");
});

afterAll(async () => {
  await operator.stop();
  await plane.stop();
});

beforeEach(() => {
  operator.ending = "Succeeded";
  operator.asked.length = 0;
});

describe("suspend and resume", () => {
  test("wait for the end and say what has come of it", async () => {
    const suspended = await ate(["suspend", "counter", "--mode", "sync", "--force"]);
    expect(suspended).toMatchObject({ code: 0, stderr: "" });
    expect(suspended.stdout).toMatch(/^actor default\/counter suspended: counter-\d, COMPLETED \([\d.]+m?s\)\n$/);
    expect(operator.asked).toEqual(['Suspend {"mode":"Sync","force":true}']);
    const resumed = await ate(["resume", "counter", "-o", "json"]);
    expect(resumed.code).toBe(0);
    expect(JSON.parse(resumed.stdout)).toMatchObject({
      type: "Resume",
      result: "Succeeded",
      actor: { namespace: "default", name: "counter", state: "ACTOR_STATE_RUNNING" },
    });
  });

  test("regression: a sync suspend ended with the late record of the wake before it, and PENDING", async () => {
    operator.lateWake = true;
    const { code, stdout } = await ate(["suspend", "counter", "--mode", "sync"]);
    operator.lateWake = false;
    expect(code).toBe(0);
    expect(stdout).toContain(", COMPLETED (");
  });

  test("a suspend that a request has followed at once is seen by its generation", async () => {
    operator.ending = "overtaken";
    expect(await ate(["suspend", "counter"])).toMatchObject({ code: 0 });
  });

  test("a suspend of what sleeps says that nothing was done", async () => {
    operator.ending = "slept already";
    await createActor("fresh");
    expect((await ate(["suspend", "fresh"])).stdout).toMatch(
      /^actor default\/fresh sleeps already: it was never saved \(/,
    );
    expect((await ate(["suspend", "counter"])).stdout).toMatch(
      /^actor default\/counter sleeps already: counter-\d, [A-Z]+ \(/,
    );
    await plane.plane.client.delete(actors, "fresh", "default");
  });

  test("an operator that does not lead yet is waited for, not longer than --timeout", async () => {
    operator.notLeadingFor = 2;
    expect(await ate(["resume", "counter"])).toMatchObject({ code: 0, stderr: "" });
    expect(operator.asked).toHaveLength(3);
    operator.notLeadingFor = 2;
    const { code, stderr } = await ate(["resume", "counter", "--timeout", "100ms"]);
    operator.notLeadingFor = 0;
    expect(code).toBe(1);
    expect(stderr.match(/try again/g)).toHaveLength(1);
  });

  test("--no-wait returns the operation's id", async () => {
    operator.ending = "never";
    const { code, stdout } = await ate(["suspend", "counter", "--no-wait", "-o", "json"]);
    expect([code, JSON.parse(stdout)]).toMatchObject([0, { type: "Suspend", result: "Running" }]);
  });

  test("exit codes tell failed, refused, unknown and late apart, and messages what to do", async () => {
    operator.ending = "Failed";
    const failed = await ate(["suspend", "counter"]);
    expect(failed.code).toBe(1);
    expect(failed.stderr).toContain("2 requests open after 10s (REQUESTS_OPEN)");
    expect(failed.stderr).toContain("--force");
    operator.ending = "never";
    const late = await ate(["resume", "counter", "--timeout", "300ms"]);
    expect(late.code).toBe(5);
    expect(late.stderr).toMatch(/has not ended within 300ms; operation op-\d+ goes on/);
    const held = await ate(["resume", "held"]);
    expect(held).toMatchObject({ code: 1 });
    expect(held.stderr).toContain("it is kept asleep");
    const unknown = await ate(["suspend", "countr"]);
    expect(unknown).toMatchObject({ code: 3 });
    expect(unknown.stderr).toBe("error: there is no actor countr in namespace default\ndid you mean counter?\n");
  });

  test("a user without the right is told which one", async () => {
    const blind = await ate(["get"], viewer);
    expect(blind.code).toBe(4);
    expect(blind.stderr).toContain('the verb "list" on actors of the API group substrate.run');
    await plane.plane.client.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {
      body: {
        metadata: { name: "view-actors" },
        rules: [{ apiGroups: ["substrate.run"], resources: ["actors"], verbs: ["get", "list", "watch"] }],
      },
    });
    await plane.plane.client.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
      body: {
        metadata: { name: "view-actors" },
        roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "view-actors" },
        subjects: [{ kind: "User", name: "viewer", apiGroup: "rbac.authorization.k8s.io" }],
      },
    });
    await eventually(
      async () => {
        expect((await ate(["get"], viewer)).code).toBe(0);
      },
      { deadlineMs: 10_000 },
    );
    const { code, stderr } = await ate(["suspend", "counter"], viewer);
    expect(code).toBe(4);
    expect(stderr).toContain(`"resources":["actors/suspend"],"verbs":["create"]`);
    expect(operator.asked).toEqual([]);
  });

  test("a cluster without the aggregated API", () => {
    expect(beforeInstalled.code).toBe(6);
    expect(beforeInstalled.stderr).toContain("doesn't serve subresources.substrate.run/v1alpha1");
  });

  test("an API server that isn't there", async () => {
    const { authority, apiserver } = plane.plane.pki.files;
    const nowhere = writeKubeconfig(join(plane.folder, "nowhere.yaml"), "https://127.0.0.1:1", authority, apiserver);
    const { code, stderr } = await ate(["get"], nowhere);
    expect(code).toBe(6);
    expect(stderr).toContain("the API server https://127.0.0.1:1 can't be reached");
  });
});

test("get lists actors and shows whole ones", async () => {
  await ate(["suspend", "counter"]);
  const table = (await ate(["get"])).stdout.split("\n");
  expect(table[0]).toMatch(/^NAME +STATE +NODE +TEMPLATE +SNAPSHOT +STORAGE +READY +AGE$/);
  expect(table[1]).toMatch(/^counter +SUSPENDED +- +program +counter-\d+ +PENDING +Unknown +\d+m?s$/);
  expect(table[2]).toMatch(/^held +- \(held\)/);
  expect(JSON.parse((await ate(["get", "counter", "-o", "json"])).stdout)).toMatchObject({ kind: "Actor" });
  expect((await ate(["get", "-A", "-o", "yaml"])).stdout).toContain("\nkind: List\n");
  for (const format of ["json", "yaml"]) {
    expect((await ate(["get", "-o", format])).stdout).not.toContain("managedFields");
  }
  const none = { code: 0, stderr: "no actors in namespace kube-public\n" };
  expect(await ate(["-n", "kube-public", "get"])).toMatchObject(none);
  expect(await ate(["get", "-n", "kube-public"])).toMatchObject(none);
  const nowhere = { code: 3, stderr: 'error: there is no namespace empty\nsee "kubectl get namespaces"\n' };
  expect(await ate(["get", "-n", "empty"])).toMatchObject(nowhere);
  expect(await ate(["suspend", "counter", "-n", "empty"])).toMatchObject(nowhere);
});

test("wrong usage says what is right", async () => {
  const mistyped = await ate(["suspnd", "counter"]);
  expect(mistyped.code).toBe(2);
  expect(mistyped.stderr).toContain("Did you mean suspend?");
  const unknown = await ate(["explain", "counter"]);
  expect(unknown.code).toBe(2);
  expect(unknown.stderr).toContain("commands are get, describe, suspend, resume, log, exec,");
  expect(await ate(["--version"])).toMatchObject({ code: 0, stdout: "0.1.0\n" });
});

test("log passes its flags on and prints what comes", async () => {
  expect(await ate(["log", "counter", "--tail", "5", "-f"])).toEqual({
    code: 0,
    stdout: "tail 5\nfollow true\n",
    stderr: "",
  });
});

test("proxy serves the actor on a local port, with the user's rights towards the API server only", async () => {
  const args = ["proxy", "counter", "--actor-port", "metrics", "--kubeconfig", plane.kubeconfig];
  const child = spawn(plugin, args, { env: environment(), stdio: ["ignore", "pipe", "inherit"] });
  try {
    let printed = "";
    child.stdout.on("data", (chunk: Buffer) => {
      printed += chunk.toString();
    });
    const url = await eventually(
      () => {
        const found = /http:\/\/127\.0\.0\.1:\d+\//.exec(printed)?.[0];
        if (found === undefined) throw new Error(`no URL in "${printed}"`);
        return found;
      },
      { deadlineMs: 15_000 },
    );
    const answer = await fetch(`${url}a/b?c=1`, {
      method: "POST",
      body: "hello",
      headers: { authorization: "Bearer x" },
    });
    expect(answer.status).toBe(201);
    expect(answer.headers.get("x-from")).toBe("the actor");
    expect(await answer.text()).toBe("you sent: hello");
    expect(operator.asked).toEqual(["POST /a/b?c=1 port metrics authorization none"]);
  } finally {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    expect(await ended).toBe(0);
  }
});

import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Actor, actors, type Template, templates } from "@substrate/crds/index.ts";
import { Agent, request } from "undici";
import { isMissing } from "@substrate/atelet/node-files.ts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { buildGlutton } from "../programs/glutton.ts";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { belongings } from "../support/leftovers.ts";
import { eventually } from "../support/poll.ts";

const namespace = "default";
const canary = "canary-2b9d44e1";
const names = ["quitter", "killed", "oom", "bomb", "filler", "sick", "hooked", "neighbour"] as const;
type Name = (typeof names)[number];

interface Answer {
  status: number;
  body: string;
  retryAfter: string | undefined;
}

let test: TestCluster;
const agent = new Agent({ headersTimeout: 60_000 });

/** kubectl with something on its standard input; throws with what it said unless it ends with 0. */
async function kubectl(args: readonly string[], input: unknown): Promise<string> {
  const { cluster } = test;
  const child = spawn(cluster.tools.kubectl, args, {
    env: { KUBECONFIG: cluster.kubeconfig, HOME: cluster.stateDir, PATH: "/usr/bin:/bin" },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stdin.end(JSON.stringify(input));
  const code = await new Promise((resolve, reject) => child.once("error", reject).once("close", resolve));
  if (code !== 0) throw new Error(`kubectl ${args.join(" ")}: ${output}`);
  return output;
}

async function ask(name: Name, method: "GET" | "POST", path: string): Promise<Answer> {
  const response = await request(`${test.cluster.routerUrl}${path}`, {
    method,
    headers: { "substrate-actor": `${namespace}/${name}` },
    dispatcher: agent,
  });
  const retryAfter = response.headers["retry-after"];
  const body = await response.body.text();
  return { status: response.statusCode, body, retryAfter: typeof retryAfter === "string" ? retryAfter : undefined };
}

async function count(name: Name): Promise<{ count: number; pid: number; hooks: number }> {
  const { status, body } = await ask(name, "GET", "/");
  if (status !== 200) throw new Error(`${name}: ${status} ${body}`);
  return JSON.parse(body) as { count: number; pid: number; hooks: number };
}

async function actor(name: Name): Promise<Actor> {
  const found = await test.cluster.client.get(actors, name, namespace);
  if (found === undefined) throw new Error(`there is no actor ${name}`);
  return found;
}

/** Makes its program do what ends it, and waits for what the status says of it then. */
async function dies(name: Name, path: string): Promise<string> {
  const before = (await actor(name)).status?.crash?.time;
  // What ends the program may take its answer along.
  await ask(name, "POST", path).catch((error: unknown) => {
    if (!String(error).includes("other side closed")) throw error;
  });
  return crash(name, before);
}

function crash(name: Name, before: string | undefined, deadlineMs = 20_000): Promise<string> {
  return eventually(
    async () => {
      const { status } = await actor(name);
      if (status?.state !== "ACTOR_STATE_CRASHED" || status.crash === undefined || status.crash.time === before) {
        throw new Error(`${name} is ${status?.state ?? "new"}: ${status?.crash?.message ?? "no crash"}`);
      }
      return status.crash.message;
    },
    { deadlineMs },
  );
}

async function verb(name: Name, what: "suspend" | "resume", body: object): Promise<void> {
  const path = `/apis/subresources.substrate.run/v1alpha1/namespaces/${namespace}/actors/${name}/${what}`;
  const answer = JSON.parse(await kubectl(["create", "--raw", path, "-f", "-"], body)) as { operationId: string };
  await eventually(
    async () => {
      const operation = (await actor(name)).status?.lastOperation;
      if (operation?.id !== answer.operationId || operation.result !== "Succeeded")
        throw new Error(JSON.stringify(operation));
    },
    { deadlineMs: 30_000 },
  );
}

beforeAll(async () => {
  test = await startTestCluster();
  const programs = join(test.cluster.stateDir, "programs");
  mkdirSync(programs);
  const { reference } = await buildGlutton(join(programs, "glutton"));
  const httpGet = { path: "/hook", port: 8080 };
  const template = {
    apiVersion: "substrate.run/v1alpha1",
    kind: "Template",
    metadata: { name: "mortal" },
    spec: {
      containers: [
        {
          name: "glutton",
          image: reference,
          ports: [{ name: "http", containerPort: 8080 }],
          readyz: { httpGet: { path: "/readyz", port: 8080 } },
          env: [
            { name: "GREETING", value: "hello" },
            { name: "TOKEN", valueFrom: { secretKeyRef: { name: "mortal", key: "token" } } },
          ],
          resources: { limits: { cpu: "1", memory: "64Mi" } },
        },
      ],
      hooks: { afterRestore: { httpGet } },
      snapshots: { store: "default", uploadDelay: "0s" },
    },
  };
  const items = [
    { apiVersion: "v1", kind: "Secret", metadata: { name: "mortal" }, stringData: { token: canary } },
    template,
    ...names.map((name) => ({
      apiVersion: "substrate.run/v1alpha1",
      kind: "Actor",
      metadata: { name },
      spec: { templateRef: { name: "mortal" } },
    })),
  ];
  await kubectl(["apply", "-n", namespace, "-f", "-"], { apiVersion: "v1", kind: "List", items });
  await eventually(
    async () => {
      const found: Template | undefined = await test.cluster.client.get(templates, "mortal", namespace);
      const ready = found?.status?.conditions?.find(({ type }) => type === "Ready");
      if (ready?.status !== "True") throw new Error(`Template: ${JSON.stringify(found?.status)}`);
    },
    { deadlineMs: 60_000 },
  );
}, 120_000);

afterAll(async () => {
  await agent.close();
  const { stateDir, id } = test.cluster;
  await test.stop();
  expect(belongings(stateDir, id)).toEqual([]);
}, 60_000);

describe("the life and death of programs", { concurrent: false, timeout: 90_000 }, () => {
  let neighbour: { pid: number };

  it("a neighbour of all that follows, and one whose readyz will turn bad", async () => {
    neighbour = await count("neighbour");
    await count("sick");
    await ask("sick", "POST", "/sicken");
  });

  it("the environment is there at a cold start, secrets too, and nowhere else", async () => {
    expect((await ask("hooked", "GET", "/env?name=GREETING")).body).toBe("hello");
    expect((await ask("hooked", "GET", "/env?name=TOKEN")).body).toBe(canary);
  });

  it("hooks.afterRestore comes before the first request after a restore, and not at a cold start", async () => {
    expect(await count("hooked")).toMatchObject({ count: 1, hooks: 0 });
    await verb("hooked", "suspend", { mode: "Sync" });
    expect(await count("hooked")).toMatchObject({ count: 2, hooks: 1 });
  });

  it("an exit code, with the last line that it wrote", async () => {
    expect(await dies("quitter", "/exit?code=3")).toMatch(
      /^its program exited with code 3; .*its last output: .*exiting with 3$/,
    );
  });

  it("a signal", async () => {
    await count("killed");
    expect(await dies("killed", "/signal?n=9")).toContain("its program was killed by signal 9 (SIGKILL)");
  });

  it("out of memory by its own limit, by a full /tmp, and by a crowd of processes", async () => {
    const limit = "it used more memory than its limit of 64.0 MiB and was killed";
    await Promise.all([count("oom"), count("filler"), count("bomb")]);
    const [oom, filler, bomb] = await Promise.all([
      dies("oom", "/oom"),
      dies("filler", "/fill?path=/tmp"),
      dies("bomb", "/fork"),
    ]);
    expect(oom).toContain(limit);
    expect(filler).toMatch(/used more memory than its limit .*\/tmp and other files outside of volumes count/);
    expect(bomb).toMatch(/used more memory than its limit of 64.0 MiB and was killed while it had \d+ processes/);
    expect(bomb).toContain("its last output: ");
  });

  it("three short lives: CRASH_LOOP without a time to try again, until a person starts it cold", async () => {
    for (let life = 2; life <= 3; life += 1) {
      // The pause after a failure passes.
      await eventually(() => count("quitter"), { deadlineMs: 20_000 });
      await dies("quitter", "/exit?code=3");
    }
    const { status, body, retryAfter } = await eventually(
      async () => {
        const answer = await ask("quitter", "GET", "/");
        if (!answer.body.includes("CRASH_LOOP")) throw new Error(answer.body);
        return answer;
      },
      { deadlineMs: 10_000 },
    );
    expect(status).toBe(503);
    expect(retryAfter).toBeUndefined();
    expect(body).toContain("kubectl ate resume quitter --boot");
    await verb("quitter", "resume", { boot: true });
    expect(await count("quitter")).toMatchObject({ count: 1 });
  });

  it("a readyz that turned bad", async () => {
    expect(await crash("sick", undefined, 60_000)).toContain(
      "its readyz turned bad: readyz GET :8080/readyz answered 500: sick, 3 times in a row",
    );
  });

  it("harmed nobody", async () => {
    expect(await count("neighbour")).toMatchObject({ count: 2, pid: neighbour.pid });
  });

  it("no secret outside of what the program itself has", () => {
    const { stateDir, storeDir } = test.cluster;
    // Memory is the program's own; environment*.json, the bundle and runsc's state are the node's, readable by root alone.
    const allowed =
      /\/(image\/(pages|pages_meta|checkpoint)\.img|environment(\.begun)?\.json|bundle\/config\.json|[^/]*\.state)$/;
    const stored = /\/(pages|pages_meta|checkpoint)\.img$/;
    const files = [stateDir, storeDir].flatMap((dir) =>
      readdirSync(dir, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map(({ parentPath, name }) => join(parentPath, name)),
    );
    const leaks = files
      .filter((path) => !path.includes("/etcd/") && !allowed.test(path) && !stored.test(path))
      .filter((path) => contains(path, canary));
    expect(leaks).toEqual([]);
  });
});

/** Files come and go while a cluster runs; what is gone holds nothing. */
function contains(path: string, text: string): boolean {
  try {
    return readFileSync(path).includes(text);
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}

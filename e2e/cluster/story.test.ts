import { beforeAll, expect, it } from "vitest";
import { renderExample } from "@substrate/examples/render.ts";
import { eventually } from "../support/poll.ts";
import { describeOnCluster } from "./describe.ts";
import { Installation, pushExample } from "./installation.ts";
import { whileAsked } from "./hammer.ts";

const WAIT_MS = 120_000;

describeOnCluster("Substrate on two real nodes", {}, (cluster) => {
  let substrate: Installation;
  let image: string;

  beforeAll(async () => {
    image = await pushExample(cluster(), "counter");
    substrate = await Installation.install(cluster());
  }, 600_000);

  /** @returns the other one of the two. */
  const otherThan = (node: string): string => (node === "n1" ? "n2" : "n1");
  const suspend = (name: string, ...more: string[]): Promise<string> =>
    substrate.kubectl("ate", "suspend", name, ...more);

  it("is told healthy by the doctor", async () => {
    expect(await substrate.kubectl("ate", "doctor", "-n", substrate.namespace)).toContain("0 problems, 0 warnings");
  });

  it("goes the tour: apply, request, suspend, and the next request goes on where it was", async () => {
    const name = await substrate.applyCounter("tour", image);
    expect(await substrate.count(name)).toMatchObject({ memory: 1, file: 1 });
    const before = await substrate.count(name);
    await suspend(name);
    expect((await substrate.actor(name)).status?.state).toBe("ACTOR_STATE_SUSPENDED");
    const after = await substrate.count(name);
    expect(after).toMatchObject({ memory: 3, file: 3, pid: before.pid, startedAt: before.startedAt });
    expect(await substrate.kubectl("ate", "describe", name)).toContain("Suspend");
    expect(await substrate.kubectl("ate", "log", name)).not.toBe("");
  });

  it("resumes on the other node, from the object store, when its node is cordoned", async () => {
    const name = "tour";
    const before = await substrate.count(name);
    await suspend(name, "--mode", "sync");
    const node = await substrate.nodeOf(name);
    await cluster().kubectl(["cordon", node]);
    try {
      // the operator hears of it a moment later, and a wake may be faster
      await eventually(
        async () => {
          const { assignment, conditions } = (await substrate.actor(name)).status ?? {};
          const scheduled = conditions?.find(({ type }) => type === "Scheduled")?.reason;
          expect(assignment?.nodeName === undefined || scheduled === "NodeUnfit").toBe(true);
        },
        { deadlineMs: 20_000 },
      );
      const after = await substrate.count(name);
      expect(after).toMatchObject({ memory: before.memory + 1, pid: before.pid, startedAt: before.startedAt });
      expect(await substrate.nodeOf(name)).toBe(otherThan(node));
    } finally {
      await cluster().kubectl(["uncordon", node]);
    }
  });

  it("keeps actors from the cluster's own addresses without a NetworkPolicy, and gives them DNS", async () => {
    await cluster().kubectl(["apply", "-f", "-"], {
      input: await renderExample("python", { image: await pushExample(cluster(), "python") }),
    });
    await cluster().kubectl(["wait", "--for=condition=Ready", "template/python", "--timeout=100s"]);
    const addressOf = (kind: string, path: string, ...more: string[]): Promise<string> =>
      cluster().kubectl(["get", kind, ...more, "-o", `jsonpath={${path}}`]);
    const pods = ["-n", substrate.namespace, "-l"];
    const targets = [
      `${await addressOf("service", ".spec.clusterIP", "kubernetes")}:443`,
      `${await addressOf("pods", ".items[0].status.podIP", ...pods, "app.kubernetes.io/component=router")}:8080`,
      `${await addressOf("pods", ".items[0].status.podIP", ...pods, "app.kubernetes.io/component=atelet")}:7443`,
      `${await addressOf("pods", ".items[1].status.podIP", ...pods, "app.kubernetes.io/component=atelet")}:7443`,
      `${await addressOf("node", `.status.addresses[?(@.type=="InternalIP")].address`, "n1")}:10250`,
      "169.254.169.254:80",
    ];
    const program = [
      "import socket, sys",
      "for target in sys.argv[1:]:",
      "    host, port = target.split(':')",
      "    try: socket.create_connection((host, int(port)), 2); print(target, 'reached')",
      "    except OSError: print(target, 'refused')",
      "print(socket.gethostbyname('kubernetes.default.svc.cluster.local'))",
    ].join("\n");
    const said = await substrate.kubectl("ate", "exec", "python", "--", "python3", "-c", program, ...targets);
    const lines = said.trim().split("\n");
    expect(lines.slice(0, -1)).toEqual(targets.map((target) => `${target} refused`));
    expect(lines.at(-1)).toBe(targets[0]?.split(":")[0]);
  });

  it("gives the cluster's collector the actors' output as JSON lines", async () => {
    const node = await substrate.nodeOf("tour");
    const pod = ["-n", substrate.namespace, "get", "pods", "-l", "app.kubernetes.io/component=atelet"];
    const field = ["--field-selector", `spec.nodeName=${node}`, "-o", "jsonpath={.items[0].metadata.name}"];
    const name = await cluster().kubectl([...pod, ...field]);
    await eventually(
      async () => {
        const log = await cluster().kubectl(["-n", substrate.namespace, "logs", name]);
        const lines = log.split("\n").filter((line) => line.includes(`"actor":"tour"`) && line.includes(`"stream"`));
        expect(lines.length).toBeGreaterThan(0);
        expect(JSON.parse(lines[0] ?? "")).toMatchObject({ actor: "tour", namespace: "default", stream: "stdout" });
      },
      { deadlineMs: WAIT_MS, everyMs: 500 },
    );
  });

  it("leaves running actors alone when their node is drained of its other pods", async () => {
    const name = "tour";
    const before = await substrate.count(name);
    const node = await substrate.nodeOf(name);
    const drain = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=100s"];
    await cluster().kubectl(drain, { timeoutMs: 110_000 });
    try {
      const after = await substrate.count(name);
      expect(after).toMatchObject({ memory: before.memory + 1, pid: before.pid });
      expect(await substrate.nodeOf(name)).toBe(node);
    } finally {
      await cluster().kubectl(["uncordon", node]);
    }
  });

  it("holds requests through a rollout of the DaemonSet, and fails none", async () => {
    const names = ["tour", await substrate.applyCounter("second", image)];
    const before = await Promise.all(names.map((name) => substrate.count(name)));
    await whileAsked(substrate, names, async () => {
      await cluster().kubectl(["-n", substrate.namespace, "rollout", "restart", substrate.object("daemonset/atelet")]);
      await substrate.rolledOut("daemonset/atelet");
    });
    const after = await Promise.all(names.map((name) => substrate.count(name)));
    for (const [index, count] of after.entries()) {
      expect(count.pid).toBe(before[index]?.pid);
      expect(count.startedAt).toBe(before[index]?.startedAt);
    }
  });

  it("serves requests and verbs through a rollout of the operator", async () => {
    await whileAsked(substrate, ["tour"], async () => {
      const operator = substrate.object("deployment/operator");
      await cluster().kubectl(["-n", substrate.namespace, "rollout", "restart", operator]);
      for (let turn = 0; turn < 3; turn += 1) {
        await suspend("second");
        await substrate.count("second");
      }
      await substrate.rolledOut("deployment/operator");
    });
  });

  it("goes on while a kubelet is away", async () => {
    const name = "tour";
    const before = await substrate.count(name);
    const node = await substrate.nodeOf(name);
    await cluster().stopKubelet(node);
    const state = ["get", "node", node, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`];
    await eventually(
      async () => {
        expect(await cluster().kubectl(state)).toBe("Unknown");
      },
      { deadlineMs: WAIT_MS },
    );
    expect(await substrate.count(name)).toMatchObject({ memory: before.memory + 1, pid: before.pid });
    await cluster().startKubelet(node);
    await cluster().nodesReady();
  });

  it("says NodeLost of a killed node's actors, moves none, and serves all when it is back", async () => {
    const name = "tour";
    await suspend(name, "--mode", "sync");
    const before = await substrate.count(name);
    const node = await substrate.nodeOf(name);
    await cluster().killNode(node);
    await eventually(
      async () => {
        const ready = (await substrate.actor(name)).status?.conditions?.find(({ type }) => type === "Ready");
        expect(ready).toMatchObject({ status: "False", reason: "NodeLost" });
      },
      { deadlineMs: WAIT_MS },
    );
    expect(await substrate.nodeOf(name)).toBe(node);
    await cluster().startNode(node);
    await cluster().nodesReady();
    await substrate.ready();
    // what had not been saved since is lost with the node's memory
    await eventually(
      async () => {
        const { memory } = await substrate.count(name);
        expect(memory).toBeGreaterThanOrEqual(before.memory);
      },
      { deadlineMs: WAIT_MS, everyMs: 1_000 },
    );
    await eventually(
      async () => {
        const ready = (await substrate.actor(name)).status?.conditions?.find(({ type }) => type === "Ready");
        expect(ready?.status).toBe("True");
      },
      { deadlineMs: WAIT_MS },
    );
  });
});

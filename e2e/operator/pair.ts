import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, readFileSync, writeFileSync } from "node:fs";
import { type IncomingMessage } from "node:http";
import { type RequestOptions, request } from "node:https";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { type Actor, actors, templates } from "@substrate/crds/index.ts";
import { KubeClient } from "@substrate/lib/kube/client.ts";
import { loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { leases, namespaces, secrets } from "@substrate/lib/kube/types.ts";
import { WakeServiceClient } from "@substrate/lib/gen/substrate/operator/v1/wake.ts";
import { dial, unary } from "@substrate/lib/rpc/client.ts";
import { clientCredentials, type TlsMaterial, TlsSource } from "@substrate/lib/rpc/tls.ts";
import { writeKubeconfig } from "@substrate/local/kubeconfig.ts";
import { pickPorts } from "@substrate/local/ports.ts";
import { WebSocket } from "ws";
import { startControlPlane, type TestControlPlane } from "../support/controlplane.ts";
import { eventually } from "../support/poll.ts";
import { FakeAtelet } from "./fake-atelet.ts";

const systemNamespace = "substrate-system";
const account = (part: string): string => `system:serviceaccount:${systemNamespace}:${part}`;
const root = join(import.meta.dirname, "../..");
export const certificateSeconds = 12;

export interface OneOperator {
  name: string;
  process: ChildProcess;
  grpc: number;
  api: number;
  metrics: number;
}

/** Two operators that make certificates for everybody, as in a cluster, and one scripted atelet. */
export class OperatorPair {
  readonly client: KubeClient;
  readonly operators: OneOperator[] = [];
  readonly #cp: TestControlPlane;
  readonly #stop = new AbortController();
  #atelet: FakeAtelet | undefined;
  #router: TlsSource | undefined;

  private constructor(cp: TestControlPlane) {
    this.#cp = cp;
    this.client = new KubeClient(loadKubeConfig(cp.kubeconfig), { fieldManager: "test" });
  }

  static async start(): Promise<OperatorPair> {
    const pair = new OperatorPair(await startControlPlane());
    try {
      await pair.#begin();
      return pair;
    } catch (error) {
      await pair.stop();
      throw error;
    }
  }

  get atelet(): FakeAtelet {
    if (this.#atelet === undefined) throw new Error("the atelet has not begun");
    return this.#atelet;
  }

  async #begin(): Promise<void> {
    const cp = this.#cp;
    const pair = { cert: join(cp.folder, "operator.crt"), key: join(cp.folder, "operator.key") };
    await cp.issue({ subject: `CN=${account("operator")}` }, pair);
    writeKubeconfig(join(cp.folder, "operator.yaml"), cp.server, cp.plane.pki.authority.files.cert, pair);
    // the second one finds what the first one has made
    await this.add("a");
    await this.add("b");
    this.#router = await this.#follow("router");
    this.#atelet = new FakeAtelet("node-a", this.client, await this.#follow("atelet"));
    await this.#atelet.start();
    await this.client.create(namespaces, { metadata: { name: "test" } });
    await this.client.apply(templates, {
      metadata: { name: "app", namespace: "test" },
      spec: {
        containers: [
          {
            name: "main",
            image: "registry.example.com/app:1",
            ports: [{ name: "http", containerPort: 8080 }],
            readyz: { httpGet: { path: "/readyz", port: "http" } },
            resources: { limits: { cpu: "500m", memory: "128Mi" } },
          },
        ],
      } as never,
    });
    await eventually(
      async () => {
        const { status } = (await this.client.get(templates, "app", "test")) ?? {};
        if (status?.phase !== "Ready") throw new Error(`the Template is not ready: ${JSON.stringify(status)}`);
      },
      { deadlineMs: 20_000 },
    );
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    for (const { process } of this.operators) {
      if (process.exitCode !== null || process.signalCode !== null) continue;
      const exited = once(process, "exit");
      process.kill("SIGKILL");
      await exited;
    }
    await this.#atelet?.stop();
    await this.client.close();
    await this.#cp.stop();
  }

  /** Another operator; resolves when it is ready, leading or not. */
  async add(name: string): Promise<OneOperator> {
    const folder = this.#cp.folder;
    const ports = await pickPorts(["grpc", "api", "metrics"], {});
    const at = (port: number): string => `127.0.0.1:${String(port)}`;
    const flags = {
      kubeconfig: join(folder, "operator.yaml"),
      "grpc-listen": at(ports.grpc),
      "advertise-address": at(ports.grpc),
      "api-listen": at(ports.api),
      "managed-certificates": "substrate",
      "certificate-lifetime": String(certificateSeconds),
      "authority-lifetime": "3600",
      "api-service": "operator",
      owner: "substrate-operator",
      "router-url": "http://127.0.0.1:9",
      "metrics-listen": at(ports.metrics),
      "log-level": "debug",
    };
    const hook = pathToFileURL(join(import.meta.dirname, "freeze.ts"));
    hook.searchParams.set("file", join(folder, `${name}.freeze`));
    const args = Object.entries(flags).flatMap(([flag, value]) => [`--${flag}`, value]);
    const child = spawn(process.execPath, [`--import=${hook.href}`, join(root, "operator/src/main.ts"), ...args], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    child.stderr.pipe(createWriteStream(join(folder, `${name}.log`), { flags: "a" }));
    const operator = { name, process: child, grpc: ports.grpc, api: ports.api, metrics: ports.metrics };
    this.operators.push(operator);
    await eventually(
      async () => {
        const ready = await this.ready(operator);
        if (ready !== "ok") throw new Error(`operator ${name}: ${ready}\n${this.log(name)}`);
      },
      { deadlineMs: 30_000 },
    );
    return operator;
  }

  log(name: string): string {
    return readFileSync(join(this.#cp.folder, `${name}.log`), { encoding: "utf8", flag: "a+" });
  }

  async ready({ metrics }: OneOperator): Promise<string> {
    const answer = await fetch(`http://127.0.0.1:${String(metrics)}/readyz`).catch(String);
    return typeof answer === "string" ? answer : (await answer.text()).trim();
  }

  /** The operator whose address is in the Lease, if the Lease is held. */
  async leader(): Promise<OneOperator> {
    const lease = await this.client.get(leases, "substrate-operator", systemNamespace);
    const address = lease?.metadata.annotations?.["substrate.run/api-address"];
    const found = this.operators.find(({ api }) => `127.0.0.1:${String(api)}` === address);
    if (found === undefined || (lease?.spec?.holderIdentity ?? "") === "") throw new Error("nobody leads");
    return found;
  }

  /** @returns after how many milliseconds this one led. */
  async untilLeads(operator: OneOperator, deadlineMs: number): Promise<number> {
    const since = performance.now();
    await eventually(
      async () => {
        const { name } = await this.leader();
        if (name !== operator.name) throw new Error(`${name} leads`);
      },
      { deadlineMs },
    );
    return performance.now() - since;
  }

  /** It stops itself before its next grant; resolves when it has. */
  freeze({ name, process: { pid } }: OneOperator): { frozen: () => Promise<void> } {
    writeFileSync(join(this.#cp.folder, `${name}.freeze`), "");
    return {
      frozen: () =>
        eventually(
          () => {
            const state = readFileSync(`/proc/${String(pid)}/stat`, "utf8").split(") ")[1]?.[0];
            if (state !== "T") throw new Error(`operator ${name} is in state ${String(state)}`);
          },
          { deadlineMs: 10_000 },
        ),
    };
  }

  async actor(name: string): Promise<Actor> {
    await this.client.create(actors, {
      metadata: { name, namespace: "test" },
      spec: { templateRef: { name: "app" }, state: "OnDemand" },
    });
    return this.until(
      name,
      ({ status }) => status?.conditions?.some(({ status: s, type }) => type === "Ready" && s === "True") === true,
    );
  }

  async until(name: string, holds: (actor: Actor) => boolean, deadlineMs = 15_000): Promise<Actor> {
    return eventually(
      async () => {
        const actor = await this.client.get(actors, name, "test");
        if (actor === undefined || !holds(actor)) throw new Error(`actor ${name}: ${JSON.stringify(actor?.status)}`);
        return actor;
      },
      { deadlineMs },
    );
  }

  /** As a router does, over a connection of its own. */
  async wake({ grpc }: OneOperator, actor: Actor): Promise<string> {
    if (this.#router === undefined) throw new Error("the router has no certificate");
    const client = dial(WakeServiceClient, `127.0.0.1:${String(grpc)}`, "operator", clientCredentials(this.#router));
    try {
      const { name, namespace = "", uid = "" } = actor.metadata;
      const call = client.wake.bind(client);
      return (await unary(call, { actorUid: uid, namespace, name }, { deadlineMs: 60_000 })).nodeName;
    } finally {
      client.close();
    }
  }

  /** As kube-apiserver asks, over a connection of its own. */
  async verb(operator: OneOperator, method: string, path: string): Promise<{ status: number; body: string }> {
    const outgoing = request({
      ...(await this.#asFrontProxy(operator)),
      method,
      path: `/apis/subresources.substrate.run/v1alpha1${path}`,
    });
    outgoing.end();
    const [answer] = (await once(outgoing, "response")) as [IncomingMessage];
    return { status: answer.statusCode ?? 0, body: await text(answer) };
  }

  async exec(operator: OneOperator, actorName: string, ...command: string[]): Promise<WebSocket> {
    const { ca, cert, headers, key, servername } = await this.#asFrontProxy(operator);
    const query = new URLSearchParams([...command.map((part) => ["command", part]), ["stdin", "true"]] as [
      string,
      string,
    ][]);
    const url = `wss://127.0.0.1:${String(operator.api)}/apis/subresources.substrate.run/v1alpha1/namespaces/test/actors/${actorName}/exec?${String(query)}`;
    return new WebSocket(url, ["v5.channel.k8s.io"], { ca, cert, headers, key, servername });
  }

  /** The authorities that are trusted now. */
  async authorities(): Promise<string> {
    const secret = await this.client.get(secrets, "substrate-ca", systemNamespace);
    return Buffer.from(secret?.data?.["ca.crt"] ?? "", "base64").toString();
  }

  async #asFrontProxy({ api }: OneOperator): Promise<RequestOptions & { headers: Record<string, string | string[]> }> {
    const { frontProxyClient } = this.#cp.plane.pki.files;
    return {
      host: "127.0.0.1",
      port: api,
      // the name that kube-apiserver checks
      servername: `operator.${systemNamespace}.svc`,
      ca: await this.authorities(),
      cert: readFileSync(frontProxyClient.cert),
      key: readFileSync(frontProxyClient.key),
      agent: false,
      headers: { "x-remote-user": "jane", "x-remote-group": ["dev", "system:masters"] },
    };
  }

  /** A part's certificate from its Secret, as the kubelet brings it into a pod. */
  async #follow(part: string): Promise<TlsSource> {
    const read = async (): Promise<TlsMaterial> => {
      const { data } = (await this.client.get(secrets, `substrate-${part}-tls`, systemNamespace)) ?? {};
      const value = (key: string): Buffer => Buffer.from(data?.[key] ?? "", "base64");
      return { ca: value("ca.crt"), cert: value("tls.crt"), key: value("tls.key") };
    };
    const source = await eventually(async () => new TlsSource(await read()), { deadlineMs: 20_000 });
    void (async () => {
      const { signal } = this.#stop;
      const stopped = (): boolean => signal.aborted;
      while (!stopped()) {
        await delay(250, undefined, { signal }).catch(() => undefined);
        const material = await read().catch(() => source.current);
        if (!material.cert.equals(source.current.cert) || !material.ca.equals(source.current.ca))
          source.renew(material);
      }
    })();
    return source;
  }
}

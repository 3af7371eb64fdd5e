import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createWriteStream, readFileSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { type AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Actor, actors, type Template, templates } from "@substrate/crds/index.ts";
import { type Generation } from "@substrate/lib/gen/substrate/atelet/v1/types.ts";
import { WakeServiceClient } from "@substrate/lib/gen/substrate/operator/v1/wake.ts";
import { KubeClient } from "@substrate/lib/kube/client.ts";
import { loadKubeConfig } from "@substrate/lib/kube/config.ts";
import { namespaces } from "@substrate/lib/kube/types.ts";
import { dial, unary } from "@substrate/lib/rpc/client.ts";
import { clientCredentials, loadTls, TlsSource } from "@substrate/lib/rpc/tls.ts";
import { registerApi, waitForApi } from "@substrate/local/aggregated-api.ts";
import { FRONT_PROXY_NAME } from "@substrate/local/control-plane/flags.ts";
import { writeKubeconfig } from "@substrate/local/kubeconfig.ts";
import { pickPorts } from "@substrate/local/ports.ts";
import { startControlPlane, type TestControlPlane, type TestControlPlaneOptions } from "../support/controlplane.ts";
import { eventually } from "../support/poll.ts";
import { tools } from "../support/tools.ts";
import { FakeAtelet } from "./fake-atelet.ts";

const run = promisify(execFile);
const goodImage = "registry.example.com/app:1";
const root = join(import.meta.dirname, "../..");

/** A real control plane, the real operator as a process, a scripted atelet, and a router that tells what it was sent. */
export class Fixture {
  readonly client: KubeClient;
  readonly atelet: FakeAtelet;
  /** Of another node, not started, with the same store. */
  readonly newAtelet: (nodeName: string) => FakeAtelet;
  readonly logFile: string;
  readonly #cp: TestControlPlane;
  readonly #arguments: string[];
  readonly #router: Server;
  readonly #wakes: WakeServiceClient;
  readonly #readyz: string;
  #process: ChildProcess | undefined;

  private constructor(parts: {
    cp: TestControlPlane;
    client: KubeClient;
    atelet: FakeAtelet;
    newAtelet: (nodeName: string) => FakeAtelet;
    arguments: string[];
    router: Server;
    wakes: WakeServiceClient;
    readyz: string;
  }) {
    this.#cp = parts.cp;
    this.client = parts.client;
    this.atelet = parts.atelet;
    this.newAtelet = parts.newAtelet;
    this.#arguments = parts.arguments;
    this.#router = parts.router;
    this.#wakes = parts.wakes;
    this.#readyz = parts.readyz;
    this.logFile = join(parts.cp.folder, "operator.log");
  }

  static async start(options: TestControlPlaneOptions & { nodeLostAfter?: string } = {}): Promise<Fixture> {
    const cp = await startControlPlane(options);
    const closing: (() => unknown)[] = [() => cp.stop()];
    try {
      const client = new KubeClient(loadKubeConfig(cp.kubeconfig), { fieldManager: "test" });
      closing.unshift(() => client.close());
      const issue = async (part: string): Promise<{ cert: string; key: string }> =>
        cp.issue(
          {
            subject: `CN=system:serviceaccount:substrate-system:${part}`,
            dnsNames: [`${part}.substrate.internal`, `${part}.substrate-system.svc`, "localhost"],
            ipAddresses: ["127.0.0.1"],
          },
          { cert: join(cp.folder, `${part}.crt`), key: join(cp.folder, `${part}.key`) },
        );
      const [operator, atelet, router] = await Promise.all([issue("operator"), issue("atelet"), issue("router")]);
      const caFile = cp.plane.pki.authority.files.cert;
      const material = (pair: { cert: string; key: string }): TlsSource =>
        new TlsSource(loadTls({ caFile, certFile: pair.cert, keyFile: pair.key }));
      const head = new Map<string, Generation[]>();
      const newAtelet = (nodeName: string): FakeAtelet => new FakeAtelet(nodeName, client, material(atelet), head);
      const fake = newAtelet("node-a");
      await fake.start();
      closing.unshift(() => fake.stop());
      const http = createServer((request, response) => {
        response.writeHead(request.url?.startsWith("/missing") === true ? 404 : 200, { "x-program": "yes" });
        response.write(JSON.stringify({ method: request.method, url: request.url, headers: request.headers }) + "\n");
        request.pipe(response);
      });
      http.listen(0, "127.0.0.1");
      await once(http, "listening");
      closing.unshift(() => http.close());
      const ports = await pickPorts(["grpc", "api", "metrics"], {});
      const wakes = dial(
        WakeServiceClient,
        `127.0.0.1:${String(ports.grpc)}`,
        "operator",
        clientCredentials(material(router)),
      );
      const flags = {
        kubeconfig: writeKubeconfig(join(cp.folder, "operator.yaml"), cp.server, caFile, operator),
        "grpc-listen": `127.0.0.1:${String(ports.grpc)}`,
        "advertise-address": `127.0.0.1:${String(ports.grpc)}`,
        "api-listen": `127.0.0.1:${String(ports.api)}`,
        "requestheader-ca": cp.plane.pki.files.frontProxyAuthority,
        "requestheader-allowed-names": FRONT_PROXY_NAME,
        "tls-cert": operator.cert,
        "tls-key": operator.key,
        "tls-ca": caFile,
        "router-url": `http://127.0.0.1:${String((http.address() as AddressInfo).port)}`,
        "metrics-listen": `127.0.0.1:${String(ports.metrics)}`,
        "lease-duration": "6",
        "log-level": "debug",
        ...(options.nodeLostAfter && { "node-lost-after": options.nodeLostAfter }),
      };
      const fixture = new Fixture({
        cp,
        client,
        atelet: fake,
        newAtelet,
        arguments: Object.entries(flags).flatMap(([flag, value]) => [`--${flag}`, value]),
        router: http,
        wakes,
        readyz: `http://127.0.0.1:${String(ports.metrics)}/readyz`,
      });
      closing.unshift(() => fixture.stopOperator("SIGKILL"));
      await fixture.startOperator();
      await registerApi(client, ports.api, caFile);
      await waitForApi(client, 20_000);
      await client.create(namespaces, { metadata: { name: "test" } });
      return fixture;
    } catch (error) {
      for (const close of closing) await close();
      throw error;
    }
  }

  async stop(): Promise<void> {
    await this.stopOperator("SIGTERM");
    this.#wakes.close();
    this.#router.close();
    this.#router.closeAllConnections();
    await this.atelet.stop();
    await this.client.close();
    await this.#cp.stop();
  }

  async startOperator(): Promise<void> {
    const terms = (): number => this.log().split('"message":"leading"').length;
    const before = terms();
    const child = spawn(process.execPath, [join(root, "operator/src/main.ts"), ...this.#arguments], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#process = child;
    child.stderr.pipe(createWriteStream(this.logFile, { flags: "a" }));
    await eventually(
      () => {
        if (child.exitCode !== null)
          throw new Error(`the operator ended with ${String(child.exitCode)}: ${this.log()}`);
        if (terms() === before) throw new Error(`the operator does not lead: ${this.log()}`);
      },
      { deadlineMs: 40_000 },
    );
  }

  /** @returns its exit code, null after a signal. */
  async stopOperator(signal: "SIGTERM" | "SIGKILL"): Promise<number | null> {
    const child = this.#process;
    if (child === undefined) return null;
    this.#process = undefined;
    if (child.exitCode === null) {
      const exited = once(child, "exit");
      child.kill(signal);
      await exited;
    }
    return child.exitCode;
  }

  /** A file of the test with this content; its path. */
  #file(name: string, content: string): string {
    const path = join(this.#cp.folder, name);
    writeFileSync(path, content);
    return path;
  }

  /** What the operator's /readyz answers. */
  async ready(): Promise<string> {
    return (await (await fetch(this.#readyz)).text()).trim();
  }

  log(): string {
    return readFileSync(this.logFile, { encoding: "utf8", flag: "a+" });
  }

  async kubectl(...args: string[]): Promise<string> {
    const { stdout } = await run(tools.kubectl, ["--kubeconfig", this.#cp.kubeconfig, ...args], {
      maxBuffer: 2 ** 24,
      timeout: 30_000,
    });
    return stdout;
  }

  /** Rights in namespace test for a user, beside those that he has. */
  async allow(user: string, name: string, rule: { apiGroup: string; resource: string; verb: string }): Promise<void> {
    const apiVersion = "rbac.authorization.k8s.io/v1";
    const metadata = { name, namespace: "test" };
    const rules = [{ apiGroups: [rule.apiGroup], resources: [rule.resource], verbs: [rule.verb] }];
    const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name };
    const items = [
      { apiVersion, kind: "Role", metadata, rules },
      { apiVersion, kind: "RoleBinding", metadata, roleRef, subjects: [{ kind: "User", name: user }] },
    ];
    const list = JSON.stringify({ apiVersion: "v1", kind: "List", items });
    await this.kubectl("create", "-f", this.#file(`${name}.json`, list));
  }

  /** The suspend verb as people use it; what it answered. */
  async suspend(name: string, body: object = {}): Promise<string> {
    return this.#verb(name, "suspend", body);
  }

  /** Likewise, with more arguments for kubectl. */
  async resume(name: string, body: object = {}, ...args: string[]): Promise<string> {
    return this.#verb(name, "resume", body, ...args);
  }

  async #verb(name: string, verb: string, body: object, ...args: string[]): Promise<string> {
    const path = `/apis/subresources.substrate.run/v1alpha1/namespaces/test/actors/${name}/${verb}`;
    const file = this.#file(`${randomUUID()}.json`, JSON.stringify(body));
    return this.kubectl("create", "--raw", path, "-f", file, ...args);
  }

  /** A Template of one program, applied and not waited for. */
  async apply(name: string, spec: Partial<Template["spec"]> = {}, image = goodImage): Promise<Template> {
    return this.client.apply(templates, {
      metadata: { name, namespace: "test" },
      spec: {
        containers: [
          {
            name: "main",
            image,
            ports: [{ name: "http", containerPort: 8080 }],
            readyz: { httpGet: { path: "/readyz", port: "http" } },
            resources: { limits: { cpu: "500m", memory: "128Mi" } },
          },
        ],
        ...spec,
      } as Template["spec"],
    });
  }

  /** A Template, Ready. */
  async template(name: string, spec: Partial<Template["spec"]> = {}): Promise<void> {
    const { metadata } = await this.apply(name, spec);
    await eventually(
      async () => {
        const { status } = (await this.client.get(templates, name, "test")) ?? {};
        const isSeen = (status?.observedGeneration ?? 0) >= (metadata.generation ?? 0);
        if (!isSeen || status?.phase !== "Ready") throw new Error(JSON.stringify(status));
      },
      { deadlineMs: 10_000 },
    );
  }

  /** A new actor, Ready. */
  async actor(
    templateName: string,
    name = `a-${randomUUID().slice(0, 8)}`,
    spec: Partial<Actor["spec"]> = {},
  ): Promise<Actor> {
    await this.client.create(actors, {
      metadata: { name, namespace: "test" },
      spec: { templateRef: { name: templateName }, state: "OnDemand", ...spec },
    });
    return this.until(name, (actor) => condition(actor, "Ready")?.status === "True");
  }

  /** The actor as soon as it fulfils `holds`. */
  async until(name: string, holds: (actor: Actor) => boolean, deadlineMs = 10_000): Promise<Actor> {
    return eventually(
      async () => {
        const actor = await this.read(name);
        if (!holds(actor)) throw new Error(`actor ${name}: ${JSON.stringify(actor.status)}`);
        return actor;
      },
      { deadlineMs },
    );
  }

  async read(name: string): Promise<Actor> {
    const actor = await this.client.get(actors, name, "test");
    if (actor === undefined) throw new Error(`actor ${name} is gone`);
    return actor;
  }

  async wake(actor: Actor): Promise<string> {
    const { name, namespace = "", uid = "" } = actor.metadata;
    const call = this.#wakes.wake.bind(this.#wakes);
    const { nodeName } = await unary(call, { actorUid: uid, namespace, name }, { deadlineMs: 40_000 });
    return nodeName;
  }

  /** Calls of one method for one actor that have reached the atelet. */
  epochs(method: FakeAtelet["calls"][number]["method"], actor: Actor): number[] {
    return this.atelet.calls
      .filter((call) => call.method === method && call.uid === actor.metadata.uid)
      .map((call) => call.epoch);
  }
}

export function condition(actor: Actor, type: string): { status: string; reason: string; message: string } | undefined {
  return actor.status?.conditions?.find((candidate) => candidate.type === type);
}

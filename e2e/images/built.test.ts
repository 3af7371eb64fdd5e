import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, chownSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { buildImages } from "@substrate/images/build.ts";
import { NONROOT, partImages, type PartName } from "@substrate/images/table.ts";
import { operatorArguments, type PartIdentity, routerArguments } from "@substrate/local/parts.ts";
import { writeKubeconfig } from "@substrate/local/kubeconfig.ts";
import { pickPorts } from "@substrate/local/ports.ts";
import { startControlPlane, type TestControlPlane } from "../support/controlplane.ts";
import { eventually } from "../support/poll.ts";
import { Container, unpack, type UnpackedImage } from "./container.ts";

const missing = ["buildah", "runc", "apt-get"].filter((program) => spawnSync(program, ["--version"]).error);
const why =
  missing.length === 0 ? "" : ` (skipped: ${missing.join(", ")} missing; node local/setup.mjs --with-cluster)`;
const parts: readonly PartName[] = ["operator", "atelet", "router"];

/** Waits for its message or its error. */
const loadWorkers = `
  const { Worker } = require("node:worker_threads");
  const load = (file) => new Promise((resolve, reject) => {
    const code = "import(require('node:worker_threads').workerData.file).then(() => require('node:worker_threads').parentPort.postMessage('loaded'))";
    const worker = new Worker(code, { eval: true, workerData: { file, settings: {}, limits: {} } });
    worker.once("message", () => resolve(worker.terminate()));
    worker.once("error", (error) => reject(new Error(file + ": " + error.stack)));
  });
  const rules = () => new Promise((resolve, reject) => {
    const worker = new Worker("/opt/substrate/lane-worker.mjs");
    worker.postMessage({ id: 1, method: "nft", args: ["add table inet trial"] });
    worker.once("message", (answer) => (answer.error ? reject(new Error(answer.error)) : resolve(worker.terminate())));
    worker.once("error", reject);
  });
  (async () => {
    for (const file of process.argv.slice(1)) await load(file);
    await rules();
    console.log("all loaded");
  })();
`;

describe.skipIf(missing.length > 0)(`images${why}`, () => {
  let folder: string;
  const images = {} as Record<PartName, UnpackedImage>;
  const containers: Container[] = [];
  let cp: TestControlPlane | undefined;

  async function start(...options: Parameters<typeof Container.start>): Promise<Container> {
    const container = await Container.start(...options);
    containers.push(container);
    return container;
  }

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "sub-img-"));
    chmodSync(folder, 0o755);
    for (const { name, archive } of await buildImages({ names: parts })) {
      images[name as PartName] = await unpack(archive, join(folder, name));
    }
  }, 600_000);

  afterAll(async () => {
    for (const container of containers) await container.remove();
    await cp?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it("say what they are, and nothing in them is setuid", () => {
    for (const part of parts) {
      const { config, tags, rootfs } = images[part];
      expect(tags.join(), part).toMatch(new RegExp(`(^|/)substrate/${part}:\\d+\\.\\d+\\.\\d+$`));
      expect(config.User, part).toBe(part === "atelet" ? "0:0" : `${NONROOT}:${NONROOT}`);
      expect(config.Entrypoint[1]).toBe(`/opt/substrate/${partImages[part].main}`);
      expect(config.Labels["org.opencontainers.image.title"]).toBe(`substrate/${part}`);
      expect(execFileSync("find", [rootfs, "-xdev", "-perm", "/6000"], { encoding: "utf8" }), part).toBe("");
    }
    const shells = ["operator", "router"]
      .map((part) => images[part as PartName].rootfs)
      .flatMap((rootfs) => [
        spawnSync("find", [rootfs, "-name", "sh", "-o", "-name", "dash", "-o", "-name", "bash"], { encoding: "utf8" })
          .stdout,
      ]);
    expect(shells.join("")).toBe("");
  });

  it("operator and router become ready as a user without rights on a read-only root, and end by SIGTERM", async () => {
    const plane = (cp = await startControlPlane());
    const ports = await pickPorts(["operator", "operatorApi", "operatorMetrics", "router", "routerMetrics"], {});
    const files = join(folder, "files");
    mkdirSync(files);
    const readable = (path: string, name: string): string => {
      copyFileSync(path, join(files, name));
      chownSync(join(files, name), NONROOT, NONROOT);
      return join(files, name);
    };
    const authority = readable(plane.plane.pki.authority.files.cert, "ca.crt");
    const identity = async (part: PartName): Promise<PartIdentity> => {
      const tls = await plane.issue(
        {
          subject: `CN=system:serviceaccount:substrate-system:${part}`,
          dnsNames: [`${part}.substrate.internal`, `${part}.substrate-system.svc`, "localhost"],
          ipAddresses: ["127.0.0.1"],
        },
        { cert: join(files, `${part}.crt`), key: join(files, `${part}.key`) },
      );
      for (const path of [tls.cert, tls.key]) chownSync(path, NONROOT, NONROOT);
      const kubeconfig = writeKubeconfig(join(files, `${part}.yaml`), plane.server, authority, tls);
      chownSync(kubeconfig, NONROOT, NONROOT);
      return { kubeconfig, tls, authority };
    };
    const frontProxy = readable(plane.plane.pki.files.frontProxyAuthority, "front-proxy.crt");
    const [, ...operatorFlags] = operatorArguments(await identity("operator"), ports, frontProxy);
    const [, ...routerFlags] = routerArguments(await identity("router"), ports);
    const started: [Container, number][] = [
      [await start(folder, { image: images.operator, args: operatorFlags, folders: [files] }), ports.operatorMetrics],
      [await start(folder, { image: images.router, args: routerFlags, folders: [files] }), ports.routerMetrics],
    ];
    for (const [container, port] of started) {
      await eventually(
        async () => {
          const answer = await fetch(`http://127.0.0.1:${port}/readyz`);
          expect(answer.status, `${await answer.text()} ${container.output.slice(-2000)}`).toBe(200);
        },
        { deadlineMs: 60_000 },
      );
      const status = readFileSync(`/proc/${await container.pid()}/status`, "utf8");
      expect(status).toMatch(new RegExp(`^Uid:\\s+${NONROOT}\\s`, "m"));
      expect(status).toMatch(/^CapEff:\s+0+$/m);
    }
    for (const [container] of started) expect(await container.end("TERM"), container.output).toBe(0);
  });

  it("the atelet's says which flag is missing, and loads all of its threads and libraries", async () => {
    const image = images.atelet;
    const bare = await start(folder, { image, args: [] });
    expect(await bare.end(), bare.output).toBe(2);
    expect(bare.output).toMatch(partImages.atelet.complains);
    const workers = Object.keys(partImages.atelet.bundles).filter((name) => name.endsWith("-worker.mjs"));
    const files = workers.map((name) => `/opt/substrate/${name}`);
    const [node = ""] = image.config.Entrypoint;
    const loading = await start(folder, {
      image,
      args: [node, "-e", loadWorkers, ...files],
      instead: true,
      ownNetwork: true,
      capabilities: ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"],
    });
    expect(await loading.end(), loading.output).toBe(0);
    expect(loading.output).toContain("all loaded");
  });
});

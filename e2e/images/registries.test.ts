import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { createServer, type Server } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { Registry } from "@substrate/atelet/images/registry.ts";
import { buildOciLayout } from "@substrate/examples/oci.ts";
import { tools } from "../support/tools.ts";
import { startRegistry, type TestRegistry } from "./registry.ts";

const run = promisify(execFile);

let dir: string;
let registry: TestRegistry;
/** In front of the registry, by TLS and with a password. */
let guard: Server;
let guarded: string;
let digest: string;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "registries-"));
  await mkdir(join(dir, "registry"));
  registry = await startRegistry(join(dir, "registry"));
  const image = await buildOciLayout({
    name: "app",
    files: [{ path: "/bin/app", mode: 0o755, content: "#!/bin/true\n" }],
    config: { entrypoint: ["/bin/app"] },
    outDir: join(dir, "layout"),
  });
  const [path = ""] = image.reference.slice("oci:".length).split("@");
  await run(tools.crane, ["push", path, `${registry.address}/team/app:1`]);
  digest = (await run(tools.crane, ["digest", `${registry.address}/team/app:1`])).stdout.trim();
  const names = ["-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"];
  const files = ["-keyout", join(dir, "key.pem"), "-out", join(dir, "ca.crt")];
  await run("openssl", [
    "req",
    "-x509",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
    ...names,
    ...files,
  ]);
  guard = await startGuard(registry.address);
  const address = guard.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  guarded = `127.0.0.1:${address.port}`;
  await mkdir(join(dir, "secret"));
});

afterAll(async () => {
  guard.close();
  guard.closeAllConnections();
  await registry.stop();
  await rm(dir, { recursive: true });
});

async function startGuard(behind: string): Promise<Server> {
  const wanted = `Basic ${Buffer.from("user:hush").toString("base64")}`;
  const tls = { key: await readFile(join(dir, "key.pem")), cert: await readFile(join(dir, "ca.crt")) };
  const server = createServer(tls, (incoming, answer) => {
    if (incoming.headers.authorization !== wanted) {
      answer.writeHead(401, { "www-authenticate": 'Basic realm="guard"' }).end();
      return;
    }
    const { method, headers, url } = incoming;
    const onward = request(`http://${behind}${url ?? "/"}`, { method, headers }, (from) => {
      answer.writeHead(from.statusCode ?? 502, from.headers);
      from.pipe(answer);
    });
    onward.on("error", () => answer.destroy());
    incoming.pipe(onward);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

async function secret(password: string): Promise<void> {
  const auth = Buffer.from(`user:${password}`).toString("base64");
  await writeFile(join(dir, "secret", "config.json"), JSON.stringify({ auths: { [`${guarded}/team`]: { auth } } }));
}

async function configured(config: object): Promise<Registry> {
  const registryConfigPath = join(dir, "registries.yaml");
  await writeFile(registryConfigPath, JSON.stringify(config));
  return new Registry({ crane: tools.crane, registryConfigPath });
}

it("pulls from a private registry with its own authority, and takes a changed pull secret at once", async () => {
  const pullSecrets = [join(dir, "secret")];
  const image = `${guarded}/team/app:1`;
  const registries = await configured({ pullSecrets, caFile: join(dir, "ca.crt") });
  await secret("wrong");
  const refused = await registries.resolve(image).catch(String);
  expect(refused).toContain(`image ${image}`);
  expect(refused).toContain(`asked with the pull secret ${join(dir, "secret")}, entry ${guarded}/team`);
  expect(refused).not.toContain("hush");
  await secret("hush");
  expect(await registries.resolve(image)).toBe(digest);
  await registries.pull(`${guarded}/team/app@${digest}`, join(dir, "pulled"));
  expect(JSON.parse(await readFile(join(dir, "pulled", "index.json"), "utf8"))).toMatchObject({
    manifests: [{ digest }],
  });
  const other = await (await configured({ pullSecrets: [], caFile: join(dir, "ca.crt") })).resolve(image).catch(String);
  expect(other).toContain(`no pull secret has an entry for ${guarded}`);
  await expect((await configured({ pullSecrets })).resolve(image)).rejects.toThrow(
    /name a file with its authority as caFile/,
  );
});

it("asks a mirror first, then the image's own registry, and tells of both", async () => {
  const original = `${registry.address}/team/app:1`;
  const mirror = { prefix: "reg.invalid/x", location: `${registry.address}/team` };
  expect(await (await configured({ mirrors: [mirror] })).resolve("reg.invalid/x/app:1")).toBe(digest);
  const empty = { prefix: registry.address, location: `${registry.address}/empty` };
  const registries = await configured({ mirrors: [empty] });
  expect(await registries.resolve(original)).toBe(digest);
  await registries.pull(`${registry.address}/team/app@${digest}`, join(dir, "fallen-back"));
  const nowhere = await registries.resolve(`${registry.address}/none:1`).catch(String);
  expect(nowhere).toMatch(/none:1: .*push it.*before that, its mirrors: .*\/empty: /);
});

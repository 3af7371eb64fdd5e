import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { pullSecretFor } from "./pull-secrets.ts";
import { readRegistryConfig, sourcesOf } from "./registry-config.ts";

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "registries-"));
});
afterAll(() => rm(dir, { recursive: true }));

async function config(text: string): Promise<string> {
  const path = join(dir, "registries.yaml");
  await writeFile(path, text);
  return path;
}

it("reads what is there and refuses what is wrong with the path of it", async () => {
  expect(await readRegistryConfig(await config(""))).toEqual({ mirrors: [], pullSecrets: [] });
  const text = "mirrors: [{prefix: docker.io, location: 'm:5000/hub'}]\npullSecrets: [/a]\ncaFile: /ca.crt\n";
  expect(await readRegistryConfig(await config(text))).toEqual({
    mirrors: [{ prefix: "docker.io", location: "m:5000/hub", insecure: false }],
    pullSecrets: ["/a"],
    caFile: "/ca.crt",
  });
  for (const [wrong, says] of [
    ["pullSecrets: [rel]", "expects an absolute path"],
    ["mirrors: [{prefix: 'https://docker.io', location: m}]", "mirrors[0].prefix"],
    ["mirors: []", "mirors"],
    ["a: [", "registries.yaml"],
  ] as const) {
    await expect(readRegistryConfig(await config(wrong))).rejects.toThrow(says);
  }
  await expect(readRegistryConfig("/nowhere/x.yaml")).rejects.toThrow("/nowhere/x.yaml");
});

it("asks fitting mirrors first, the most special one before others, and the registry at last", () => {
  const mirrors = [
    { prefix: "docker.io", location: "mirror:5000/hub", insecure: true },
    { prefix: "docker.io/library", location: "official.example", insecure: false },
    { prefix: "reg.example/team", location: "mirror:5000/team", insecure: false },
  ];
  const asked = (reference: string) => sourcesOf(reference, mirrors).map((source) => source.reference);
  expect(asked("nginx:1")).toEqual(["official.example/nginx:1", "mirror:5000/hub/library/nginx:1", "nginx:1"]);
  expect(asked("user/x@sha256:0")).toEqual(["mirror:5000/hub/user/x@sha256:0", "user/x@sha256:0"]);
  expect(asked("reg.example/team/x:2")).toEqual(["mirror:5000/team/x:2", "reg.example/team/x:2"]);
  expect(asked("reg.example/teams/x:2")).toEqual(["reg.example/teams/x:2"]);
});

it("takes the pull secret whose entry fits best", async () => {
  const folders = ["a", "b"].map((name) => join(dir, name));
  const [a, b] = folders as [string, string];
  await mkdir(a);
  await mkdir(b);
  await writeFile(
    join(a, ".dockerconfigjson"),
    JSON.stringify({ auths: { "reg.example": { auth: "1" }, "https://index.docker.io/v1/": { auth: "2" } } }),
  );
  await writeFile(
    join(b, "config.json"),
    JSON.stringify({
      auths: { "reg.example/team": { auth: "3" }, "*.cloud.example": { auth: "4" }, "reg.example": {} },
    }),
  );
  const entry = async (reference: string) => (await pullSecretFor(reference, folders))?.auth.auth;
  expect(await entry("reg.example/x:1")).toBe("1");
  expect(await entry("reg.example/team/x:1")).toBe("3");
  expect(await entry("reg.example/teams/x:1")).toBe("1");
  expect(await entry("nginx")).toBe("2");
  expect(await entry("eu.cloud.example/x")).toBe("4");
  expect(await entry("a.b.cloud.example/x")).toBeUndefined();
  expect(await entry("reg.example:5000/x")).toBeUndefined();
  await expect(pullSecretFor("x", [dir])).rejects.toThrow(/no \.dockerconfigjson or config\.json in .*kubectl create/);
  await writeFile(join(a, ".dockerconfigjson"), "{hush");
  await expect(pullSecretFor("x", folders)).rejects.toThrow(/^a pull secret cannot be used: .* is no docker config/);
});

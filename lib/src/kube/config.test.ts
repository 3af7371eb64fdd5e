import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { stringify } from "yaml";
import { inClusterConfig, loadKubeConfig } from "./config.ts";

const folder = mkdtempSync(join(tmpdir(), "substrate-kubeconfig-"));

afterAll(() => {
  rmSync(folder, { recursive: true });
});

function kubeconfig(changes: { current?: string | undefined; user?: object; cluster?: object } = {}): string {
  const path = join(folder, "config");
  writeFileSync(
    path,
    stringify({
      "current-context": "current" in changes ? changes.current : "x",
      contexts: [{ name: "x", context: { cluster: "c", user: "u", namespace: "d" } }],
      clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:6443", ...changes.cluster } }],
      users: [{ name: "u", user: changes.user ?? { token: "t" } }],
    }),
  );
  return path;
}

it("reads inline certificates, and files beside the kubeconfig", () => {
  writeFileSync(join(folder, "ca.crt"), "the CA");
  const { server, ca, cert, key, token } = loadKubeConfig(
    kubeconfig({
      cluster: { "certificate-authority": "ca.crt" },
      user: { "client-certificate-data": btoa("the certificate"), "client-key-data": btoa("the key") },
    }),
  );
  expect([server, ca?.toString(), cert?.toString(), key?.toString(), token]).toEqual([
    "https://127.0.0.1:6443",
    "the CA",
    "the certificate",
    "the key",
    undefined,
  ]);
});

it("reads a token file at every call", () => {
  writeFileSync(join(folder, "token"), "one\n");
  const { token } = loadKubeConfig(kubeconfig({ user: { tokenFile: "token" } }));
  expect(token?.()).toBe("one");
  writeFileSync(join(folder, "token"), "two\n");
  expect(token?.()).toBe("two");
});

it.each([
  ["a missing context", { current: "y" }, 'current-context "y" is not in contexts'],
  ["no current context", { current: undefined }, 'set one with "kubectl config use-context"'],
  ["no credentials", { user: {} }, 'user "u" has neither a client certificate with key nor a token'],
  ["a missing file", { cluster: { "certificate-authority": "no" } }, "no cannot be read: ENOENT"],
  ["no server", { cluster: { server: 1 } }, "clusters[0].cluster.server"],
])("says what is wrong with %s", (_, changes, message) => {
  const path = kubeconfig(changes);
  expect(() => loadKubeConfig(path)).toThrow(message);
});

it("says that there is no such file", () => {
  expect(() => loadKubeConfig("/nowhere/config")).toThrow("kubeconfig /nowhere/config cannot be read: ENOENT");
});

it("says outside a pod what is missing", () => {
  expect(() => inClusterConfig({})).toThrow("name a kubeconfig by --kubeconfig");
  expect(() => inClusterConfig({ KUBERNETES_SERVICE_HOST: "10.0.0.1" })).toThrow(/^cluster CA .* cannot be read/);
});

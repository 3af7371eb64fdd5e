import { expect, it } from "vitest";
import { type EnvVar } from "@substrate/crds/index.ts";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { type Secret } from "@substrate/lib/kube/types.ts";
import { Environments, mergeEnv } from "./environment.ts";

function environments(data: Record<string, Record<string, string>>): Environments {
  const get = (_: unknown, name: string): Promise<Pick<Secret, "data"> | undefined> => {
    const values = data[name];
    if (values === undefined) return Promise.resolve(undefined);
    const encoded = Object.entries(values).map(([key, value]) => [key, Buffer.from(value).toString("base64")]);
    return Promise.resolve({ data: Object.fromEntries(encoded) as Record<string, string> });
  };
  return new Environments({ get } as unknown as Pick<KubeClient, "get">);
}

const owner = (templateUid: string) => ({ about: "Actor ns/a", namespace: "ns", templateUid });
const plain: EnvVar[] = [
  { name: "B", value: "2" },
  { name: "A", value: "1" },
];
const secret: EnvVar = { name: "TOKEN", valueFrom: { secretKeyRef: { name: "api", key: "token" } } };

it("lets the actor's variables win over the Template's, by name", () => {
  expect(mergeEnv(plain, [{ name: "A", value: "mine" }, secret])).toEqual([
    { name: "B", value: "2" },
    { name: "A", value: "mine" },
    secret,
  ]);
});

it("resolves Secrets, and tells environments apart by a digest that no order changes", async () => {
  const resolve = (uid: string, env: EnvVar[], token = "t") =>
    environments({ api: { token } }).resolve(owner(uid), env);
  const one = await resolve("u1", [...plain, secret]);
  expect(one.variables.at(-1)).toEqual({ name: "TOKEN", value: "t" });
  expect((await resolve("u1", [secret, ...plain.toReversed()])).digest).toBe(one.digest);
  expect((await resolve("u1", [...plain, secret], "other")).digest).not.toBe(one.digest);
  // no table of digests tells a Secret of all Templates; a golden start needs the same digest for the same plain values
  expect((await resolve("u2", [...plain, secret])).digest).not.toBe(one.digest);
  expect((await resolve("u2", plain)).digest).toBe((await resolve("u1", plain)).digest);
  expect((await resolve("u1", [])).digest).toBe("");
});

it("names Secret, key and variable when one is missing, and never a value", async () => {
  const missing = environments({}).resolve(owner("u"), [secret]);
  await expect(missing).rejects.toMatchObject({ code: "SECRET_MISSING", retryAfterMs: 10_000 });
  await expect(missing).rejects.toThrow(
    'Actor ns/a: variable TOKEN: Secret ns/api does not exist: create it with key "token", or correct env',
  );
  await expect(environments({ api: { other: "hidden" } }).resolve(owner("u"), [secret])).rejects.toThrow(
    /^Actor ns\/a: variable TOKEN: Secret ns\/api has no key "token": add it, or correct env$/,
  );
  await expect(environments({ api: { token: "hid\0den" } }).resolve(owner("u"), [secret])).rejects.toThrow(
    /^Actor ns\/a: variable TOKEN: key "token" of Secret ns\/api has a NUL byte: no program can get it$/,
  );
});

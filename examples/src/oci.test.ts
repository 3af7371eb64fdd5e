import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { parseAllDocuments } from "yaml";
import { buildOciLayout } from "./oci.ts";
import { renderExample } from "./render.ts";

let dir: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "oci-"));
});

afterEach(() => rm(dir, { recursive: true }));

it("writes the same bytes for the same files, whatever their order", async () => {
  const files = [
    { path: "/bin/a", mode: 0o755, content: "a" },
    { path: "/etc/b", mode: 0o644, content: "b" },
    { path: "/lib", linkTo: "/usr/lib" },
  ];
  const config = { entrypoint: ["/bin/a"], exposedPorts: ["8080/tcp"] };
  const one = await buildOciLayout({ name: "x", files, config, outDir: join(dir, "1") });
  const two = await buildOciLayout({ name: "x", files: files.toReversed(), config, outDir: join(dir, "2") });
  expect(two.digest).toBe(one.digest);
  expect(one.reference).toBe(`oci:${join(dir, "1")}@${one.digest}`);
  const blobs = await readdir(join(dir, "1/blobs/sha256"));
  expect((await readdir(join(dir, "2/blobs/sha256"))).sort()).toEqual(blobs.sort());
  const index = JSON.parse(await readFile(join(dir, "1/index.json"), "utf8")) as unknown;
  expect(index).toMatchObject({ manifests: [{ annotations: { "org.opencontainers.image.ref.name": "x" } }] });
});

it("keeps earlier images addressable", async () => {
  const build = (content: string) =>
    buildOciLayout({ name: "x", files: [{ path: "/a", mode: 0o644, content }], config: {}, outDir: dir });
  const { digest } = await build("1");
  expect((await build("2")).digest).not.toBe(digest);
  expect(await readdir(join(dir, "blobs/sha256"))).toContain(digest.slice("sha256:".length));
});

it("sets the image of the example's Template and nothing else", async () => {
  const image = `oci:/abs@sha256:${"0".repeat(64)}`;
  const text = await renderExample("counter", { image });
  const [template, actor] = parseAllDocuments(text).map((document) => document.toJS() as unknown);
  expect(template).toMatchObject({ kind: "Template", spec: { containers: [{ name: "counter", image }] } });
  expect(actor).toMatchObject({ kind: "Actor", spec: { templateRef: { name: "counter" } } });
});

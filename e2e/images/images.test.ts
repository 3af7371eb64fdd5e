import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ImageStore } from "@substrate/atelet/images/image-store.ts";
import { buildOciLayout, type ImageConfig, type ImageFile, type OciLayout } from "@substrate/examples/oci.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { tools } from "../support/tools.ts";
import { startRegistry, type TestRegistry } from "./registry.ts";

const run = promisify(execFile);

let dir: string;
let registry: TestRegistry;
let images: ImageStore;
let unique = 0;

const files: ImageFile[] = [
  { path: "/bin/app", mode: 0o755, content: "#!/bin/true\n" },
  { path: "/etc/passwd", mode: 0o644, content: "root:x:0:0:::\napp:x:1000:1001:::\n" },
  { path: "/run", linkTo: "/var/run" },
  { path: "/var/run/keep", mode: 0o600, content: "" },
];
const config: ImageConfig = {
  entrypoint: ["/bin/app"],
  cmd: ["serve"],
  env: ["A=1"],
  workingDir: "/srv/app",
  user: "app",
};

const claimed: number[] = [];

function openImages(options: { allowLocalImages?: boolean; crane?: string; dir?: string } = {}): Promise<ImageStore> {
  return ImageStore.open({
    dir: join(dir, "node"),
    crane: tools.crane,
    umoci: tools.umoci,
    allowLocalImages: true,
    claim: (bytes) => {
      claimed.push(bytes);
      return Promise.resolve({ end: () => undefined });
    },
    bytesBelow: () => Promise.resolve(1),
    log: createLogger("test", "error"),
    ...options,
  });
}

/** A layout that no other test has, as its digest differs. */
function layout(changes: { files?: readonly ImageFile[]; config?: ImageConfig } = {}): Promise<OciLayout> {
  unique += 1;
  return buildOciLayout({
    name: "app",
    files: [...(changes.files ?? files), { path: "/unique", mode: 0o600, content: String(unique) }],
    config: changes.config ?? config,
    outDir: join(dir, `layout-${unique}`),
  });
}

async function push(image: OciLayout, name: string): Promise<string> {
  const reference = `${registry.address}/${name}`;
  const [path = ""] = image.reference.slice("oci:".length).split("@");
  await run(tools.crane, ["push", path, reference]);
  return reference;
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "images-"));
  await mkdir(join(dir, "registry"));
  registry = await startRegistry(join(dir, "registry"));
  images = await openImages();
});

afterAll(async () => {
  await registry.stop();
  await rm(dir, { recursive: true });
});

describe("a pulled image", () => {
  it("is unpacked with its configuration and the mount points", async () => {
    const built = await layout();
    const image = await images.ensure(await push(built, "app:1"));
    expect(image).toMatchObject({
      digest: built.digest,
      entrypoint: ["/bin/app"],
      cmd: ["serve"],
      uid: 1000,
      gid: 1001,
    });
    expect(image.env).toEqual([expect.stringMatching(/^PATH=/), "A=1"]);
    expect(image.workingDir).toBe("/srv/app");
    expect(await readFile(join(image.rootfsDir, "bin/app"), "utf8")).toBe("#!/bin/true\n");
    expect(await readlink(join(image.rootfsDir, "run"))).toBe("/var/run");
    for (const path of ["var/run/ate", "proc", "sys", "dev/shm", "tmp", "srv/app"]) {
      expect((await lstat(join(image.rootfsDir, path))).isDirectory(), path).toBe(true);
    }
    expect(await readdir(join(dir, "node/images/.tmp"))).toEqual([]);
  });

  it("is fetched once for many callers, and then needs no registry", async () => {
    const built = await layout();
    const reference = await push(built, "app:2");
    const counting = join(dir, "crane-counting");
    const count = join(dir, "count");
    await writeFile(counting, `#!/bin/sh\necho "$1" >> ${count}\nexec ${tools.crane} "$@"\n`, { mode: 0o755 });
    const counted = await openImages({ crane: counting, dir: join(dir, "counted") });
    const byDigest = `${registry.address}/app@${built.digest}`;
    const asked = [reference, reference, byDigest, reference, byDigest].map((one) => counted.ensure(one));
    const all = await Promise.all(asked);
    expect(new Set(all.map(({ rootfsDir }) => rootfsDir)).size).toBe(1);
    expect((await readFile(count, "utf8")).split("\n").filter((line) => line === "pull")).toHaveLength(1);
    const offline = await openImages({ crane: "/bin/false", dir: join(dir, "counted") });
    expect(await offline.ensure(byDigest)).toEqual(all[0]);
    expect(await offline.local(built.digest)).toEqual(all[0]);
    expect(await offline.local(`sha256:${"0".repeat(64)}`)).toBeUndefined();
    await expect(offline.ensure(reference)).rejects.toMatchObject({ code: "IMAGE_UNAVAILABLE" });
  });

  it("is found in an index, which is remembered too", async () => {
    const image = await push(await layout(), "app:3");
    const index = `${registry.address}/multi:1`;
    await run(tools.crane, ["index", "append", "-t", index, "-m", image]);
    const { stdout: digest } = await run(tools.crane, ["digest", index]);
    const reference = `${registry.address}/multi@${digest.trim()}`;
    const pulled = await images.ensure(reference);
    const offline = await openImages({ crane: "/bin/false" });
    expect(await offline.ensure(reference)).toEqual(pulled);
  });

  it("may have Docker's media types and gzip layers", async () => {
    const built = await layout();
    const [path = ""] = built.reference.slice("oci:".length).split("@");
    const reference = await push(await asDocker(path, built.digest), "docker:1");
    const image = await images.ensure(reference);
    expect(await readFile(join(image.rootfsDir, "etc/passwd"), "utf8")).toContain("app");
  });
});

describe("errors name the image and the fix", () => {
  it.each([
    ["unknown name", () => `${registry.address}/nothing:1`, "IMAGE_UNAVAILABLE", "push it"],
    ["unknown digest", () => `${registry.address}/app@sha256:${"1".repeat(64)}`, "IMAGE_UNAVAILABLE", "push it"],
    ["no registry there", () => "127.0.0.1:1/app:1", "IMAGE_UNAVAILABLE", "reaches the registry"],
    ["no reference", () => "not a reference", "IMAGE_INVALID", "registry/repository:tag"],
    ["no layout there", () => `oci:/nowhere@sha256:${"1".repeat(64)}`, "IMAGE_UNAVAILABLE", "build it again"],
  ])("%s", async (_, reference, code, fix) => {
    const failing = images.ensure(reference());
    await expect(failing).rejects.toMatchObject({ code, message: expect.stringContaining(fix) as string });
    await expect(failing).rejects.toThrow(reference());
  });

  it("another architecture", async () => {
    const built = await layout({ config: { ...config, architecture: "arm64" } });
    const reference = await push(built, "arm:1");
    for (const one of [built.reference, reference]) {
      await expect(images.ensure(one)).rejects.toMatchObject({
        code: "IMAGE_INVALID",
        message: expect.stringContaining("linux/arm64") as string,
      });
    }
  });

  it("an unknown user, and files where folders must be", async () => {
    const noUser = await layout({ config: { ...config, user: "ghost" } });
    await expect(images.ensure(noUser.reference)).rejects.toThrow(/"ghost" is not in its \/etc\/passwd/);
    const file = await layout({ files: [{ path: "/run", mode: 0o644, content: "" }], config: {} });
    await expect(images.ensure(file.reference)).rejects.toThrow(/\/run is a file/);
    expect(await readdir(join(dir, "node/images/.tmp"))).toEqual([]);
  });

  it("a damaged layer", async () => {
    const built = await layout();
    const [path = ""] = built.reference.slice("oci:".length).split("@");
    for (const name of await readdir(join(path, "blobs/sha256"))) {
      const blob = join(path, "blobs/sha256", name);
      const bytes = await readFile(blob);
      if (bytes.length < 4096) continue;
      bytes[600] = 0x7f;
      await writeFile(blob, bytes);
    }
    await expect(images.ensure(built.reference)).rejects.toMatchObject({ code: "IMAGE_INVALID" });
    expect(await images.local(built.digest)).toBeUndefined();
  });

  it("a folder where folders are not allowed", async () => {
    const strict = await openImages({ allowLocalImages: false });
    await expect(strict.ensure((await layout()).reference)).rejects.toThrow(/--allow-local-images/);
  });
});

it("starts over after a crash in the middle, and after files were lost in a power cut", async () => {
  const built = await layout();
  const image = await images.ensure(built.reference);
  await mkdir(join(dir, "node/images/.tmp/left/rootfs"), { recursive: true });
  const record = join(image.rootfsDir, "../image.json");
  await writeFile(record, (await readFile(record, "utf8")).replace(/"bootId": ".*"/, '"bootId": "earlier"'));
  const whole = await openImages();
  expect(await readdir(join(dir, "node/images/.tmp"))).toEqual([]);
  expect(await whole.local(built.digest)).toEqual(image);

  await writeFile(record, (await readFile(record, "utf8")).replace(/"bootId": ".*"/, '"bootId": "earlier"'));
  await writeFile(join(image.rootfsDir, "bin/app"), "");
  const torn = await openImages();
  expect(await torn.local(built.digest)).toBeUndefined();
  expect(await torn.ensure(built.reference)).toEqual(image);
  expect(await readFile(join(image.rootfsDir, "bin/app"), "utf8")).toBe("#!/bin/true\n");

  await writeFile(record, "");
  const emptied = await openImages();
  expect(await emptied.ensure(built.reference)).toEqual(image);
});

it("may go when nobody has it and nobody has asked for it in so long, and is pulled again", async () => {
  const reference = await push(await layout(), "removable:1");
  const image = await images.ensure(reference);
  const removable = (inUse: boolean, minUnusedMs: number) =>
    images
      .removables(({ digest }) => digest !== image.digest || inUse, minUnusedMs)
      .map(({ name, remove }) => ({ name, remove }));
  expect(removable(false, 60_000)).toEqual([]);
  expect(removable(true, 0)).toEqual([]);
  const [only] = removable(false, 0);
  expect(await only?.remove()).toBe(true);
  expect(await images.local(image.digest)).toBeUndefined();
  expect(await images.ensure(reference)).toEqual(image);
  expect(await readFile(join(image.rootfsDir, "bin/app"), "utf8")).toBe("#!/bin/true\n");
});

it("says so when the image is larger than the disk", async () => {
  const mount = join(dir, "small");
  await mkdir(mount);
  await run("mount", ["-t", "tmpfs", "-o", "size=1m", "tmpfs", mount]);
  try {
    const small = await openImages({ dir: mount });
    const big = await layout({ files: [{ path: "/big", mode: 0o600, content: Buffer.alloc(2 << 20) }] });
    claimed.length = 0;
    await expect(small.ensure(big.reference)).rejects.toMatchObject({
      code: "IMAGE_UNAVAILABLE",
      message: expect.stringContaining("free space on the node's disk") as string,
    });
    expect(claimed).toEqual([expect.closeTo(2 << 20, -4)]);
    // Compressed, it only turns out while it is unpacked; nothing of it stays.
    const [path = ""] = big.reference.slice("oci:".length).split("@");
    const compressed = await push(await asDocker(path, big.digest), "compressed:1");
    await expect(small.ensure(compressed)).rejects.toMatchObject({
      code: "IMAGE_UNAVAILABLE",
      message: expect.stringMatching(/compressed:1.*free space on the node's disk/s) as string,
    });
    const left = await readdir(mount, { recursive: true, withFileTypes: true });
    expect(left.filter((entry) => entry.isFile()).map(({ name }) => name)).toEqual([]);
  } finally {
    await run("umount", [mount]);
  }
});

it("removes devices from what strangers built", async () => {
  const rootfs = join(dir, "with-device");
  await mkdir(rootfs);
  await run("mknod", [join(rootfs, "disk"), "b", "7", "0"]);
  await run("tar", ["-C", rootfs, "-cf", join(dir, "device.tar"), "."]);
  const built = await layout();
  const [path = ""] = built.reference.slice("oci:".length).split("@");
  const image = await withLayer(path, built.digest, await readFile(join(dir, "device.tar")));
  const { rootfsDir } = await images.ensure(image.reference);
  expect(await readdir(rootfsDir)).not.toContain("disk");
});

interface Descriptor {
  mediaType: string;
  digest: string;
  size: number;
}

interface Manifest {
  mediaType: string;
  config: Descriptor;
  layers: Descriptor[];
}

async function blob(path: string, mediaType: string, bytes: Buffer): Promise<Descriptor> {
  const hex = createHash("sha256").update(bytes).digest("hex");
  await writeFile(join(path, "blobs/sha256", hex), bytes);
  return { mediaType, digest: `sha256:${hex}`, size: bytes.length };
}

function read(path: string, digest: string): Promise<Buffer> {
  return readFile(join(path, "blobs/sha256", digest.slice("sha256:".length)));
}

async function rewrite(
  path: string,
  digest: string,
  change: (manifest: Manifest) => Promise<void>,
): Promise<OciLayout> {
  const manifest = JSON.parse((await read(path, digest)).toString()) as Manifest;
  await change(manifest);
  const changed = await blob(path, manifest.mediaType, Buffer.from(JSON.stringify(manifest)));
  await writeFile(join(path, "index.json"), JSON.stringify({ schemaVersion: 2, manifests: [changed] }));
  return { digest: changed.digest, reference: `oci:${path}@${changed.digest}` };
}

function asDocker(path: string, digest: string): Promise<OciLayout> {
  return rewrite(path, digest, async (manifest) => {
    manifest.mediaType = "application/vnd.docker.distribution.manifest.v2+json";
    manifest.config.mediaType = "application/vnd.docker.container.image.v1+json";
    const layers = manifest.layers.map(async (layer) => {
      const zipped = gzipSync(await read(path, layer.digest));
      return blob(path, "application/vnd.docker.image.rootfs.diff.tar.gzip", zipped);
    });
    manifest.layers = await Promise.all(layers);
  });
}

/** With one more layer, and its digest in the configuration. */
function withLayer(path: string, digest: string, tar: Buffer): Promise<OciLayout> {
  return rewrite(path, digest, async (manifest) => {
    const layer = await blob(path, "application/vnd.oci.image.layer.v1.tar", tar);
    const config = JSON.parse((await read(path, manifest.config.digest)).toString()) as {
      rootfs: { diff_ids: string[] };
    };
    config.rootfs.diff_ids.push(layer.digest);
    manifest.layers.push(layer);
    manifest.config = await blob(path, manifest.config.mediaType, Buffer.from(JSON.stringify(config)));
  });
}

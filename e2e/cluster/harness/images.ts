import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { command } from "@substrate/local/command.ts";
import { toolSettings } from "@substrate/local/config.ts";
import { buildOciLayout } from "@substrate/examples/oci.ts";

/** The first process of every pod. */
export const PAUSE_IMAGE = "substrate.local/pause:1";
/** What tests run in pods: `substrate-testpod serve`, see local/tools/testpod. */
export const TESTPOD_IMAGE = "substrate.local/testpod:1";

/** An archive for `ctr images import`. */
export interface ImageArchive {
  /** Seen by the nodes, too: not below /var/lib, /var/log or /run. */
  path: string;
  /** Name of the only image in an OCI archive; a docker archive names its images itself. */
  reference?: string;
}

/**
 * Both images, made once for each build of the program: from its file alone,
 * without a builder or a registry.
 */
export async function testpodArchives(testpod: string): Promise<ImageArchive[]> {
  const digest = createHash("sha256").update(readFileSync(testpod)).digest("hex").slice(0, 12);
  const folder = join(toolSettings().cacheDir, "../test-images", digest);
  if (!existsSync(folder)) {
    mkdirSync(dirname(folder), { recursive: true });
    const work = mkdtempSync(`${folder}.`);
    try {
      await archive(testpod, PAUSE_IMAGE, "pause", join(work, "pause.tar"));
      await archive(testpod, TESTPOD_IMAGE, "serve", join(work, "testpod.tar"));
      if (!existsSync(folder)) renameSync(work, folder);
    } finally {
      rmSync(work, { recursive: true, force: true });
    }
  }
  return [
    { path: join(folder, "pause.tar"), reference: PAUSE_IMAGE },
    { path: join(folder, "testpod.tar"), reference: TESTPOD_IMAGE },
  ];
}

async function archive(testpod: string, reference: string, argument: string, path: string): Promise<void> {
  const layout = layoutOf(path);
  await buildOciLayout({
    name: reference,
    files: [{ path: "/testpod", mode: 0o755, source: testpod }],
    config: { entrypoint: ["/testpod", argument], exposedPorts: ["8080/tcp"] },
    outDir: layout,
  });
  await command("tar", ["-C", layout, "-cf", path, "."]);
}

/** The folder beside an archive of `testpodArchives`: an OCI layout, which can be pushed to a registry. */
export function layoutOf(archivePath: string): string {
  return archivePath.replace(/\.tar$/, "");
}

import { realpath } from "node:fs/promises";
import { join } from "node:path";
import { buildOciLayout, type ImageFile, type OciLayout } from "@substrate/examples/oci.ts";
import { buildCounter } from "@substrate/examples/programs.ts";
import { sharedLibraries } from "@substrate/examples/shared-libraries.ts";

const programs = [
  "/bin/sh",
  "/bin/tar",
  "/bin/cat",
  "/bin/sleep",
  "/bin/stty",
  "/bin/ls",
  "/bin/mkdir",
  "/usr/bin/setsid",
];

/** A shell, tar and a few small programs of this machine, with their libraries. */
export async function shellFiles(): Promise<ImageFile[]> {
  const { files } = await sharedLibraries(programs);
  const own = programs.map(async (path): Promise<ImageFile> => ({ path, mode: 0o755, source: await realpath(path) }));
  return [...(await Promise.all(own)), ...files];
}

/** The counter with a shell beside it. @param outDir absolute */
export async function buildShellCounter(outDir: string): Promise<OciLayout> {
  await buildCounter(outDir);
  return buildOciLayout({
    name: "shell-counter",
    files: [{ path: "/bin/counter", mode: 0o755, source: join(outDir, "bin", "counter") }, ...(await shellFiles())],
    config: { entrypoint: ["/bin/counter"], exposedPorts: ["8080/tcp"] },
    outDir: join(outDir, "shell-image"),
  });
}

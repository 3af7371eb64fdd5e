import { runTool } from "./commands.ts";

/** 10 GiB at 10 MB/s. */
export const COPY_WITHIN_MS = 1_200_000;

/** All that a program can see of a file. What overlays keep in trusted.* is not among it. */
const attributes = [
  "--xattrs",
  "--xattrs-include=user.*",
  "--xattrs-include=security.capability",
  "--acls",
  "--sparse",
];

/** Writes the content of a folder into a new tar file. */
export async function packFolder(folder: string, file: string, signal: AbortSignal): Promise<void> {
  const how = ["--format=posix", ...attributes, "--numeric-owner", "--one-file-system"];
  await runTool("tar", ["--create", `--file=${file}`, `--directory=${folder}`, ...how, "."], {
    timeoutMs: COPY_WITHIN_MS,
    signal,
  });
}

/** Fills an empty folder from a file of `packFolder`. */
export async function unpackFolder(file: string, folder: string, signal: AbortSignal): Promise<void> {
  const how = [...attributes, "--numeric-owner", "--same-permissions", "--same-owner"];
  await runTool("tar", ["--extract", `--file=${file}`, `--directory=${folder}`, ...how], {
    timeoutMs: COPY_WITHIN_MS,
    signal,
  });
}

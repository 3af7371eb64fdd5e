import { lstat, readdir, readlink, stat } from "node:fs/promises";
import { basename, join, posix, resolve } from "node:path";
import { type ImageFile } from "./oci.ts";

const permissions = 0o7777;

async function below(folder: string, target: string): Promise<ImageFile[]> {
  const entries = await readdir(folder, { withFileTypes: true });
  const lists = await Promise.all(
    entries.map(async (entry): Promise<ImageFile[]> => {
      const source = join(folder, entry.name);
      const path = posix.join(target, entry.name);
      if (entry.isSymbolicLink()) return [{ path, linkTo: await readlink(source) }];
      const mode = (await lstat(source)).mode & permissions;
      if (entry.isFile()) return [{ path, mode, source }];
      if (entry.isDirectory()) return [{ path, mode, folder: true }, ...(await below(source, path))];
      throw new Error(`${source} is neither a file, a folder nor a link: leave it out of the image`);
    }),
  );
  return lists.flat();
}

export interface ImageSource {
  /** Absolute. */
  source: string;
  files: ImageFile[];
}

/**
 * The files that `SOURCE[:DEST]` puts into an image: a file at DEST (below it if it ends with a slash), or a folder's
 * contents below DEST; DEST is / if it is missing. Links and permissions stay as they are.
 *
 * @param cwd what a relative SOURCE starts from.
 * @throws if SOURCE does not exist or has something that an image cannot hold.
 */
export async function imageFiles(argument: string, cwd: string): Promise<ImageSource> {
  const [, from = argument, to = "/"] = /^(.*):(\/.*)$/.exec(argument) ?? [];
  const source = resolve(cwd, from);
  const found = await stat(source).catch((error: unknown) => {
    throw new Error(
      `${argument}: there is no ${source}; write SOURCE or SOURCE:DEST with an absolute DEST, as in ./hello:/bin/hello`,
      { cause: error },
    );
  });
  if (found.isDirectory()) return { source, files: await below(source, posix.resolve("/", to)) };
  if (!found.isFile()) throw new Error(`${source} is neither a file nor a folder`);
  const path = posix.resolve("/", to.endsWith("/") ? posix.join(to, basename(source)) : to);
  return { source, files: [{ path, mode: found.mode & permissions, source }] };
}

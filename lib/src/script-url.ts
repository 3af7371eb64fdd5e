/**
 * Where a script lies that this program starts as a worker or a process: as it stands in the sources, or, in an image,
 * where every script is a bundle of its own in one folder, beside the bundle that asks (images/src/table.ts).
 *
 * @param source of the sources, relative to the asking module: `new URL("./x-worker.ts", import.meta.url)`.
 * @param bundle file name in an image.
 */
export function scriptUrl(source: URL, bundle: string): URL {
  return import.meta.url.endsWith(".ts") ? source : new URL(bundle, import.meta.url);
}

import { readFile, realpath } from "node:fs/promises";
import { dirname, join } from "node:path";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { errnoOf, isAbsent } from "../folder.ts";

export interface Credentials {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
  /** When the SDK asks again. */
  expiration: Date;
}

/** How long what was read is used: many requests begin in one second. */
const keptMs = 1_000;

/**
 * Credentials in a folder's files, read again when a second has passed, so that new ones hold without a restart.
 * Throws STORE_UNAVAILABLE, naming the file.
 */
export function folderCredentials(store: string, folder: string): () => Promise<Credentials> {
  let kept: { until: number; credentials: Promise<Credentials> } | undefined;
  return () => {
    if (kept === undefined || performance.now() >= kept.until) {
      kept = { until: performance.now() + keptMs, credentials: read(store, folder) };
    }
    return kept.credentials;
  };
}

async function read(store: string, folder: string): Promise<Credentials> {
  // A mounted Secret is replaced by a change of one link: all files come from the folder that the first one is in now.
  const first = join(folder, "accessKeyId");
  const now = await realpath(first).then(dirname, (error: unknown) => {
    throw unreadable(store, first, error);
  });
  const [accessKeyId, secretAccessKey] = await Promise.all([
    readLine(store, join(now, "accessKeyId")),
    readLine(store, join(now, "secretAccessKey")),
  ]);
  const sessionToken = await readLine(store, join(now, "sessionToken"), { optional: true });
  // The SDK keeps credentials until they expire, and for ever those that don't say when.
  const credentials = { accessKeyId, secretAccessKey, expiration: new Date() };
  return sessionToken === "" ? credentials : { ...credentials, sessionToken };
}

async function readLine(store: string, path: string, options: { optional?: boolean } = {}): Promise<string> {
  let content: string;
  try {
    content = (await readFile(path, "utf8")).trim();
  } catch (error) {
    if (options.optional === true && isAbsent(error)) return "";
    throw unreadable(store, path, error);
  }
  if (content !== "" || options.optional === true) return content;
  const message = `the credentials of the store ${store}: ${path} is empty: put the key into the Secret or file`;
  throw new SubstrateError("STORE_UNAVAILABLE", message);
}

function unreadable(store: string, path: string, error: unknown): SubstrateError {
  const what = isAbsent(error) ? `there is no ${path}` : `${path} cannot be read (${errnoOf(error)})`;
  const fix = "the folder of --store-credentials needs files accessKeyId and secretAccessKey";
  return new SubstrateError("STORE_UNAVAILABLE", `the credentials of the store ${store}: ${what}: ${fix}`, {
    cause: error,
  });
}

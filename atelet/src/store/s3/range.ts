import { GetObjectCommand, type GetObjectCommandOutput } from "@aws-sdk/client-s3";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type S3Connection } from "./connection.ts";
import { isMissing, nameOf } from "./failure.ts";

/**
 * Fills a place with the bytes of an object from there on. Throws SNAPSHOT_DAMAGED if it does not have them.
 *
 * @param options.sizeBytes of the whole object, if it is known.
 */
export async function fetchInto(
  connection: S3Connection,
  key: string,
  offset: number,
  into: Uint8Array,
  options: { sizeBytes?: number; signal?: AbortSignal } = {},
): Promise<void> {
  const { client, settings } = connection;
  const end = offset + into.length;
  const { sizeBytes = end } = options;
  const Range = into.length === 0 ? {} : { Range: `bytes=${offset}-${end - 1}` };
  const bound = { ...connection.large(options.signal), into };
  const answer = await client
    .send(new GetObjectCommand({ Bucket: settings.bucket, Key: connection.key(key), ...Range }), bound)
    .catch((error: unknown) => {
      if (isMissing(error)) throw damaged(connection, key, "it is missing");
      if (nameOf(error) === "InvalidRange") {
        throw damaged(connection, key, `it is shorter than the ${sizeBytes} bytes that were written`);
      }
      throw error;
    });
  const { first, lengthBytes, total } = rangeOf(answer);
  if (options.sizeBytes !== undefined && total !== sizeBytes) {
    throw damaged(connection, key, `it has ${total} bytes, written were ${sizeBytes}`);
  }
  if (total < end) throw damaged(connection, key, `it has ${total} bytes, ${end} are needed`);
  if (first !== offset || lengthBytes !== into.length) {
    const message = `${lengthBytes} bytes at ${first} came, asked were ${into.length} at ${offset}`;
    // nothing is known of the object by that
    throw Object.assign(new Error(message), { code: "MalformedAnswer" });
  }
}

function rangeOf({ ContentRange, ContentLength }: GetObjectCommandOutput) {
  const [, first, total] = /^bytes (\d+)-\d+\/(\d+)$/.exec(ContentRange ?? "") ?? [];
  const lengthBytes = ContentLength ?? 0;
  return { first: Number(first ?? 0), lengthBytes, total: Number(total ?? lengthBytes) };
}

export function damaged({ settings }: S3Connection, key: string, what: string): SubstrateError {
  const message = `${key} in the store ${settings.name} (${settings.url}) is damaged: ${what}`;
  return new SubstrateError("SNAPSHOT_DAMAGED", message);
}

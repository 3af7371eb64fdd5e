import { randomUUID } from "node:crypto";
import {
  AbortMultipartUploadCommand,
  DeleteObjectCommand,
  ListObjectsV2Command,
  ListMultipartUploadsCommand,
  type ListMultipartUploadsCommandOutput,
  PutObjectCommand,
} from "@aws-sdk/client-s3";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type S3Connection } from "./connection.ts";
import { isConditionFailed, isMissing } from "./failure.ts";

const probeFolder = "substrate-probe/";
/** Objects of a probe that was killed are this old. */
const abandonedMs = 3_600_000;
/** No upload takes so long: its writer is gone. */
const strandedMs = 24 * 3_600_000;

/** Throws STORE_UNAVAILABLE for a store whose conditions do not hold, what the SDK throws for one that can't be used. */
export async function probe(connection: S3Connection): Promise<void> {
  await removeOldProbes(connection);
  const key = connection.key(`${probeFolder}${randomUUID()}`);
  const remove = new DeleteObjectCommand({ Bucket: connection.settings.bucket, Key: key });
  try {
    const etag = await put(connection, key, { IfNoneMatch: "*" });
    const again = await put(connection, key, { IfNoneMatch: "*" });
    const foreign = await put(connection, key, { IfMatch: '"00000000000000000000000000000000"' });
    if (etag === undefined || again !== undefined || foreign !== undefined) throw unconditional(connection);
    if ((await put(connection, key, { IfMatch: etag })) === undefined) throw unconditional(connection);
  } catch (error) {
    // what failed first is what is told
    await connection.client.send(remove, connection.small()).catch(() => undefined);
    throw error;
  }
  await connection.client.send(remove, connection.small());
  await removeStranded(connection);
}

async function put(
  connection: S3Connection,
  key: string,
  condition: { IfNoneMatch: string } | { IfMatch: string },
): Promise<string | undefined> {
  const command = new PutObjectCommand({ Bucket: connection.settings.bucket, Key: key, Body: "probe", ...condition });
  try {
    return (await connection.client.send(command, connection.small())).ETag;
  } catch (error) {
    if (isConditionFailed(error) || isMissing(error)) return undefined;
    throw error;
  }
}

function unconditional({ settings }: S3Connection): SubstrateError {
  return new SubstrateError(
    "STORE_UNAVAILABLE",
    `the store ${settings.name} (${settings.url}) ignores the conditions of writes (If-None-Match, If-Match), ` +
      "without which two nodes could overwrite each other's snapshots: use a server, or a version of it, that has them",
  );
}

async function removeOldProbes(connection: S3Connection): Promise<void> {
  const { bucket } = connection.settings;
  const command = new ListObjectsV2Command({ Bucket: bucket, Prefix: connection.key(probeFolder) });
  const { Contents } = await connection.client.send(command, connection.small());
  for (const { Key, LastModified } of Contents ?? []) {
    if (LastModified === undefined || Date.now() - LastModified.getTime() < abandonedMs) continue;
    await connection.client.send(new DeleteObjectCommand({ Bucket: bucket, Key }), connection.small());
  }
}

async function removeStranded(connection: S3Connection): Promise<void> {
  const { client, settings } = connection;
  let after: { KeyMarker?: string | undefined; UploadIdMarker?: string | undefined } | undefined = {};
  while (after !== undefined) {
    const command: ListMultipartUploadsCommand = new ListMultipartUploadsCommand({
      Bucket: settings.bucket,
      Prefix: settings.prefix,
      ...after,
    });
    const page: ListMultipartUploadsCommandOutput = await client.send(command, connection.small());
    for (const { Key, UploadId, Initiated } of page.Uploads ?? []) {
      if (Initiated === undefined || Date.now() - Initiated.getTime() < strandedMs) continue;
      const upload = { Bucket: settings.bucket, Key, UploadId };
      await client.send(new AbortMultipartUploadCommand(upload), connection.small());
    }
    const { IsTruncated, NextKeyMarker, NextUploadIdMarker } = page;
    after = IsTruncated === true ? { KeyMarker: NextKeyMarker, UploadIdMarker: NextUploadIdMarker } : undefined;
  }
}

import { type Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { GetObjectCommand } from "@aws-sdk/client-s3";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { type Bound, type S3Connection } from "./connection.ts";
import { brokenStream } from "./download.ts";
import { isMissing, nameOf } from "./failure.ts";

/** Pauses before a range whose stream broke is fetched again; before its first byte the SDK tries again by itself. */
const pausesMs = [100, 1_000];

/** Exactly these bytes of an object. Throws SNAPSHOT_DAMAGED if it does not have them. */
export async function getRange(
  connection: S3Connection,
  key: string,
  offset: number,
  lengthBytes: number,
): Promise<ArrayBuffer> {
  const bound = connection.large();
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await fetchOnce(connection, key, offset, lengthBytes, bound);
    } catch (error) {
      const pauseMs = pausesMs[attempt];
      if (pauseMs === undefined || error instanceof SubstrateError || bound.abortSignal.aborted) throw error;
      if (!brokenStream.includes(nameOf(error))) throw error;
      await delay(pauseMs, undefined, { signal: bound.abortSignal });
    }
  }
}

async function fetchOnce(
  connection: S3Connection,
  key: string,
  offset: number,
  lengthBytes: number,
  bound: Bound,
): Promise<ArrayBuffer> {
  const { client, settings } = connection;
  const damaged = (what: string): SubstrateError =>
    new SubstrateError(
      "SNAPSHOT_DAMAGED",
      `${key} in the store ${settings.name} (${settings.url}) is damaged: ${what}`,
    );
  const Range = `bytes=${offset}-${offset + lengthBytes - 1}`;
  const answer = await client
    .send(new GetObjectCommand({ Bucket: settings.bucket, Key: connection.key(key), Range }), bound)
    .catch((error: unknown) => {
      if (isMissing(error)) throw damaged("it is missing");
      if (nameOf(error) === "InvalidRange") throw damaged(`it has no bytes at ${offset}`);
      throw error;
    });
  const body = answer.Body as Readable | undefined;
  if (body === undefined || answer.ContentLength !== lengthBytes) {
    body?.destroy();
    throw damaged(`it has ${answer.ContentLength ?? 0} bytes at ${offset}, ${lengthBytes} are needed`);
  }
  const stop = (): void => {
    body.destroy(Object.assign(new Error("not done in time"), { code: "TimeoutError" }));
  };
  bound.abortSignal.addEventListener("abort", stop, { once: true });
  try {
    const into = Buffer.from(new ArrayBuffer(lengthBytes));
    let done = 0;
    for await (const chunk of body as AsyncIterable<Buffer>) {
      if (done + chunk.length > lengthBytes) throw damaged("a range of it came longer than asked");
      done += chunk.copy(into, done);
    }
    if (done === lengthBytes) return into.buffer;
    throw Object.assign(new Error(`${done} of ${lengthBytes} bytes came`), { code: "ShortBody" });
  } finally {
    bound.abortSignal.removeEventListener("abort", stop);
  }
}

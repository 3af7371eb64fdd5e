import { parentPort, workerData } from "node:worker_threads";
import { asSubstrateError } from "@substrate/lib/errors.ts";
import { type PutCondition } from "../store.ts";
import { S3Store } from "./bucket.ts";
import { type S3Answer, type S3Request, type S3ThreadData } from "./protocol.ts";

// The thread has its own copy of the environment. What a profile file of the machine says is nobody's intention here.
// eslint-disable-next-line no-restricted-properties -- nothing is read: the SDK takes this setting from nowhere else
Object.assign(process.env, { AWS_CONFIG_FILE: "/dev/null", AWS_SHARED_CREDENTIALS_FILE: "/dev/null" });

const { settings, limits } = workerData as S3ThreadData;
const port = parentPort;
if (!port) throw new Error("s3-worker.ts runs as a worker thread only");

let opened: Promise<S3Store> | undefined;

function store(): Promise<S3Store> {
  opened ??= S3Store.open(settings, limits).catch((error: unknown) => {
    opened = undefined;
    throw error;
  });
  return opened;
}

async function answer({ id, method, args }: S3Request): Promise<S3Answer> {
  try {
    const bucket = await store();
    return { id, result: method === "open" ? undefined : await call(bucket, method, args) };
  } catch (error) {
    const { code, message, stack } = asSubstrateError(error);
    return { id, failed: { code, message, stack } };
  }
}

function call(bucket: S3Store, method: Exclude<S3Request["method"], "open">, args: unknown[]): Promise<unknown> {
  if (method === "put") {
    // a Buffer comes through a port as a plain Uint8Array
    const [key, body, condition] = args as [string, Uint8Array, PutCondition | undefined];
    return bucket.put(key, Buffer.from(body.buffer, body.byteOffset, body.byteLength), condition);
  }
  return (bucket[method] as (...all: unknown[]) => Promise<unknown>).apply(bucket, args);
}

port.on("message", (request: S3Request) => {
  void answer(request).then((done) => {
    port.postMessage(done, "result" in done && done.result instanceof ArrayBuffer ? [done.result] : []);
  });
});

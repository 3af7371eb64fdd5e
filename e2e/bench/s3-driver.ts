import { randomFillSync } from "node:crypto";
import { type BucketSettings } from "@substrate/atelet/store/settings.ts";
import { S3Thread } from "@substrate/atelet/store/s3/thread.ts";
import { type DriverAnswer, type DriverOrder } from "./s3-order.ts";

const MIB = 2 ** 20;
const OBJECTS = 8;

let open: { port: string; store: S3Thread } | undefined;

async function storeOf(settings: BucketSettings): Promise<S3Thread> {
  if (open?.port === settings.url) return open.store;
  await open?.store.close();
  open = { port: settings.url, store: await S3Thread.open(settings) };
  return open.store;
}

async function run({ settings, operation, mib, parallel }: DriverOrder): Promise<DriverAnswer> {
  const store = await storeOf(settings);
  const count = mib / (operation === "put16" ? 16 : 8);
  // as the engine does: a buffer comes back, and is used again
  const sizeBytes = (operation === "put16" ? 16 : 8) * MIB;
  const buffers = Array.from({ length: parallel }, () => randomFillSync(new Uint8Array(sizeBytes)).buffer);
  const cpu = process.cpuUsage();
  const startMs = performance.now();
  let next = 0;
  const carry = async (given: ArrayBuffer): Promise<void> => {
    for (let buffer = given; next < count;) {
      const i = next++;
      const key = `object-${i % OBJECTS}`;
      const offset = (Math.floor(i / OBJECTS) % 2) * 8 * MIB;
      buffer = await (operation === "put16"
        ? store.putBytes(key, buffer)
        : store.getRange(key, offset, 8 * MIB, buffer));
    }
  };
  await Promise.all(buffers.map(carry));
  const { user, system } = process.cpuUsage(cpu);
  return { ms: performance.now() - startMs, cpuMs: (user + system) / 1000 };
}

process.on("message", (order: DriverOrder) => {
  run(order).then(
    (answer) => process.send?.(answer),
    (error: unknown) => {
      console.error(error);
      process.exit(1);
    },
  );
});
process.once("disconnect", () => process.exit(0));

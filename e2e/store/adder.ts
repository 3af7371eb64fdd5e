import { FileStore } from "@substrate/atelet/store/file.ts";

// Adds one to an object again and again, each time on the condition that nobody came between, and prints what it wrote.
const [root, key, times] = process.argv.slice(2);
if (root === undefined || key === undefined) throw new Error("usage: adder.ts ROOT KEY TIMES");
const store = await FileStore.open(root);
for (let done = 0; done < Number(times);) {
  const present = await store.get(key);
  const next = Number(present?.body.toString() ?? 0) + 1;
  const condition = present ? { ifMatch: present.etag } : ({ ifNoneMatch: "*" } as const);
  if ((await store.put(key, Buffer.from(String(next)), condition)) === undefined) continue;
  process.stdout.write(`${next}\n`);
  done += 1;
}
await store.close();

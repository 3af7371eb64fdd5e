import { randomBytes } from "node:crypto";
import { openStore } from "@substrate/atelet/store/open.ts";
import { storeSettings } from "@substrate/atelet/store/settings.ts";

// Uses a bucket in every way of the atelet, by what the environment says of credentials and names of hosts.
const [url, credentialsDir] = process.argv.slice(2);
if (url === undefined) throw new Error("usage: use-bucket.ts URL [CREDENTIALS_FOLDER]");
const store = await openStore(storeSettings("default", url, { credentialsDir }));
try {
  const bytes = randomBytes(1 << 20);
  await store.putBytes("pack", new Uint8Array(bytes).buffer);
  const range = Buffer.from(await store.getRange("pack", 1000, 500_000));
  const etag = await store.put("document", Buffer.from("1"), { ifNoneMatch: "*" });
  const document = (await store.get("document"))?.body.toString();
  await store.copy("pack", "copied/pack");
  const keys = await store.list("");
  await store.deleteAll(keys);
  const same = range.equals(bytes.subarray(1000, 501_000));
  console.log(JSON.stringify({ same, written: etag !== undefined, document, keys }));
} finally {
  await store.close();
}

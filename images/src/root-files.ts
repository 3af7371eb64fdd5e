import { chmod, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { NONROOT } from "./table.ts";

/** Empty folders: what a runtime mounts on, as the root file system is read-only, and what the parts write to. */
const folders = ["dev", "proc", "sys", "run", "root", "etc/substrate", "var/lib/substrate"];

/** What no package brings because its scripts make it, or the system's administrator. */
export async function writeRootFiles(root: string): Promise<void> {
  for (const folder of folders) await mkdir(join(root, folder), { recursive: true });
  await mkdir(join(root, "tmp"));
  await chmod(join(root, "tmp"), 0o1777);
  const etc = (name: string, text: string): Promise<void> => writeFile(join(root, "etc", name), text);
  await etc(
    "passwd",
    "root:x:0:0:root:/root:/usr/sbin/nologin\n" +
      `nonroot:x:${NONROOT}:${NONROOT}:nonroot:/tmp:/usr/sbin/nologin\n` +
      "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
  );
  await etc("group", `root:x:0:\nnonroot:x:${NONROOT}:\nnogroup:x:65534:\n`);
  // without it glibc asks DNS before /etc/hosts
  await etc("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n");
  await writeAuthorities(root);
}

/** All authorities of ca-certificates in the one file that OpenSSL and Go read. */
async function writeAuthorities(root: string): Promise<void> {
  const source = join(root, "usr/share/ca-certificates/mozilla");
  const names = (await readdir(source)).filter((name) => name.endsWith(".crt")).sort();
  const texts = await Promise.all(names.map((name) => readFile(join(source, name), "utf8")));
  const folder = join(root, "etc/ssl/certs");
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "ca-certificates.crt"), texts.map((text) => `${text.trimEnd()}\n`).join(""));
}

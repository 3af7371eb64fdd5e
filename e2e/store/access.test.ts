import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer as createHttpServer, type Server } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openStore } from "@substrate/atelet/store/open.ts";
import { storeSettings } from "@substrate/atelet/store/settings.ts";
import { CertificateAuthority } from "@substrate/lib/certificates.ts";
import { S3Server } from "./s3-server.ts";

const run = promisify(execFile);
const lifetimeMs = 3_600_000;
const domain = "store.test";
const user = join(import.meta.dirname, "use-bucket.ts");
const used = { same: true, written: true, document: "1", keys: ["document", "pack", "copied/pack"].sort() };

let dir: string;
let server: S3Server;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "access-"));
  server = await S3Server.start(dir, { virtualDomain: domain });
});

afterAll(async () => {
  await server.kill();
  await rm(dir, { recursive: true });
});

/** A store's reply to what use-bucket.ts does with it. */
async function use(args: string[], env: NodeJS.ProcessEnv = {}, command = ["node"]): Promise<unknown> {
  const [program = "node", ...before] = command;
  const options = { env: { PATH: pathOf(), ...env }, timeout: 30_000 };
  const { stdout } = await run(program, [...before, user, ...args], options);
  return JSON.parse(stdout);
}

/** The node of this process comes first. */
function pathOf(): string {
  return [join(process.execPath, ".."), "/usr/sbin", "/usr/bin", "/sbin", "/bin"].join(":");
}

it("uses a bucket by TLS with the authority of --store-ca, and sends no digests of bodies through it", async () => {
  const authority = await CertificateAuthority.create("of the store", lifetimeMs);
  const { cert, key } = await authority.issue({ subject: "CN=store", ipAddresses: ["127.0.0.1"] }, lifetimeMs);
  let sent = "";
  const resumed: boolean[] = [];
  const proxy = createTlsServer({ cert, key }, (client: TLSSocket) => {
    resumed.push(client.isSessionReused());
    const far = connect(server.port, "127.0.0.1");
    client.on("data", (chunk: Buffer) => {
      if (chunk.includes("HTTP/1.1\r\n")) sent += chunk.toString("latin1");
    });
    client.pipe(far).pipe(client);
    for (const [one, other] of [
      [client, far],
      [far, client],
    ] as const) {
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
    }
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const { port } = proxy.address() as AddressInfo;
  const caPath = join(dir, "ca.crt");
  const url = `s3://${server.bucket}/tls?endpoint=https://127.0.0.1:${port}`;
  const files = { credentialsDir: server.credentialsDir, caPath };
  try {
    await writeFile(caPath, (await CertificateAuthority.create("of others", lifetimeMs)).pair.cert);
    await expect(openStore(storeSettings("default", url, files))).rejects.toThrow(
      /is not trusted .*name it in .*ca\.crt/,
    );
    await expect(openStore(storeSettings("default", url, { ...files, caPath: undefined }))).rejects.toThrow(
      /is not trusted .*in --store-ca/,
    );
    await writeFile(caPath, authority.pair.cert);
    const store = await openStore(storeSettings("default", url, files));
    try {
      const bytes = Buffer.alloc(20 << 20, "0123456789");
      await Promise.all(["a", "b"].map((name) => store.putBytes(name, new Uint8Array(bytes).buffer)));
      const ranges = Array.from({ length: 8 }, (_, i) => store.getRange("a", i << 20, 8 << 20));
      for (const [i, range] of (await Promise.all(ranges)).entries()) {
        expect(Buffer.from(range).equals(bytes.subarray(i << 20, (i + 8) << 20))).toBe(true);
      }
      await store.put("c", Buffer.from("1"));
      await store.deleteAll(["a", "b", "c"]);
    } finally {
      await store.close();
    }
  } finally {
    proxy.close();
  }
  expect(sent).toMatch(/PUT \/snapshots\/tls\/a.*x-amz-content-sha256: UNSIGNED-PAYLOAD/is);
  expect(sent).toMatch(/PUT \/snapshots\/tls\/a.*x-amz-checksum-crc32: /is);
  expect(resumed).toContain(true);
});

it("uses a bucket whose name stands in the path, or in the host's name", async () => {
  const port = String(server.port);
  const path = `s3://${server.bucket}/path?endpoint=http://127.0.0.1:${port}&pathStyle=true`;
  expect(await use([path, server.credentialsDir])).toEqual(used);
  // no bucket of this name in the path: the host's name is what counts
  const hosts = join(dir, "hosts");
  await writeFile(hosts, `127.0.0.1 localhost ${domain} ${server.bucket}.${domain}\n`);
  const inHost = `s3://${server.bucket}/host?endpoint=http://${domain}:${port}&pathStyle=false`;
  const shell = 'mount --bind "$HOSTS" /etc/hosts && exec node "$@"';
  const command = ["unshare", "--mount", "sh", "-c", shell, "sh"];
  expect(await use([inHost, server.credentialsDir], { HOSTS: hosts }, command)).toEqual(used);
});

it("takes the keys that a token of the workload is exchanged for, and says when there are none", async () => {
  const asked: URLSearchParams[] = [];
  const sts: Server = createHttpServer((request, answer) => {
    void text(request).then((body) => {
      const query = new URLSearchParams(body);
      asked.push(query);
      answer.writeHead(200, { "content-type": "text/xml" });
      // without a session's token: the test's S3 server knows none
      answer.end(
        `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
          <AssumeRoleWithWebIdentityResult><Credentials>
            <AccessKeyId>key</AccessKeyId><SecretAccessKey>hush</SecretAccessKey>
            <Expiration>${new Date(Date.now() + lifetimeMs).toISOString()}</Expiration>
          </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
      );
    });
  }).listen(0, "127.0.0.1");
  await once(sts, "listening");
  try {
    const token = join(dir, "token");
    await writeFile(token, "of-the-workload");
    const url = `s3://${server.bucket}/identity?endpoint=http://127.0.0.1:${server.port}`;
    const env = {
      AWS_WEB_IDENTITY_TOKEN_FILE: token,
      AWS_ROLE_ARN: "arn:aws:iam::000000000000:role/substrate",
      AWS_ENDPOINT_URL_STS: `http://127.0.0.1:${(sts.address() as AddressInfo).port}`,
      AWS_REGION: "us-east-1",
    };
    expect(await use([url], env)).toEqual(used);
    expect(asked).toHaveLength(1);
    expect(asked[0]?.get("Action")).toBe("AssumeRoleWithWebIdentity");
    expect(asked[0]?.get("RoleArn")).toBe(env.AWS_ROLE_ARN);
    expect(asked[0]?.get("WebIdentityToken")).toBe("of-the-workload");
    await expect(use([url], { AWS_EC2_METADATA_DISABLED: "true" })).rejects.toThrow(
      /there are no credentials: name a folder .*--store-credentials, or give the pod an identity/,
    );
  } finally {
    sts.close();
    sts.closeAllConnections();
  }
});

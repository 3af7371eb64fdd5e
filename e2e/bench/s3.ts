import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { type BucketSettings } from "@substrate/atelet/store/settings.ts";
import { S3Server } from "../store/s3-server.ts";
import { type DriverAnswer, type DriverOrder } from "./s3-order.ts";
import { Link } from "./snapshots/link.ts";
import { curl, type CurlTransfer } from "./s3-curl.ts";
import { median } from "./statistics.ts";

export interface S3Options {
  rounds: number;
  quick: boolean;
  say: (line: string) => void;
  signal: AbortSignal;
}

/** One client, one kind of transfer, one length of the way. */
interface Row {
  client: "driver" | "curl";
  operation: "put16" | "get8";
  roundTripMs: number;
  mibPerSecond: number[];
  cpuSecondsPerGib: number[];
  load: number[];
}

export interface S3Result {
  rounds: number;
  rows: Row[];
  /** Speed of the driver ÷ that of curl. */
  putOverCurl: number;
  getOverCurl: number;
  putFarOverCurl: number;
  getFarOverCurl: number;
  putCpuSecondsPerGib: number;
  getCpuSecondsPerGib: number;
}

const FAR_MS = 20;
const PARALLEL = 8;
const MIB = 2 ** 20;
const OBJECTS = 8;

/**
 * The driver of buckets on its thread, in a process of its own, beside one curl with as many connections and no digests
 * of what it sends; in turn, against versitygw on loopback, straight and through a link of a longer round trip.
 */
export async function s3({ rounds, quick, say, signal }: S3Options): Promise<S3Result> {
  await using undo = new AsyncDisposableStack();
  const dir = await mkdtemp(join(tmpdir(), "bench-s3-"));
  undo.defer(() => rm(dir, { recursive: true }));
  const server = await S3Server.start(dir);
  undo.defer(() => server.kill());
  const link = await Link.start(server.port);
  undo.defer(() => link.stop());
  const driver = new Driver(signal);
  undo.defer(() => driver.stop());
  const mib = quick ? 256 : 1024;
  const rows: Row[] = [];
  for (const roundTripMs of [0, FAR_MS]) {
    await link.shape({ mibPerSecond: 0, delayMs: roundTripMs });
    const port = roundTripMs === 0 ? server.port : link.port;
    const settings = server.settings({ port });
    await driver.run({ settings, operation: "put16", mib: OBJECTS * 16, parallel: PARALLEL });
    for (let round = 0; round < rounds; round += 1) {
      for (const operation of ["put16", "get8"] as const) {
        for (const client of ["driver", "curl"] as const) {
          const measured =
            client === "driver"
              ? await driver.run({ settings, operation, mib, parallel: PARALLEL })
              : await curl(dir, server, port, { transfers: transfers(operation, mib), parallel: PARALLEL, signal });
          add(rows, { client, operation, roundTripMs }, measured, mib);
        }
      }
    }
  }
  for (const row of rows) {
    say(
      `${row.operation} ${row.client.padEnd(7)} +${row.roundTripMs} ms: ${median(row.mibPerSecond).toFixed(0)} MiB/s, ` +
        `${median(row.cpuSecondsPerGib).toFixed(2)} CPU s/GiB, load ${median(row.load).toFixed(1)}`,
    );
  }
  const of = (client: Row["client"], operation: Row["operation"], roundTripMs: number): Row => {
    const found = rows.find(
      (row) => row.client === client && row.operation === operation && row.roundTripMs === roundTripMs,
    );
    if (found === undefined) throw new Error(`nothing was measured of ${client}, ${operation}`);
    return found;
  };
  const overCurl = (operation: Row["operation"], ms: number): number =>
    median(of("driver", operation, ms).mibPerSecond) / median(of("curl", operation, ms).mibPerSecond);
  return {
    rounds,
    rows,
    putOverCurl: overCurl("put16", 0),
    getOverCurl: overCurl("get8", 0),
    putFarOverCurl: overCurl("put16", FAR_MS),
    getFarOverCurl: overCurl("get8", FAR_MS),
    putCpuSecondsPerGib: median(of("driver", "put16", 0).cpuSecondsPerGib),
    getCpuSecondsPerGib: median(of("driver", "get8", 0).cpuSecondsPerGib),
  };
}

/** The objects' names are those of the driver. */
function transfers(operation: Row["operation"], mib: number): CurlTransfer[] {
  const size = operation === "put16" ? 16 : 8;
  return Array.from({ length: mib / size }, (_, i) => {
    const key = `object-${i % OBJECTS}`;
    if (operation === "put16") return { key, upload: true };
    const start = Math.floor(i / OBJECTS) % 2 === 0 ? 0 : 8 * MIB;
    return { key, upload: false, range: `${start}-${start + 8 * MIB - 1}` };
  });
}

function add(
  rows: Row[],
  what: Pick<Row, "client" | "operation" | "roundTripMs">,
  measured: { ms: number; cpuMs: number },
  mib: number,
): void {
  const same = (row: Row): boolean =>
    row.client === what.client && row.operation === what.operation && row.roundTripMs === what.roundTripMs;
  let row = rows.find(same);
  if (row === undefined) {
    row = { ...what, mibPerSecond: [], cpuSecondsPerGib: [], load: [] };
    rows.push(row);
  }
  row.mibPerSecond.push((mib / measured.ms) * 1000);
  row.cpuSecondsPerGib.push(measured.cpuMs / 1000 / (mib / 1024));
  row.load.push(loadavg()[0] ?? NaN);
}

/** The driver in a process that does nothing else: its CPU is that of the driver and of both its threads. */
class Driver {
  readonly #process: ChildProcess = fork(join(import.meta.dirname, "s3-driver.ts"), { stdio: "inherit" });

  readonly #signal: AbortSignal;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  async run(order: Omit<DriverOrder, "settings"> & { settings: BucketSettings }): Promise<DriverAnswer> {
    const signal = AbortSignal.any([this.#signal, AbortSignal.timeout(180_000)]);
    const answered = once(this.#process, "message", { signal });
    this.#process.send(order);
    const [answer] = (await answered) as [DriverAnswer];
    return answer;
  }

  /** It ends when nobody talks to it any more, whatever it does. */
  async stop(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = once(this.#process, "exit");
    this.#process.disconnect();
    await ended;
  }
}

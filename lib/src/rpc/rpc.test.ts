import { credentials, ServerCredentials } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type ReadLogRequest, type ReadLogResponse } from "../gen/substrate/atelet/v1/atelet.ts";
import { AteletServiceClient, AteletServiceService } from "../gen/substrate/atelet/v1/atelet.ts";
import {
  WakeServiceClient,
  WakeServiceService,
  type WakeRequest,
  type WakeResponse,
} from "../gen/substrate/operator/v1/wake.ts";
import { errorCatalogue, type ErrorCode, SubstrateError } from "../errors.ts";
import { createLogger } from "../log.ts";
import { unary } from "./client.ts";
import { fromServiceError, isCancelled, toStatus } from "./errors.ts";
import { type RpcServer, send, startRpcServer, streamHandler, unaryHandler } from "./server.ts";

const log = createLogger("test");
log.silent = true;

/** What the server does with the next call; the request's name tells which. */
const behaviour: Record<string, (signal: AbortSignal) => Promise<WakeResponse>> = {
  answer: () => Promise.resolve({ nodeName: "n1" }),
  refuse: () => Promise.reject(new SubstrateError("NO_ROOM", "node n1 has no room for ö", { retryAfterMs: 1_500 })),
  break: () => Promise.reject(new TypeError("x is not a function")),
  hang: (signal) =>
    new Promise((_, reject) => {
      hanging.resolve(undefined);
      signal.addEventListener("abort", () => {
        cancelled.resolve(undefined);
        reject(new Error("gone"));
      });
    }),
};
let hanging = Promise.withResolvers<undefined>();
let cancelled = Promise.withResolvers<undefined>();

describe("a gRPC server and its client", () => {
  let server: RpcServer;
  let wake: WakeServiceClient;
  let atelet: AteletServiceClient;
  const call = (name: string, deadlineMs = 5_000, signal?: AbortSignal) =>
    unary(
      wake.wake.bind(wake),
      { actorUid: "", namespace: "", name },
      { deadlineMs, ...(signal === undefined ? {} : { signal }) },
    );

  beforeAll(async () => {
    const unused = unaryHandler({ log }, () => Promise.reject(new Error("not part of this test")));
    server = await startRpcServer({
      address: "127.0.0.1:0",
      credentials: ServerCredentials.createInsecure(),
      services: [
        {
          definition: WakeServiceService,
          implementation: {
            wake: unaryHandler<WakeRequest, WakeResponse>({ log }, ({ name }, { signal }) => {
              const act = behaviour[name];
              if (act === undefined) throw new SubstrateError("UNKNOWN_ACTOR", `no actor ${name}`);
              return act(signal);
            }),
          },
        },
        {
          definition: AteletServiceService,
          implementation: {
            ...Object.fromEntries(Object.keys(AteletServiceService).map((method) => [method, unused])),
            readLog: streamHandler<ReadLogRequest, ReadLogResponse>({ log }, async (stream, { signal }) => {
              for (let i = 0; i < stream.request.tailLines; i++)
                await send(stream, { data: Buffer.alloc(64 * 1_024, i) }, signal);
              if (stream.request.actorUid === "lost") throw new SubstrateError("UNKNOWN_ACTOR", "no such actor");
            }),
          },
        },
      ],
    });
    const address = `127.0.0.1:${String(server.port)}`;
    wake = new WakeServiceClient(address, credentials.createInsecure());
    atelet = new AteletServiceClient(address, credentials.createInsecure());
  });

  afterAll(async () => {
    wake.close();
    atelet.close();
    await server.stop(1_000);
  });

  it("carries a request and its answer", async () => {
    await expect(call("answer")).resolves.toEqual({ nodeName: "n1" });
  });

  it("carries an error with its code, message and patience", async () => {
    await expect(call("refuse")).rejects.toMatchObject({
      code: "NO_ROOM",
      message: "node n1 has no room for ö",
      retryAfterMs: 1_500,
    });
  });

  it("makes a defect INTERNAL", async () => {
    await expect(call("break")).rejects.toMatchObject({ code: "INTERNAL", message: "x is not a function" });
  });

  it("makes a handler that throws at once an error, too", async () => {
    await expect(call("nobody")).rejects.toMatchObject({ code: "UNKNOWN_ACTOR", message: "no actor nobody" });
  });

  it("ends at its deadline, and tells the server", async () => {
    cancelled = Promise.withResolvers<undefined>();
    await expect(call("hang", 50)).rejects.toMatchObject({ code: "TIMEOUT" });
    await cancelled.promise;
  });

  it("ends when the caller gives up, and tells the server", async () => {
    cancelled = Promise.withResolvers<undefined>();
    hanging = Promise.withResolvers<undefined>();
    const controller = new AbortController();
    const pending = call("hang", 5_000, controller.signal);
    await hanging.promise;
    controller.abort();
    await expect(pending).rejects.toThrow("cancelled by the caller");
    await cancelled.promise;
  });

  it("says NODE_UNAVAILABLE when nobody listens", async () => {
    const nobody = new WakeServiceClient("127.0.0.1:1", credentials.createInsecure());
    await expect(
      unary(nobody.wake.bind(nobody), { actorUid: "", namespace: "", name: "" }, { deadlineMs: 2_000 }),
    ).rejects.toMatchObject({ code: "NODE_UNAVAILABLE" });
    nobody.close();
  });

  it("regression: a call that a stopping server cut was INTERNAL, so that a wake during a rollout failed for good", async () => {
    const reached = Promise.withResolvers<undefined>();
    const stopping = await startRpcServer({
      address: "127.0.0.1:0",
      credentials: ServerCredentials.createInsecure(),
      services: [
        {
          definition: WakeServiceService,
          implementation: {
            wake: unaryHandler<WakeRequest, WakeResponse>({ log }, () => {
              reached.resolve(undefined);
              return new Promise(() => undefined);
            }),
          },
        },
      ],
    });
    const client = new WakeServiceClient(`127.0.0.1:${String(stopping.port)}`, credentials.createInsecure());
    const pending = unary(client.wake.bind(client), { actorUid: "", namespace: "", name: "" }, { deadlineMs: 10_000 });
    const outcome = expect(pending).rejects.toMatchObject({ code: "NODE_UNAVAILABLE" });
    await reached.promise;
    await stopping.stop(0);
    await outcome;
    client.close();
  });

  const read = (actorUid: string, tailLines: number) =>
    new Promise<{ bytes: number; error: unknown }>((resolve) => {
      let bytes = 0;
      const stream = atelet.readLog({ actorUid, tailLines, follow: false });
      stream.on("data", ({ data }: ReadLogResponse) => (bytes += data.length));
      stream.on("error", (error) => {
        resolve({ bytes, error });
      });
      stream.on("end", () => {
        resolve({ bytes, error: undefined });
      });
    });

  it("streams more than its buffers hold, then ends", async () => {
    await expect(read("a", 64)).resolves.toEqual({ bytes: 64 * 64 * 1_024, error: undefined });
  });

  it("ends a stream with the error that its handler threw", async () => {
    const { bytes, error } = await read("lost", 1);
    expect(bytes).toBe(64 * 1_024);
    expect(fromServiceError(error as never)).toMatchObject({ code: "UNKNOWN_ACTOR", message: "no such actor" });
  });

  it("aborts a stream's handler when the reader leaves", async () => {
    const stream = atelet.readLog({ actorUid: "a", tailLines: 1_000_000, follow: false });
    const ended = new Promise<unknown>((resolve) => stream.on("error", resolve));
    stream.once("data", () => {
      stream.cancel();
    });
    expect(isCancelled(await ended)).toBe(true);
  });
});

it.each(Object.keys(errorCatalogue) as ErrorCode[])("%s survives the way there and back", (code) => {
  const status = toStatus(new SubstrateError(code, "why"));
  const back = fromServiceError(Object.assign(new Error("x"), status));
  expect(back).toMatchObject({ code, message: "why", retryAfterMs: undefined });
});

import { Writable } from "node:stream";
import { expect, it } from "vitest";
import winston from "winston";
import { SubstrateError } from "./errors.ts";
import { createLogger } from "./log.ts";

/** The fields of one logged line. */
function logged(error: Error): { error: Record<string, unknown> } {
  let line = "";
  const stream = new Writable({
    write: (chunk: Buffer, _, done) => {
      line += chunk.toString();
      done();
    },
  });
  const log = createLogger("test");
  log.clear().add(new winston.transports.Stream({ stream }));
  log.info("it failed", { error });
  return JSON.parse(line) as { error: Record<string, unknown> };
}

it("regression: an expected error over two hops was 9 kB, with its stack three times", () => {
  const service = new Error("9 FAILED_PRECONDITION: no such image", { cause: new Error("ENOENT") });
  const inner = new SubstrateError("IMAGE_UNAVAILABLE", "no such image", { cause: service });
  const outer = new SubstrateError("IMAGE_UNAVAILABLE", "node vm: no such image", { cause: inner });
  expect(logged(outer).error).toEqual({
    name: "SubstrateError",
    code: "IMAGE_UNAVAILABLE",
    message: "node vm: no such image",
    causes: ["ENOENT"],
  });
});

it("a defect is logged with its stack and causes", () => {
  const { error } = logged(new SubstrateError("INTERNAL", "oh", { cause: new TypeError("x is undefined") }));
  expect(error).toMatchObject({ code: "INTERNAL", cause: { name: "TypeError" } });
  expect(error.stack).toContain("log.test.ts");
});

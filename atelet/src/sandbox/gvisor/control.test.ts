import { closeSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { SandboxControl } from "./control.ts";

const control = new SandboxControl();
let dir: string;
let path: string;
let server: Server | undefined;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "control-"));
  path = join(dir, "s.sock");
});

afterEach(() => {
  server?.close();
  rmSync(dir, { recursive: true });
});

async function serve(answer: (request: string, socket: Socket) => void): Promise<void> {
  server = createServer((socket) => {
    socket.setEncoding("utf8").on("data", (request: string) => {
      answer(request, socket);
    });
  });
  await new Promise<void>((resolve) => server?.listen(path, resolve));
}

const call = { method: "containerManager.Pause", argument: null, timeoutMs: 5000 };

it("sends one JSON value and takes the answer in pieces", async () => {
  let asked = "";
  await serve((request, socket) => {
    asked = request;
    socket.write('{"success":true,"err":"","result":{');
    setTimeout(() => socket.write("}}"), 20);
  });
  await control.call(path, { ...call, argument: { Resume: true } });
  expect(JSON.parse(asked)).toEqual({ method: "containerManager.Pause", arg: { Resume: true } });
});

it("says what the sandbox says, that it ended, is not there, or takes too long", async () => {
  await expect(control.call(path, call)).rejects.toThrow(`connect to ${path}: ENOENT`);
  await serve((_request, socket) => socket.write('{"success":false,"err":"no room","result":null}'));
  await expect(control.call(path, call)).rejects.toThrow("no room");
  server?.close();
  await serve((_request, socket) => socket.destroy());
  await expect(control.call(path, call)).rejects.toThrow("ended before it answered");
  server?.close();
  await serve(() => undefined);
  await expect(control.call(path, { ...call, timeoutMs: 20 })).rejects.toThrow("did not end within 20 ms");
});

it("sends descriptors along and leaves them to the caller", async () => {
  await serve((_request, socket) => socket.write('{"success":true,"err":"","result":{}}'));
  const fd = openSync(dir, "r");
  await control.call(path, { ...call, files: [fd, fd, fd] });
  closeSync(fd);
});

import { asSubstrateError } from "@substrate/lib/errors.ts";
import { parentPort } from "node:worker_threads";
import { Job } from "./job.ts";
import { makeTable } from "./make-table.ts";
import { pack } from "./pack.ts";
import { PageHash } from "./page-hash.ts";
import { type FromThread, type ToThread, type WorkName, type WorkResults, type Works } from "./protocol.ts";
import { unpack } from "./unpack.ts";
import { verify } from "./verify.ts";

const port = parentPort;
if (!port) throw new Error("pages-worker.ts runs as a worker thread only");

const hash = PageHash.create();
const jobs = new Map<number, Job>();

async function workOn(job: Job, name: WorkName, work: Works[WorkName]): Promise<WorkResults[WorkName]> {
  const hasher = await hash;
  switch (name) {
    case "table":
      await makeTable(job, work as Works["table"], hasher);
      return undefined;
    case "verify":
      return verify(job, work, hasher);
    case "pack":
      return pack(job, work as Works["pack"], hasher);
    case "unpack":
      return unpack(job, work as Works["unpack"], hasher);
  }
}

async function answer(id: number, job: Job, name: WorkName, work: Works[WorkName]): Promise<FromThread> {
  try {
    return { id, result: await workOn(job, name, work) };
  } catch (error) {
    const { code, message, stack } = asSubstrateError(error);
    const errno = error instanceof Error && "code" in error && "errno" in error ? String(error.code) : undefined;
    return { id, failed: { code, message, stack, errno } };
  }
}

port.on("message", (message: ToThread) => {
  const { id } = message;
  if ("answer" in message) {
    jobs.get(id)?.answer(message.question, message.answer);
  } else if ("abandon" in message) {
    jobs.get(id)?.stop();
  } else {
    const job = new Job(message.given, (question, name, asked, transfer) => {
      port.postMessage({ id, question, name, asked } satisfies FromThread, transfer);
    });
    jobs.set(id, job);
    void answer(id, job, message.name, message.work).then((done) => {
      jobs.delete(id);
      port.postMessage(done);
    });
  }
});

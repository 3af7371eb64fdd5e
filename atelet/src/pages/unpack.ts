import { kernelCalls } from "../writeback/kernel-calls.ts";
import { Fetch } from "./fetch.ts";
import { ImageWriter } from "./image-writer.ts";
import { Abandoned, type Job } from "./job.ts";
import { type PageHash } from "./page-hash.ts";
import { decodeIndex, type PageIndex, ZERO_PAGE } from "./page-index.ts";
import { type Unpacked } from "./pages.ts";
import { type Works } from "./protocol.ts";
import { Wanted } from "./ranges.ts";
import { Reuse } from "./reuse.ts";

/** See Pages.unpack. */
export async function unpack(job: Job, request: Works["unpack"], hash: PageHash): Promise<Unpacked> {
  const index = decodeIndex(request.index, request.indexName);
  const reuse = new Reuse(index, request.reuse);
  const kernel = request.lent ? undefined : kernelCalls();
  const image = new ImageWriter(request.file, request.table, index.sizeBytes, kernel);
  try {
    const zeroPages = writeZeros(index, image, hash);
    const fetch = new Fetch(job, index, image, hash);
    const remote = wantedOf(index, (page) => !reuse.has(page));
    const [fetched, reusedPages] = await together(job, fetch.all(remote), reuse.copy(job, image, hash));
    const again = await fetch.all(wantedOf(index, (page) => reuse.lost(page)));
    image.commit();
    return {
      sizeBytes: index.sizeBytes,
      fetchedBytes: fetched.bytes + again.bytes,
      fetchedPages: fetched.pages + again.pages,
      reusedPages,
      zeroPages,
      reuseDamage: reuse.damage,
    };
  } catch (error) {
    image.abandon();
    throw error;
  }
}

function wantedOf({ pages }: PageIndex, isWanted: (page: number) => boolean): Wanted {
  return new Wanted(pages.length, (page) => {
    const number = pages[page];
    return number !== ZERO_PAGE && isWanted(page) ? number : undefined;
  });
}

/** Both; if one fails, the other is ended before its error is thrown: nothing writes to the image after that. */
async function together<A, B>(job: Job, one: Promise<A>, other: Promise<B>): Promise<[A, B]> {
  const stopping = (error: unknown): never => {
    job.stop();
    throw error;
  };
  const [a, b] = await Promise.allSettled([one.catch(stopping), other.catch(stopping)]);
  if (a.status === "fulfilled" && b.status === "fulfilled") return [a.value, b.value];
  const errors: unknown[] = [a, b].flatMap((part) => (part.status === "rejected" ? [part.reason as unknown] : []));
  throw errors.find((error) => !(error instanceof Abandoned)) ?? errors[0];
}

function writeZeros({ pages }: PageIndex, image: ImageWriter, hash: PageHash): number {
  let zeros = 0;
  for (let at = 0; at < pages.length;) {
    let count = 0;
    while (at + count < pages.length && pages[at + count] === ZERO_PAGE) count += 1;
    if (count > 0) image.zeros(at, count, hash.zero);
    zeros += count;
    at += Math.max(1, count);
  }
  return zeros;
}

/** The head of an answer by HTTP/1.1. Names of headers are in lower case. */
export interface AnswerHead {
  statusCode: number;
  headers: Record<string, string>;
  /** Of the body; "chunked", or "toEnd" of the connection. */
  body: number | "chunked" | "toEnd";
  /** Whether the connection may be used again. */
  keep: boolean;
}

/** An answer that is none of HTTP/1.1: nothing that comes after it on its connection can be believed. */
export class MalformedAnswer extends Error {
  readonly code = "MalformedAnswer";
}

/** A head that is longer belongs to no server of objects. */
const maxHeadBytes = 64 << 10;
const headEnd = Buffer.from("\r\n\r\n");

/**
 * Reads the head at the beginning of these bytes, passing over interim ones (100 Continue).
 *
 * @returns with the number of bytes that it took; undefined if its end has not come yet.
 */
export function readHead(bytes: Buffer): { head: AnswerHead; lengthBytes: number } | undefined {
  for (let start = 0; ;) {
    const end = bytes.indexOf(headEnd, start);
    if (end < 0) {
      if (bytes.length > maxHeadBytes) throw new MalformedAnswer("the head of the answer has no end");
      return undefined;
    }
    const head = parse(bytes.toString("latin1", start, end));
    start = end + headEnd.length;
    if (head.statusCode >= 200) return { head, lengthBytes: start };
  }
}

function parse(text: string): AnswerHead {
  const [first = "", ...lines] = text.split("\r\n");
  const [, minor, status] = /^HTTP\/1\.([01]) (\d{3})(?: |$)/.exec(first) ?? [];
  if (status === undefined) throw new MalformedAnswer(`the answer begins with ${JSON.stringify(first.slice(0, 40))}`);
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(":");
    // a folded or nameless line: what it says could be read in two ways
    if (colon < 1 || /\s/.test(line.slice(0, colon))) throw new MalformedAnswer("a header of the answer has no name");
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    const present = headers[name];
    if (present !== undefined && name === "content-length" && present !== value) {
      throw new MalformedAnswer("the answer says two lengths");
    }
    headers[name] = present === undefined || name === "content-length" ? value : `${present}, ${value}`;
  }
  const statusCode = Number(status);
  const said = (headers.connection ?? "").toLowerCase();
  const keep = minor === "1" ? !said.includes("close") : said.includes("keep-alive");
  return { statusCode, headers, body: bodyOf(statusCode, headers), keep };
}

function bodyOf(statusCode: number, headers: Record<string, string>): AnswerHead["body"] {
  if (statusCode === 204 || statusCode === 304) return 0;
  const coding = headers["transfer-encoding"]?.toLowerCase();
  if (coding === "chunked") return "chunked";
  if (coding !== undefined) throw new MalformedAnswer(`the answer has the transfer encoding ${coding}`);
  const length = headers["content-length"];
  if (length === undefined) return "toEnd";
  if (!/^\d{1,15}$/.test(length)) throw new MalformedAnswer(`the answer has the length ${length}`);
  return Number(length);
}

/** What a chunked body says, once it is there whole; undefined before. Trailers are passed over. */
export function readChunks(bytes: Buffer): Buffer | undefined {
  const chunks: Buffer[] = [];
  for (let start = 0; ;) {
    const lineEnd = bytes.indexOf("\r\n", start);
    if (lineEnd < 0) return undefined;
    const [, digits] = /^([0-9a-f]{1,8})(?:[ \t;]|$)/i.exec(bytes.toString("latin1", start, lineEnd)) ?? [];
    if (digits === undefined) throw new MalformedAnswer("a chunk of the answer has no length");
    const lengthBytes = parseInt(digits, 16);
    const from = lineEnd + 2;
    if (lengthBytes === 0) return endsAt(bytes, from) ? Buffer.concat(chunks) : undefined;
    if (bytes.length < from + lengthBytes + 2) return undefined;
    chunks.push(bytes.subarray(from, from + lengthBytes));
    start = from + lengthBytes + 2;
  }
}

function endsAt(bytes: Buffer, from: number): boolean {
  return bytes.subarray(from, from + 2).toString("latin1") === "\r\n" || bytes.indexOf(headEnd, from) >= 0;
}

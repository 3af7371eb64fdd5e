import { describe, expect, it } from "vitest";
import { readChunks, readHead } from "./answer.ts";

const head = (text: string) => readHead(Buffer.from(text.replaceAll("\n", "\r\n"), "latin1"));

describe("readHead", () => {
  it("reads status, headers, the body's length and whether the connection goes on", () => {
    const text = 'HTTP/1.1 206 Partial Content\nETag: "1"\nContent-Length: 12\nX-A: 1\nx-a: 2\n\n';
    expect(head(`${text}rest`)).toEqual({
      head: {
        statusCode: 206,
        headers: { etag: '"1"', "content-length": "12", "x-a": "1, 2" },
        body: 12,
        keep: true,
      },
      lengthBytes: text.length + 6,
    });
    expect(head("HTTP/1.1 200 OK\nConnection: Close\nTransfer-Encoding: chunked\n\n")?.head).toMatchObject({
      body: "chunked",
      keep: false,
    });
    expect(head("HTTP/1.0 200\n\n")?.head).toMatchObject({ body: "toEnd", keep: false });
    expect(head("HTTP/1.1 204 No Content\n\n")?.head).toMatchObject({ body: 0 });
  });

  it("waits for the end, and passes over interim answers", () => {
    expect(head("HTTP/1.1 200 OK\nA: 1\n")).toBeUndefined();
    expect(head("HTTP/1.1 100 Continue\n\n")).toBeUndefined();
    expect(head("HTTP/1.1 100 Continue\n\nHTTP/1.1 403 No\ncontent-length: 0\n\n")?.head.statusCode).toBe(403);
  });

  it.each([
    "ICY 200 OK\n\n",
    "HTTP/2 200\n\n",
    "HTTP/1.1 200 OK\nA: 1\n folded\n\n",
    "HTTP/1.1 200 OK\nContent-Length : 1\n\n",
    "HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2\n\n",
    "HTTP/1.1 200 OK\nContent-Length: -1\n\n",
    "HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked\n\n",
    "x".repeat(70_000),
  ])("believes nothing of %j", (text) => {
    expect(() => head(text)).toThrow(expect.objectContaining({ code: "MalformedAnswer" }));
  });
});

describe("readChunks", () => {
  const chunks = (text: string) => readChunks(Buffer.from(text))?.toString();

  it("gives what all chunks say, once the last has come", () => {
    const text = "5\r\nhello\r\nA;x=1\r\n, world\r\n!\r\n0\r\n\r\n";
    expect(chunks(text)).toBe("hello, world\r\n!");
    for (let end = 0; end < text.length; end += 1) expect(chunks(text.slice(0, end))).toBeUndefined();
    expect(chunks("0\r\nTrailer: 1\r\n\r\n")).toBe("");
    expect(() => chunks("x\r\n")).toThrow("no length");
  });
});
